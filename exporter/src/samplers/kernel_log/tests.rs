//! The sampler where it reads `/dev/kmsg`, which a test does not have: a file replaces it.

use std::fs::{self, OpenOptions};
use std::io::Write;

use super::*;

#[test]
fn of_the_kernels_own_log_only_what_is_new_counts_and_what_is_old_has_a_time() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let path = temp.path().join("dev/kmsg");
    for folder in ["dev", "proc", "sys"] {
        fs::create_dir(temp.path().join(folder)).expect("mkdir");
    }
    fs::write(temp.path().join("proc/stat"), "btime 1000\n").expect("write");
    fs::write(
        &path,
        "4,1,5000000,-;NVRM: Xid (PCI:0000:19:00): 63, x\n4,2,6000000,-;ib0: link down\n",
    )
    .expect("write");
    let mut log = Log::new(&Machine::below(temp.path()));
    log.log.as_mut().expect("a log").stands_for_device = true;
    let mut sample = || {
        let mut reading = NodeReading::default();
        let presence = log.sample(&mut reading).expect("readable");
        assert_eq!(presence, Presence::Present);
        let values = reading.samples().iter();
        let values = values.filter(|sample| sample.metric != &m::SOURCE_ERRORS);
        values
            .map(|sample| sample.value.as_f64())
            .collect::<Vec<_>>()
    };
    assert_eq!(sample(), [0.0, 1005.0, 0.0, 1006.0]);
    let mut file = OpenOptions::new().append(true).open(&path).expect("open");
    file.write_all(b"4,3,7500000,-;ib0: link down\n")
        .expect("write");
    assert_eq!(sample(), [0.0, 1005.0, 1.0, 1007.5]);
}

#[test]
fn series_stay_bounded_and_none_is_lost() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let mut log = Log::new(&Machine::below(temp.path()));
    for interface in 0..500 {
        let event = events::parse(&format!("eth{interface}: link down")).expect("an event");
        log.take_event(&event, None, true);
    }
    assert_eq!(log.events.len(), MOST_SERIES + 1);
    let sum: u64 = log.events.values().map(|seen| seen.count).sum();
    assert_eq!(sum, 500);
    assert!(log.events.values().all(|seen| seen.at.is_none()));
}
