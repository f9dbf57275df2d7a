//! Every value that a recording holds: a line with a number in it, whether it is exported or not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A file of rows of different things: each is a separate file here, `proc/stat:btime`.
const TABLE: &str = "proc/stat";

/// Values of each file by its path below the root. Links are not followed: each file is seen once.
pub(super) fn values(root: &Path) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a directory") {
            let entry = entry.expect("an entry");
            let kind = entry.file_type().expect("a type");
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let bytes = fs::read(entry.path()).expect("a file");
                let below = entry.path();
                let below = below.strip_prefix(root).expect("below the root");
                let below = below.to_string_lossy();
                for line in String::from_utf8_lossy(&bytes)
                    .lines()
                    .filter(|line| has_number(line))
                {
                    let name = match line.split_once(' ') {
                        Some((row, _)) if below == TABLE => format!("{TABLE}:{row}"),
                        _ => below.clone().into_owned(),
                    };
                    *found.entry(name).or_insert(0) += 1;
                }
            }
        }
    }
    found
}

fn has_number(line: &str) -> bool {
    let words = line.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    let digit = |word: &str| word.starts_with(|char: char| char.is_ascii_digit());
    words.into_iter().any(digit)
}

/// Whether a path matches a pattern: `*` for anything within one name, `**` for any names,
/// `{a,b}` for either.
pub(super) fn stands_for(pattern: &str, path: &str) -> bool {
    fn names(pattern: &[&str], path: &[&str]) -> bool {
        match (pattern.split_first(), path.split_first()) {
            (None, None) => true,
            (Some((&"**", rest)), _) => {
                (0..=path.len()).any(|skipped| names(rest, &path[skipped..]))
            }
            (Some((name, rest)), Some((found, below))) => one_of(name, found) && names(rest, below),
            _ => false,
        }
    }
    names(
        &pattern.split('/').collect::<Vec<_>>(),
        &path.split('/').collect::<Vec<_>>(),
    )
}

/// Whether a name matches `a{b,c*}d`: `abd`, `acxd`.
fn one_of(pattern: &str, name: &str) -> bool {
    let parts = pattern.split_once('{').and_then(|(before, rest)| {
        let (words, behind) = rest.split_once('}')?;
        Some((before, words, behind))
    });
    let Some((before, words, behind)) = parts else {
        return within(pattern, name);
    };
    let middle = name
        .strip_prefix(before)
        .and_then(|rest| rest.strip_suffix(behind));
    middle.is_some_and(|middle| words.split(',').any(|word| within(word, middle)))
}

fn within(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, behind)) => name.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len())
                .filter(|place| rest.is_char_boundary(*place))
                .any(|place| within(behind, &rest[place..]))
        }),
    }
}

/// Folders of the functions of GPUs and RDMA NICs and of every bridge above them, as the links lead.
pub(super) fn paths_of_devices(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let names = |folder: &str| {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten();
        entries
            .map(|entry| entry.expect("an entry").path())
            .collect::<Vec<_>>()
    };
    let nics = names("sys/class/infiniband")
        .into_iter()
        .map(|nic| nic.join("device"));
    let gpus = names("sys/bus/pci/devices").into_iter().filter(|function| {
        let begins = |file: &str, word: &str| {
            fs::read_to_string(function.join(file)).is_ok_and(|text| text.starts_with(word))
        };
        begins("vendor", "0x10de") && begins("class", "0x03")
    });
    for function in nics.chain(gpus).filter_map(|path| path.canonicalize().ok()) {
        let above = function.ancestors().take_while(|folder| *folder != root);
        let below = above.map(|folder| folder.strip_prefix(root).expect("below the root"));
        found.extend(below.map(|folder| folder.to_string_lossy().into_owned()));
    }
    found
}

#[test]
fn a_pattern_stands_for_paths() {
    for (pattern, path, expected) in [
        ("sys/*/b", "sys/a/b", true),
        ("sys/*/b", "sys/a/c/b", false),
        ("sys/**/b", "sys/a/c/b", true),
        ("sys/**/b", "sys/b", true),
        ("sys/**", "sys/a/b", true),
        ("**/cpu*/cache/**", "sys/cpu12/cache/x/y", true),
        ("**/index*_*", "a/index3_x", true),
        ("**/index*_*", "a/index3", false),
        ("a/{b,c*}_d", "a/cc_d", true),
        ("a/{b,c*}_d", "a/bb_d", false),
    ] {
        assert_eq!(stands_for(pattern, path), expected, "{pattern} {path}");
    }
}
