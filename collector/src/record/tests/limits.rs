//! Limits of a recording: size, age, memory, a kill, a folder that is not its own.

use super::*;

#[test]
fn the_folder_is_never_above_its_limit_and_loses_the_oldest_scrapes() {
    let (folder, mut config) = configured("[subnet]\nfile = \"none\"");
    let limit = 64_000;
    config.record.as_mut().expect("a table").max_bytes = limit;
    let recorder = recorder(&config);
    let n1 = target("n1");
    recorder.set_targets(std::slice::from_ref(&n1), false, at(0));
    let mut fullest = 0;
    for second in 0..200 {
        let now = at(second * 1_000);
        let text = format!("{second} {}", noise(second, 2_000));
        recorder.scrape(&n1, now, Ok(&text));
        recorder.cycle(now, &[]);
        if second % 40 == 0 {
            // A version of the fabric, too.
            recorder.fabric(now, format!("vendid={second}\n{}", noise(second, 4_000)));
        }
        recorder.flush(now);
        let sizes = files(folder.path()).into_iter();
        let bytes: u64 = sizes
            .map(|file| file.metadata().expect("a file").len())
            .sum();
        assert!(bytes <= limit, "{bytes} bytes after {second} s");
        fullest = fullest.max(bytes);
    }
    assert!(fullest > limit * 8 / 10, "{fullest}: the limit is used");
    let kept = bodies(folder.path());
    let seconds: Vec<u64> = kept
        .iter()
        .map(|body| {
            body.split(' ')
                .next()
                .expect("a second")
                .parse()
                .expect("a number")
        })
        .collect();
    let first = *seconds.first().expect("scrapes");
    assert!(first > 100, "{seconds:?}");
    assert!(seconds.iter().copied().eq(first..200), "{seconds:?}");
    // Of the five versions of the fabric, those are left that a scrape needs.
    let pack = Pack::open(&folder.path().join("rec")).expect("a pack");
    let versions: Vec<_> = pack.fabric.iter().filter_map(|file| file.from).collect();
    let is_needed = |pair: &[Timestamp]| pair[1] > at(first * 1_000);
    assert!(versions.windows(2).all(is_needed), "{versions:?}");
    assert!(versions[0] <= at(first * 1_000), "{versions:?}");
    // A batch that can never fit is counted, and the next one is written again.
    recorder.scrape(&n1, at(200_000), Ok(&noise(1, 200_000)));
    recorder.flush(at(200_000));
    recorder.scrape(&n1, at(201_000), Ok("small"));
    recorder.flush(at(201_000));
    let counts: Vec<_> = recorder.counts().collect();
    assert_eq!(counts, [("written", 201), ("dropped", 0), ("failed", 1)]);
    assert_eq!(bodies(folder.path()), ["small"]);
}

#[test]
fn scrapes_older_than_the_limit_are_deleted_segment_by_segment() {
    let (folder, mut config) = configured("");
    config.record.as_mut().expect("a table").max_age = Duration::from_secs(1_800);
    let recorder = recorder(&config);
    let n1 = target("n1");
    recorder.set_targets(std::slice::from_ref(&n1), false, at(0));
    for minute in 0..60 {
        let now = at(minute * 60_000);
        recorder.scrape(&n1, now, Ok(&minute.to_string()));
        recorder.cycle(now, &[]);
        recorder.flush(now);
    }
    let kept = bodies(folder.path());
    // A segment has 10 minutes.
    assert_eq!(kept.first().map(String::as_str), Some("20"));
    assert_eq!(kept.last().map(String::as_str), Some("59"));
    assert_eq!(segments(folder.path()).len(), 4);
    let pack = Pack::open(&folder.path().join("rec")).expect("a pack");
    assert_eq!(
        pack.cycles.len(),
        40,
        "cycles are deleted with their scrapes"
    );
}

#[test]
fn a_kill_loses_the_incomplete_frame_alone() {
    let (folder, config) = configured("");
    let n1 = target("n1");
    let write = |seconds: std::ops::Range<u64>| {
        let recorder = recorder(&config);
        recorder.set_targets(std::slice::from_ref(&n1), false, at(0));
        for second in seconds {
            recorder.scrape(
                &n1,
                at(second * 1_000),
                Ok(&format!("{second} {}", noise(second, 300))),
            );
            recorder.flush(at(second * 1_000));
        }
    };
    write(0..3);
    let [segment] = &*segments(folder.path()) else {
        panic!("one segment");
    };
    let whole = fs::read(segment).expect("a file");
    assert_eq!(bodies(folder.path()).len(), 3);
    // The last four bytes are the checksum.
    for (lost, read) in [(1, 3), (5, 2), (100, 2)] {
        fs::write(segment, &whole[..whole.len() - lost]).expect("written");
        assert_eq!(bodies(folder.path()).len(), read, "{lost} bytes less");
    }
    // The collector starts again: its scrapes are in a new segment, and those before it stay.
    write(5..7);
    let firsts: Vec<_> = bodies(folder.path())
        .iter()
        .map(|body| body.split(' ').next().expect("a second").to_owned())
        .collect();
    assert_eq!(firsts, ["0", "1", "5", "6"]);
    // Anything else than an incomplete end is an error.
    let frame = whole
        .windows(4)
        .rposition(|four| four == [0x28, 0xb5, 0x2f, 0xfd]);
    let mut damaged = whole.clone();
    damaged[frame.expect("a frame")] = 0;
    fs::write(segment, &damaged).expect("written");
    let last = scrapes(folder.path()).pop().expect("a line");
    let error = last.expect_err("damaged").to_string();
    assert!(
        error.contains("line 3: expected more of the zstd frame"),
        "{error}"
    );
    // In a pack of one file it is an error, too.
    let one = folder.path().join("rec/scrapes.jsonl.zst");
    fs::write(&one, &whole).expect("written");
    assert_eq!(bodies(folder.path()).len(), 3, "frames one after the other");
    fs::write(&one, &whole[..whole.len() - 1]).expect("written");
    assert!(scrapes(folder.path()).pop().expect("a line").is_err());
}

#[test]
fn an_incomplete_time_of_a_cycle_is_no_cycle() {
    let (folder, config) = configured("");
    let recorder = recorder(&config);
    let n1 = target("n1");
    recorder.set_targets(std::slice::from_ref(&n1), false, at(0));
    recorder.scrape(&n1, at(0), Ok(""));
    recorder.cycle(at(5_137), &[]);
    recorder.cycle(at(10_250), &[]);
    recorder.flush(at(11_000));
    let ticks = folder
        .path()
        .join(format!("rec/ticks.{}.txt", START / 1_000));
    let text = fs::read_to_string(&ticks).expect("a file");
    assert_eq!(text, "1764000005.137\n1764000010.250\n");
    fs::write(&ticks, &text[..text.len() - 5]).expect("written");
    let pack = Pack::open(&folder.path().join("rec")).expect("a pack");
    assert_eq!(pack.cycles, [at(5_137)]);
}

#[test]
fn a_folder_with_another_configuration_is_not_written_to() {
    let (folder, config) = configured("");
    let own = folder.path().join("rec/railscope.toml");
    fs::create_dir(folder.path().join("rec")).expect("a folder");
    fs::write(&own, "[cluster]\nname = \"mine\"").expect("written");
    let recorder = recorder(&config);
    let n1 = target("n1");
    recorder.set_targets(std::slice::from_ref(&n1), false, at(0));
    recorder.scrape(&n1, at(0), Ok("a"));
    recorder.flush(at(0));
    assert_eq!(files(folder.path()), std::slice::from_ref(&own));
    let counts: Vec<_> = recorder.counts().collect();
    assert_eq!(counts, [("written", 0), ("dropped", 0), ("failed", 1)]);
    fs::remove_file(own).expect("removed");
    recorder.scrape(&n1, at(1_000), Ok("b"));
    recorder.flush(at(1_000));
    assert_eq!(bodies(folder.path()), ["b"]);
}

#[test]
fn what_is_not_written_is_bounded_and_the_rest_counted() {
    let (folder, config) = configured("");
    let mut recorder = recorder(&config);
    recorder.most_waiting_bytes = 64_000;
    let n1 = target("n1");
    recorder.set_targets(std::slice::from_ref(&n1), false, at(0));
    let body = "x".repeat(15_000);
    for second in 0..6 {
        recorder.scrape(&n1, at(second * 1_000), Ok(&body));
    }
    assert!(lock(&recorder.waiting).batch.bytes <= 64_000);
    let counts: Vec<_> = recorder.counts().collect();
    assert_eq!(counts, [("written", 0), ("dropped", 2), ("failed", 0)]);
    // Another configuration, so that nothing is written.
    let other = folder.path().join("rec/railscope.toml");
    fs::create_dir(folder.path().join("rec")).expect("a folder");
    fs::write(&other, "").expect("written");
    recorder.flush(at(6_000));
    fs::remove_file(other).expect("removed");
    recorder.scrape(&n1, at(7_000), Ok("after"));
    recorder.flush(at(7_000));
    let counts: Vec<_> = recorder.counts().collect();
    assert_eq!(counts, [("written", 1), ("dropped", 2), ("failed", 4)]);
    assert_eq!(bodies(folder.path()), ["after"]);
}
