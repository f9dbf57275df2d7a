//! Machines for tests: ours, captured ones, and copies that a test may break.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod namespace;

use std::fs;
use std::path::{Path, PathBuf};

use railscope_exporter::sampler::{Machine, SAMPLERS, Sampler};

/// A machine whose `sys`, `proc` and `dev` stand below one directory.
pub(crate) fn machine(root: &Path) -> Machine {
    Machine::below(root)
}

/// Where one of our own fixture machines stands.
pub(crate) fn our_root(name: &str) -> PathBuf {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines");
    machines.join(name)
}

/// One of our own fixture machines.
pub(crate) fn ours(name: &str) -> Machine {
    machine(&our_root(name))
}

/// A recording of real hardware; reports if this checkout has none.
pub(crate) fn captures(test: &str, path: &str) -> Option<PathBuf> {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/captures");
    let path = captures.join(path);
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: {test}: no recordings beside the checkout");
    None
}

/// The sampler of this name, built for a machine.
pub(crate) fn sampler(name: &str, machine: &Machine) -> Box<dyn Sampler> {
    let mut samplers = SAMPLERS.iter().map(|build| build(machine));
    samplers
        .find(|sampler| sampler.name() == name)
        .expect("a sampler of this name")
}

/// Copies a tree, links as links, everything writable.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("mkdir");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            copy(&entry.path(), &target);
        } else if kind.is_symlink() {
            let link = fs::read_link(entry.path()).expect("a link");
            std::os::unix::fs::symlink(link, target).expect("link");
        } else {
            fs::write(target, fs::read(entry.path()).expect("a file")).expect("write");
        }
    }
}
