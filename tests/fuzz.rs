//! The fuzz targets without a fuzzer: seeds, seeds grown to 64 KiB, and seeds changed at random, the same each time.
//! `tests/fuzz/run` continues from here.

#[path = "fuzz/src/targets/mod.rs"]
mod targets;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use targets::{LONGEST, Run, TARGETS, timed};

/// What grows with the square of its input takes longer, without optimization and on any machine.
const MOST: Duration = Duration::from_secs(20);
/// What parsers of text stumble over.
const WORDS: &[&[u8]] = &[
    b"-1",
    b"18446744073709551616",
    b"1e309",
    b"NaN",
    b"0x",
    b"\"",
    b"\\",
    b"{",
    b"[",
    b"</",
    b"\n",
    b"\0",
    b"\xff",
    b"\xe2\x80\xa8",
    b"=",
    b",",
    b":",
    b"*",
];

/// xorshift64*: the same numbers on every machine.
struct Dice(u64);

impl Dice {
    /// Begins with a name, so that each target has its own numbers.
    fn named(name: &str) -> Self {
        let mix = |seed: u64, byte| (seed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(name.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    /// Below a number above 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

/// Reports the input when a target panics.
struct Tried<'a>(&'a str, &'a [u8]);

impl Drop for Tried<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: input was b\"{}\"", self.0, self.1.escape_ascii());
        }
    }
}

fn try_one(name: &str, run: Run, input: &[u8]) -> Duration {
    let tried = Tried(name, &input[..input.len().min(LONGEST)]);
    let took = timed(run, tried.1);
    assert!(took < MOST, "{took:?} for {} bytes", tried.1.len());
    took
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
    let folder = tests.join("fuzz/seeds").join(name);
    let entries = folder.read_dir().expect("a folder of seeds");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a seed").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{name} has no seed");
    let read = |file| std::fs::read(file).expect("a seed");
    files.iter().map(read).collect()
}

/// A seed with one to four changes.
fn changed(seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut input = seeds[dice.below(seeds.len())].clone();
    for _ in 0..=dice.below(4) {
        let from = dice.below(input.len() + 1);
        let longest = 1 << dice.below(8);
        let length = dice.below(longest).min(input.len() - from);
        let part = from..from + length;
        match dice.below(7) {
            0 if from < input.len() => input[from] ^= 1 << dice.below(8),
            1 if from < input.len() => input[from] = dice.below(256) as u8,
            2 => drop(input.drain(part)),
            3 => {
                let times = 1 + dice.below(40);
                let again = input[part.clone()].repeat(times);
                input.splice(part, again);
            }
            4 => input.truncate(from),
            5 => {
                let other = &seeds[dice.below(seeds.len())];
                let rest = &other[dice.below(other.len() + 1)..];
                input.splice(part, rest.iter().copied());
            }
            _ => {
                let word = WORDS[dice.below(WORDS.len())];
                input.splice(part, word.iter().copied());
            }
        }
    }
    input
}

/// The seed over and over, its first line over and over, its last byte over and over: what grows with the square of
/// its input shows here.
fn grown(seed: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let line = seed.split_inclusive(|byte| *byte == b'\n').next();
    let last = seed.last().map(std::slice::from_ref);
    let parts = [Some(seed), line, last].into_iter().flatten();
    parts
        .filter(|part| !part.is_empty())
        .map(|part| part.repeat(LONGEST / part.len()))
}

fn try_target(name: &str, run: Run, changes: usize) {
    let seeds = seeds(name);
    let grown = seeds.iter().take(1).flat_map(|seed| grown(seed));
    let mut dice = Dice::named(name);
    let changed = (0..changes).map(|_| changed(&seeds, &mut dice));
    let inputs = seeds.iter().cloned().chain(grown).chain(changed);
    let (mut all, mut slowest) = (try_one(name, run, b""), Duration::ZERO);
    for input in inputs {
        let took = try_one(name, run, &input);
        all += took;
        slowest = slowest.max(took);
    }
    println!("{name}: {changes} changed seeds, {all:.2?}, slowest {slowest:.2?}");
}

#[test]
fn nothing_that_reads_others_words_panics() {
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((name, run, changes)) =
                    TARGETS.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    try_target(name, *run, *changes);
                }
            });
        }
    });
    std::fs::remove_dir_all(targets::files::folder()).expect("the targets' folder");
}

/// Bytes of text whose lines all differ.
fn lines(length: usize, line: impl Fn(usize) -> String) -> Vec<u8> {
    let mut text = Vec::with_capacity(length);
    for number in 0.. {
        let line = line(number);
        if text.len() + line.len() > length {
            break;
        }
        text.extend_from_slice(line.as_bytes());
    }
    text
}

/// Pages of about this many bytes on which a reader's cost may grow faster than their length.
fn large_pages(length: usize) -> Vec<(&'static str, Vec<u8>)> {
    let port =
        |device: &str| format!("railscope_rdma_port_up{{device=\"{device}\",port=\"1\"}} 1\n");
    let labels: String = (0..length / 12)
        .map(|one| format!("l{one}=\"\","))
        .collect();
    vec![
        ("series", lines(length, |one| port(&format!("mlx5_{one}")))),
        (
            "names",
            lines(length, |one| format!("railscope_n{one} 1\n")),
        ),
        (
            "foreign series",
            lines(length, |one| {
                format!("DCGM_FI_DEV_GPU_UTIL{{gpu=\"{one}\",UUID=\"GPU-{one}\"}} 1\n")
            }),
        ),
        (
            "types",
            lines(length, |one| format!("# TYPE railscope_n{one} counter\n")),
        ),
        ("long value", port(&"x".repeat(length)).into_bytes()),
        (
            "labels",
            format!("railscope_node_info{{{labels}}} 1\n").into_bytes(),
        ),
        ("malformed", b"broken{\n".repeat(length / 8)),
    ]
}

/// Processor time per byte may not grow with the length of a page: up to the largest that is read by default, of the target that also ticks
/// to a sixteenth of it.
#[test]
fn a_page_of_any_length_costs_in_proportion_to_its_bytes() {
    const TIMES: usize = 16;
    /// Of [`TIMES`], for what grows with the square.
    const MOST_TIMES: f64 = 5.0;
    /// Seconds per byte below which a difference is noise.
    const LEAST: f64 = 10e-9;
    let sizes = [
        ("exposition", 1 << 20),
        ("foreign-page", 1 << 20),
        ("own-page", 1 << 16),
    ];
    for (name, short) in sizes {
        let (_, run, _) = TARGETS
            .iter()
            .find(|(other, ..)| *other == name)
            .expect("a target");
        let small = large_pages(short);
        for ((shape, small), (_, large)) in small.iter().zip(large_pages(short * TIMES)) {
            let per_byte = |page: &[u8]| timed(*run, page).as_secs_f64() / page.len() as f64;
            let (once, then) = (per_byte(small), per_byte(&large));
            println!(
                "{name} of {shape}: {:.0} ns a byte, then {:.0}",
                once * 1e9,
                then * 1e9
            );
            assert!(
                then < once.max(LEAST) * MOST_TIMES,
                "{name} of {shape}: {:.1} times per byte",
                then / once
            );
        }
    }
}

#[test]
fn each_folder_of_seeds_has_a_target_and_all_are_small() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/seeds");
    let entries = folder.read_dir().expect("seeds");
    let mut bytes = 0;
    for entry in entries {
        let name = entry.expect("a folder").file_name();
        let name = name.to_str().expect("a name");
        assert!(TARGETS.iter().any(|(target, ..)| *target == name), "{name}");
        bytes += seeds(name).iter().map(Vec::len).sum::<usize>();
    }
    assert!(bytes <= 100_000, "{bytes} bytes of seeds");
}
