//! A machine with arbitrary file contents: every sampler, then the result of `railscope check`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use railscope_exporter::check;
use railscope_exporter::sampler::{Machine, SAMPLERS};
use railscope_model::reading::NodeReading;

use super::files::folder;

/// Those whose files differ most.
const MACHINES: [&str; 4] = [
    "hgx-h100-ib",
    "hgx-h200-roce",
    "gb200-nvl72-tray",
    "vm-vf-passthrough",
];
/// What is read where it is there, and the machines have not.
const MORE: &[&str] = &[
    "dev/kmsg",
    "jobs/0",
    "proc/1/net/if_inet6",
    "proc/1/net/ipv6_route",
    "proc/1/net/route",
    "proc/driver/nvidia/gpus/0000:1b:00.0/information",
    "proc/driver/nvidia-fs/stats",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "sys/class/dmi/id/chassis_asset_tag",
    "sys/hypervisor/type",
];
/// Separator between two files' contents: no file has it.
const BETWEEN: &[u8] = b"\n--\n";

/// A copy of a fixture machine.
struct Copied {
    root: PathBuf,
    /// One file of each kind by its path below the root, with its content, if it exists.
    files: Vec<(String, Option<Vec<u8>>)>,
}

impl Copied {
    /// Copies it, links as links.
    fn new(from: &Path, root: PathBuf) -> Self {
        let mut files = Vec::new();
        copy(from, &root, "", &mut files);
        files.sort();
        let mut kinds = BTreeSet::new();
        files.retain(|(path, _)| kinds.insert(kind(path)));
        let mut files: Vec<_> = files
            .into_iter()
            .map(|(path, said)| (path, Some(said)))
            .collect();
        let settings = files
            .iter()
            .find(|(path, _)| path.ends_with("/max_link_speed"));
        let settings = settings.map(|(path, _)| path.replace("max_link_speed", "config"));
        for path in MORE.iter().copied().map(str::to_owned).chain(settings) {
            if !files.iter().any(|(known, _)| *known == path) {
                let file = root.join(&path);
                fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
                files.push((path, None));
            }
        }
        Self { root, files }
    }

    fn write(&self, number: usize, said: Option<&[u8]>) {
        let file = self.root.join(&self.files[number].0);
        match said {
            Some(said) => fs::write(file, said).expect("a file"),
            None => fs::remove_file(file).expect("a file"),
        }
    }
}

/// The last folder and name without their digits: of sixteen devices one is as good as another.
fn kind(path: &str) -> String {
    let mut last = path.rsplit('/');
    let (name, folder) = (
        last.next().unwrap_or_default(),
        last.next().unwrap_or_default(),
    );
    format!("{folder}/{name}").replace(|c: char| c.is_ascii_digit(), "")
}

fn machines() -> &'static [Copied] {
    static COPIED: OnceLock<Vec<Copied>> = OnceLock::new();
    COPIED.get_or_init(|| {
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let ours = ours.map(|folder| folder.join("tests/machines"));
        let ours = ours.into_iter().find(|folder| folder.exists());
        let ours = ours.expect("machines below a folder above");
        let copied = MACHINES
            .iter()
            .map(|name| Copied::new(&ours.join(name), folder().join("machines").join(name)));
        copied.collect()
    })
}

fn copy(from: &Path, to: &Path, below: &str, files: &mut Vec<(String, Vec<u8>)>) {
    fs::create_dir_all(to.join(below)).expect("a folder");
    for entry in fs::read_dir(from.join(below)).expect("a folder") {
        let entry = entry.expect("an entry");
        let path = Path::new(below).join(entry.file_name());
        let path = path.to_str().expect("UTF-8");
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            copy(from, to, path, files);
        } else if kind.is_symlink() {
            let link = fs::read_link(entry.path()).expect("a link");
            // It is there already where an earlier process had the same number.
            std::os::unix::fs::symlink(link, to.join(path)).ok();
        } else {
            let said = fs::read(entry.path()).expect("a file");
            fs::write(to.join(path), &said).expect("a file");
            files.push((path.to_owned(), said));
        }
    }
}

/// Index of a word in a list; an unknown one maps to another.
fn place<'a>(word: &[u8], mut list: impl ExactSizeIterator<Item = &'a str>) -> usize {
    let sum = word.iter().fold(0_usize, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(usize::from(*byte))
    });
    let other = sum % list.len();
    list.position(|one| one.as_bytes() == word).unwrap_or(other)
}

fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
    (line, rest.get(1..).unwrap_or_default())
}

/// The first line names a machine. Then files follow: a line with the path, then the file's content.
pub(crate) fn machine_files(bytes: &[u8]) {
    let (name, mut rest) = first_line(bytes);
    let copied = &machines()[place(name, MACHINES.iter().copied())];
    let mut machine = Machine::below(&copied.root);
    machine.workloads.job_mapping = Some(copied.root.join("jobs"));
    let mut samplers: Vec<_> = SAMPLERS.iter().map(|build| build(&machine)).collect();
    let mut sample = || {
        for sampler in &mut samplers {
            let mut reading = NodeReading::default();
            if let Err(error) = sampler.sample(&mut reading) {
                assert!(!error.to_string().is_empty());
            }
        }
    };
    let mut changed = BTreeSet::new();
    while !rest.is_empty() {
        let end = rest.windows(BETWEEN.len()).position(|at| at == BETWEEN);
        let (file, next) = rest.split_at(end.unwrap_or(rest.len()));
        rest = next.get(BETWEEN.len()..).unwrap_or_default();
        let (path, said) = first_line(file);
        let number = place(path, copied.files.iter().map(|(path, _)| path.as_str()));
        copied.write(number, Some(said));
        changed.insert(number);
    }
    sample();
    check::run(&machine);
    for number in changed {
        copied.write(number, copied.files[number].1.as_deref());
    }
    // Counters have gone anywhere in between.
    sample();
}
