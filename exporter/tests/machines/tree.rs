//! The tree of files of one fixture machine: made in memory, written to disk, read back.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What stands at one path of a tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    File(String),
    Link(String),
}

/// A tree of files, by path below the machine's root.
#[derive(Default)]
pub(super) struct Tree(pub(super) BTreeMap<String, Entry>);

impl Tree {
    /// A file with one line, as the kernel prints it.
    pub(super) fn file(&mut self, path: impl Into<String>, text: impl std::fmt::Display) {
        self.0.insert(path.into(), Entry::File(format!("{text}\n")));
    }

    /// A link from one path of the tree to another, relative as in sysfs.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        let from: Vec<&str> = path.split('/').collect();
        let to: Vec<&str> = target.split('/').collect();
        let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        let up = "../".repeat(from.len() - 1 - common);
        let relative = format!("{up}{}", to[common..].join("/"));
        self.0.insert(path.to_owned(), Entry::Link(relative));
    }

    /// The flags of the first CPU; the others have the same.
    pub(super) fn cpu(&mut self, flags: &str) {
        self.file(
            "proc/cpuinfo",
            format!("processor\t: 0\nflags\t\t: {flags}\n"),
        );
    }

    pub(super) fn kernel(&mut self, node: &str, cpus: &str, numa_nodes: &str) {
        self.file("proc/sys/kernel/hostname", node);
        self.file("proc/sys/kernel/osrelease", "6.8.0-60-generic");
        self.file("proc/sys/kernel/arch", "x86_64");
        self.file("sys/devices/system/cpu/online", cpus);
        self.file("sys/devices/system/node/online", numa_nodes);
    }
}

pub(super) fn write(tree: &Tree, root: &Path) {
    if root.exists() {
        fs::remove_dir_all(root).expect("remove the old tree");
    }
    for (path, entry) in &tree.0 {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
        match entry {
            Entry::File(text) => fs::write(&path, text).expect("write"),
            Entry::Link(target) => std::os::unix::fs::symlink(target, &path).expect("link"),
        }
    }
}

pub(super) fn read(root: &Path, below: &str, into: &mut Tree) {
    for entry in fs::read_dir(root.join(below)).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name");
        let path = if below.is_empty() {
            name
        } else {
            format!("{below}/{name}")
        };
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            read(root, &path, into);
        } else if kind.is_symlink() {
            let target = fs::read_link(entry.path()).expect("a link");
            let target = target.to_str().expect("a target").to_owned();
            into.0.insert(path, Entry::Link(target));
        } else {
            let text = fs::read_to_string(entry.path()).expect("a file");
            into.0.insert(path, Entry::File(text));
        }
    }
}
