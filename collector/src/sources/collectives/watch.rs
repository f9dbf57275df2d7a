//! The folder into which jobs write the records of their collective libraries: read repeatedly, each
//! byte read once.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::flight_recorder::{Dump, is_flight_recorder, parse_dump, rank_of_file, rank_states};
use super::inspector::{Lines, is_dump};
use crate::health::SourceStatus;
use crate::jobs::straggler::{Operation, Stuck, late_ranks};
use crate::service::Event;
use crate::status::State;

/// Time between two reads: that between two ticks.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Levels of folders below the folder that are read: one a job, one a node.
const DEPTH: usize = 3;
/// Most files that are followed; a file a process.
const MOST_FILES: usize = 131_072;
/// Maximum bytes per read; the rest is left for the next.
const MOST_BYTES: u64 = 64 << 20;
/// What is read of the end of a file that was there before the collector: what came before is over.
const TAIL_BYTES: u64 = 1 << 20;
/// Largest dump of a flight recorder.
const MOST_OF_DUMP: u64 = 64 << 20;
/// Longest line of a dump; a longer one is no line of the plugin.
const MOST_OF_LINE: usize = 1 << 20;

/// What was read of the folder so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files that hold dumps.
    pub files: usize,
    /// Operations.
    pub operations: u64,
    /// Lines or files that cannot be read.
    pub malformed: u64,
    /// Files beyond what is followed.
    pub left_out: usize,
    /// What was last wrong.
    pub problem: Option<String>,
}

impl Counts {
    fn note(&mut self, problem: String) {
        self.malformed += 1;
        self.problem = Some(problem);
    }
}

/// Result of one read.
#[derive(Debug, Default)]
pub struct Found {
    /// Operations, file by file.
    pub operations: Vec<Operation>,
    /// Stalled jobs, by the folder of their ranks' dumps.
    pub stuck: Vec<Stuck>,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Its begin has not reported yet.
    Unknown,
    Inspector,
    FlightRecorder,
    Other,
}

#[derive(Debug)]
struct Followed {
    kind: Kind,
    /// Where the next line begins.
    offset: u64,
    lines: usize,
    reader: Lines,
    size: u64,
    changed: Option<SystemTime>,
}

/// Size and time of files.
type Sizes = Vec<(u64, Option<SystemTime>)>;

/// The folder.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    files: BTreeMap<PathBuf, Followed>,
    /// By folder: size and time of its flight recorders' dumps at the last read, and whether they were
    /// evaluated.
    settling: BTreeMap<PathBuf, (Sizes, bool)>,
    is_first: bool,
    /// What was read so far.
    pub counts: Counts,
}

impl Folder {
    /// A folder that may not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            files: BTreeMap::new(),
            settling: BTreeMap::new(),
            is_first: true,
            counts: Counts::default(),
        }
    }

    /// Reads what is new. Blocks.
    pub fn look(&mut self) -> Found {
        let mut found = Found::default();
        let mut paths = Vec::new();
        if let Err(error) = list(&self.path, DEPTH, &mut paths) {
            self.counts.problem = Some(format!("{}: {error}", self.path.display()));
        }
        paths.sort();
        self.counts.left_out = paths.len().saturating_sub(MOST_FILES);
        paths.truncate(MOST_FILES);
        self.files
            .retain(|path, _| paths.binary_search(path).is_ok());
        let mut left = MOST_BYTES;
        for path in paths {
            if left == 0 {
                break;
            }
            match self.read_on(&path, left, &mut found) {
                Ok(read) => left = left.saturating_sub(read),
                Err(error) => self.counts.note(format!("{}: {error}", path.display())),
            }
        }
        self.judge_settled(&mut found);
        self.is_first = false;
        let ours = |file: &&Followed| [Kind::Inspector, Kind::FlightRecorder].contains(&file.kind);
        self.counts.files = self.files.values().filter(ours).count();
        found
    }

    /// Reads what was appended to a file since the last read; returns the number of bytes.
    fn read_on(&mut self, path: &Path, left: u64, found: &mut Found) -> io::Result<u64> {
        let about = fs::metadata(path)?;
        let (size, changed) = (about.len(), about.modified().ok());
        let is_first = self.is_first;
        let known = self.files.entry(path.to_owned()).or_insert(Followed {
            kind: Kind::Unknown,
            offset: 0,
            lines: 0,
            reader: Lines::default(),
            size: 0,
            changed: None,
        });
        if size < known.offset {
            // Written again.
            (known.offset, known.lines, known.kind) = (0, 0, Kind::Unknown);
            known.reader = Lines::default();
        }
        (known.size, known.changed) = (size, changed);
        let mut file = File::open(path)?;
        if known.kind == Kind::Unknown {
            let mut begin = vec![0; 4096];
            let length = file.read(&mut begin)?;
            known.kind = kind_of(&begin[..length]);
            if known.kind == Kind::Inspector && is_first && size > TAIL_BYTES {
                known.offset = size - TAIL_BYTES;
            }
        }
        if known.kind != Kind::Inspector || size == known.offset {
            return Ok(0);
        }
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(known.offset))?;
        let room = left.min(size - known.offset);
        let read = file.take(room).read_to_end(&mut text)?;
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map(|at| at + 1);
        if let Some(whole) = whole.or((text.len() > MOST_OF_LINE).then_some(text.len())) {
            // The tail of a file begins in the middle of a line.
            let skipped = usize::from(known.offset > 0 && known.lines == 0);
            let first = known.lines + 1;
            let text = String::from_utf8_lossy(&text[..whole]);
            known.offset += whole as u64;
            known.lines += text.lines().count();
            let lines = (first..).zip(text.lines()).skip(skipped);
            let name = path.display().to_string();
            for (number, line) in lines {
                match known.reader.read(&name, number, line) {
                    Ok(None) => {}
                    Ok(Some(operation)) => {
                        self.counts.operations += 1;
                        found.operations.push(operation);
                    }
                    Err(error) => self.counts.note(error.to_string()),
                }
            }
        }
        Ok(read as u64)
    }

    /// Evaluates the dumps of flight recorders of each folder once nothing was written there between
    /// two reads.
    fn judge_settled(&mut self, found: &mut Found) {
        let mut folders: BTreeMap<PathBuf, Vec<(&PathBuf, &Followed)>> = BTreeMap::new();
        for (path, file) in &self.files {
            if file.kind == Kind::FlightRecorder
                && let Some(folder) = path.parent()
            {
                folders
                    .entry(folder.to_owned())
                    .or_default()
                    .push((path, file));
            }
        }
        let mut problems = Vec::new();
        self.settling
            .retain(|folder, _| folders.contains_key(folder));
        for (folder, files) in folders {
            let state: Sizes = files
                .iter()
                .map(|(_, file)| (file.size, file.changed))
                .collect();
            let known = self.settling.entry(folder.clone()).or_default();
            if known.0 != state {
                *known = (state, false);
                continue;
            }
            if std::mem::replace(&mut known.1, true) {
                continue;
            }
            // PyTorch's file stands before what a user converted it to.
            let mut dumps = BTreeMap::new();
            for (path, _) in files {
                match read_dump(path) {
                    Ok(dump) => drop(dumps.entry(dump.rank()).or_insert(dump)),
                    Err(problem) => problems.push(problem),
                }
            }
            let dumps: Vec<Dump> = dumps.into_values().collect();
            let name = folder.strip_prefix(&self.path).unwrap_or(&folder);
            found.stuck.push(Stuck {
                folder: name.display().to_string(),
                ranks: dumps.len(),
                late: late_ranks(&rank_states(&dumps)),
            });
        }
        for problem in problems {
            self.counts.note(problem);
        }
    }
}

fn kind_of(begin: &[u8]) -> Kind {
    if is_flight_recorder(begin) {
        Kind::FlightRecorder
    } else if is_dump(&String::from_utf8_lossy(begin)) {
        Kind::Inspector
    } else if begin.contains(&b'\n') || begin.len() >= 4096 {
        Kind::Other
    } else {
        Kind::Unknown
    }
}

fn read_dump(path: &Path) -> Result<Dump, String> {
    let name = path.display().to_string();
    let rank = rank_of_file(&name).map_err(|error| error.to_string())?;
    let size = fs::metadata(path)
        .map_err(|error| format!("{name}: {error}"))?
        .len();
    if size > MOST_OF_DUMP {
        return Err(format!(
            "{name}: {size} bytes, at most {MOST_OF_DUMP} are read"
        ));
    }
    let bytes = fs::read(path).map_err(|error| format!("{name}: {error}"))?;
    parse_dump(&name, rank, &bytes).map_err(|error| error.to_string())
}

/// Files below a folder. A folder that does not exist yet has none.
fn list(folder: &Path, depth: usize, into: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_file() {
            into.push(entry.path());
        } else if kind.is_dir() && depth > 0 {
            list(&entry.path(), depth - 1, into)?;
        }
    }
    Ok(())
}

/// Follows the folder until the analysis is gone; without one there is nothing to do.
pub(crate) async fn follow(
    folder: Option<PathBuf>,
    events: mpsc::Sender<Event>,
    state: Arc<State>,
) {
    let Some(path) = folder else {
        drop(events);
        return std::future::pending().await;
    };
    let key = ("collectives", path.display().to_string());
    state.expect_source(&key, Some(LOOK_INTERVAL));
    let mut folder = Folder::new(path);
    let mut due = interval(LOOK_INTERVAL);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut said = None;
    loop {
        due.tick().await;
        let looked = tokio::task::spawn_blocking(move || {
            let found = folder.look();
            (folder, found)
        });
        let Ok((seen, found)) = looked.await else {
            return;
        };
        folder = seen;
        if folder.counts.problem != said {
            said.clone_from(&folder.counts.problem);
            tracing::warn!(
                "dumps of collectives: {}",
                said.as_deref().unwrap_or_default()
            );
        }
        state.record_dumps(folder.counts.clone());
        let at = state.now();
        let status = match said {
            None => SourceStatus::Ok,
            Some(_) => SourceStatus::Partial,
        };
        state.record_source(&key, status, Some(at), said.clone());
        if events.send(Event::Collectives { found, at }).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u64) -> String {
        format!(
            r#"{{"header":{{"id":"0x7f","rank":2,"n_ranks":8,"nnodes":1}},"metadata":{{"dump_timestamp_us":5000000,"hostname":"n7","pid":9}},"coll_perf":{{"coll":"AllReduce","coll_sn":{number},"coll_msg_size_bytes":1,"coll_exec_time_us":2}}}}"#
        )
    }

    fn numbers(found: &Found) -> Vec<u64> {
        found
            .operations
            .iter()
            .filter_map(|one| one.number)
            .collect()
    }

    #[test]
    fn each_line_is_read_once_and_when_it_is_whole_and_bad_ones_are_counted() {
        let temp = tempfile::tempdir().expect("a folder");
        let below = temp.path().join("nccl-inspector-17");
        let mut folder = Folder::new(below.clone());
        assert!(numbers(&folder.look()).is_empty(), "it is not there yet");
        fs::create_dir(&below).expect("mkdir");
        let path = below.join("n7-pid9.log");
        let mut text = format!("{}\n{{\n{}\n{}", line(1), line(2), &line(3)[..40]);
        fs::write(&path, &text).expect("write");
        fs::write(below.join("readme"), "no dump\n").expect("write");
        assert_eq!(numbers(&folder.look()), [1, 2]);
        assert_eq!((folder.counts.malformed, folder.counts.files), (1, 1));
        let problem = folder.counts.problem.clone().unwrap_or_default();
        assert!(problem.contains("n7-pid9.log:2: column"), "{problem}");
        text += &line(3)[40..];
        fs::write(&path, text + "\n").expect("write");
        assert_eq!(numbers(&folder.look()), [3]);
        assert!(numbers(&folder.look()).is_empty());
        fs::write(&path, line(7) + "\n").expect("write");
        assert_eq!(numbers(&folder.look()), [7], "written anew");
    }

    /// A dump of v4.3 of one collective.
    fn dump(communicator: &str, number: u64) -> String {
        format!(
            r#"{{"header":{{"id":"{communicator}","rank":2,"n_ranks":8,"nnodes":1}},"metadata":{{"dump_timestamp_us":5000000,"hostname":"n7","pid":9}},"dump_stats":{{"coll_records":1}}}}
{{"coll_perf":{{"coll":"AllReduce","coll_sn":{number},"coll_msg_size_bytes":1,"coll_exec_time_us":2}}}}
"#
        )
    }

    #[test]
    fn a_marker_is_known_in_later_looks_and_forgotten_when_its_file_is_written_again() {
        let temp = tempfile::tempdir().expect("a folder");
        let path = temp.path().join("n7-pid9.log");
        let mut folder = Folder::new(temp.path().to_owned());
        let text = dump("0x7f", 1) + &dump("0x80", 2);
        let last = text.trim_end().rfind('\n').expect("lines") + 1;
        let mut look = |text: &str| {
            fs::write(&path, text).expect("write");
            let found = folder.look();
            let read = found.operations.iter();
            let read = read.map(|one| (one.member.communicator.to_string(), one.number));
            (read.collect::<Vec<_>>(), folder.counts.malformed)
        };
        let one = |communicator: &str, number: u64| vec![(communicator.to_owned(), Some(number))];
        assert_eq!(look(&text[..last]), (one("0x7f", 1), 0));
        assert_eq!(look(&text), (one("0x80", 2), 0));
        // Behind a line that cannot be read, nothing is known of the lines up to the next marker.
        let shorter = format!("{}\n{{\n{}\n", line(3), text[last..].trim_end());
        assert!(shorter.len() < text.len());
        assert_eq!(look(&shorter), (one("0x7f", 3), 1));
    }

    #[test]
    fn the_end_of_a_dump_whose_marker_came_before_it_is_skipped() {
        let temp = tempfile::tempdir().expect("a folder");
        let first = dump("0x7f", 1);
        let collective = first.lines().nth(1).expect("a collective").to_owned() + "\n";
        let many = 2 * TAIL_BYTES as usize / collective.len();
        let text = first + &collective.repeat(many) + &dump("0x80", 2);
        fs::write(temp.path().join("n7-pid9.log"), text).expect("write");
        let mut folder = Folder::new(temp.path().to_owned());
        assert_eq!(numbers(&folder.look()), [2]);
        assert_eq!((folder.counts.malformed, folder.counts.files), (0, 1));
    }

    #[test]
    fn what_was_there_before_the_collector_is_read_from_its_end() {
        let temp = tempfile::tempdir().expect("a folder");
        let all = 2 * TAIL_BYTES / line(1000).len() as u64;
        let text: String = (1000..1000 + all)
            .map(|number| line(number) + "\n")
            .collect();
        fs::write(temp.path().join("n7-pid9.log"), text).expect("write");
        let read = numbers(&Folder::new(temp.path().to_owned()).look());
        assert_eq!(read.last(), Some(&(999 + all)));
        assert!(read.len() as u64 <= all / 2 + 1, "{}", read.len());
    }

    #[test]
    fn flight_recorders_are_judged_once_nobody_writes_any_more() {
        let temp = tempfile::tempdir().expect("a folder");
        let dump = |completed: u64| {
            format!(
                r#"{{"pg_config": {{"0": {{"ranks": "[0, 1]"}}}}, "pg_status": {{"0": {{"last_enqueued_collective": 5, "last_completed_collective": {completed}}}}}, "entries": [{{"pg_id": 0, "process_group": ["0", "default"], "collective_seq_id": 5, "profiling_name": "nccl:all_reduce", "state": "started", "is_p2p": false}}]}}"#
            )
        };
        for (rank, completed) in [(0, 4), (1, 3)] {
            fs::write(temp.path().join(format!("dump_{rank}")), dump(completed)).expect("write");
        }
        let mut folder = Folder::new(temp.path().to_owned());
        assert_eq!(folder.look().stuck, []);
        let stuck = folder.look().stuck;
        assert_eq!(
            (stuck.len(), stuck[0].ranks, stuck[0].late[0].rank),
            (1, 2, 1)
        );
        assert_eq!(folder.look().stuck, []);
    }
}
