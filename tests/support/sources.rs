//! The repository's Rust sources as text, for tests that keep rules over them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Folders that hold Rust code.
const FOLDERS: &[&str] = &[
    "model",
    "exporter",
    "collector",
    "simulator",
    "cli",
    "dashboards",
    "tests",
];

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the package lies in the repository")
        .to_owned()
}

/// One source file.
pub(crate) struct Source {
    /// Path below the root, with slashes.
    pub(crate) path: String,
    /// All of it.
    pub(crate) text: String,
}

impl Source {
    /// Lines of code with their numbers: without comments and the unit tests at the end.
    pub(crate) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let without_tests = match self.text.find("\n#[cfg(test)]\nmod ") {
            Some(end) => &self.text[..end],
            None => &self.text,
        };
        let lines = without_tests
            .lines()
            .zip(1..)
            .map(|(line, number)| (number, code_of(line)));
        lines.filter(|(_, line)| !line.trim().is_empty())
    }

    /// Lines of code that hold one of the words, ready to be read.
    pub(crate) fn lines_with(&self, words: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        for (number, line) in self.code() {
            for word in words.iter().filter(|word| holds(line, word)) {
                found.push(format!("{}:{number}: {word}: {}", self.path, line.trim()));
            }
        }
        found
    }
}

/// Whether a line holds the word, and not only as a part of a longer one.
fn holds(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(part) && word.starts_with(part);
        let after =
            line[at + word.len()..].chars().next().is_some_and(part) && word.ends_with(part);
        !before && !after
    })
}

/// The line without its comment. A `//` inside of a string, as in a URL, follows a colon.
fn code_of(line: &str) -> &str {
    let comment = line
        .match_indices("//")
        .find(|(at, _)| !line[..*at].ends_with(':'));
    comment.map_or(line, |(at, _)| &line[..at])
}

/// Every Rust file of the repository, by path.
pub(crate) fn sources() -> Vec<Source> {
    let mut paths = BTreeSet::new();
    for folder in FOLDERS {
        collect(&root().join(folder), &mut paths);
    }
    assert!(paths.len() > 20, "the sources were not found");
    let read = |path: PathBuf| Source {
        text: std::fs::read_to_string(&path).expect("UTF-8"),
        path: path
            .strip_prefix(root())
            .expect("below the root")
            .to_string_lossy()
            .into_owned(),
    };
    paths.into_iter().map(read).collect()
}

fn collect(folder: &Path, paths: &mut BTreeSet<PathBuf>) {
    let Ok(entries) = folder.read_dir() else {
        return;
    };
    for entry in entries {
        let entry = entry.expect("entry");
        let (path, kind) = (entry.path(), entry.file_type().expect("kind"));
        // Links are not followed: fixture trees of /sys are full of them.
        if kind.is_dir() && entry.file_name() != "target" {
            collect(&path, paths);
        } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
            paths.insert(path);
        }
    }
}

/// Files that a crate's root reaches by `mod`, the root among them.
pub(crate) fn reached(crate_root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let folder = crate_root.parent().expect("a folder").to_owned();
    follow(crate_root, &folder, &mut found);
    found
}

/// `folder` is that contains the file's modules.
fn follow(file: &Path, folder: &Path, found: &mut BTreeSet<PathBuf>) {
    let file = file
        .canonicalize()
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(&file).expect("UTF-8");
    let here = file.parent().expect("a folder").to_owned();
    if !found.insert(file) {
        return;
    }
    let mut path_attribute = None;
    for line in text.lines().map(str::trim) {
        if let Some(path) = line
            .strip_prefix("#[path = \"")
            .and_then(|rest| rest.strip_suffix("\"]"))
        {
            path_attribute = Some(here.join(path));
            continue;
        }
        let Some(name) = module(line) else { continue };
        match path_attribute.take() {
            Some(path) => {
                let inside = path.parent().expect("a folder").to_owned();
                follow(&path, &inside, found);
            }
            None => {
                let (flat, nested) = (
                    folder.join(format!("{name}.rs")),
                    folder.join(name).join("mod.rs"),
                );
                let path = if flat.exists() { flat } else { nested };
                follow(&path, &folder.join(name), found);
            }
        }
    }
}

/// `x` of `mod x;`, `pub mod x;`, `pub(crate) mod x;`.
fn module(line: &str) -> Option<&str> {
    let (visibility, rest) = line.split_once("mod ")?;
    let visibility = visibility.trim();
    (visibility.is_empty() || visibility.starts_with("pub")).then_some(rest.strip_suffix(';')?)
}
