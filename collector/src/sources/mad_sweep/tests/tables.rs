//! Forwarding tables: which blocks are requested, when, and the result for switches that do not reply.

use std::sync::Mutex;

use super::fake::Seen;
use super::*;

/// The place of each switch of [`leaf_spine`].
const SWITCHES: std::ops::Range<usize> = 4..8;

/// The fabric with tables: hosts have LIDs in two blocks, and each switch forwards by another port.
fn forwarding() -> Vec<Device> {
    let mut devices = leaf_spine();
    devices[3].lid = 200;
    for place in SWITCHES {
        let device = &mut devices[place];
        device.linear = (49_152, 250, false);
        for lid in [1, 2, 3, 100, 200, 250, 251] {
            device.forwards.insert(lid, (lid % 7 + place as u16) as u8);
        }
    }
    devices
}

fn sweeper(devices: Vec<Device>) -> (Sweeper, Arc<Mutex<Seen>>) {
    let fake = Fake::new(devices);
    let seen = Arc::clone(&fake.seen);
    let settings = Settings {
        counters: false,
        forwarding: true,
        ..settings()
    };
    (Sweeper::new(Box::new(fake), settings), seen)
}

/// Questions for blocks of tables so far.
fn blocks(seen: &Mutex<Seen>) -> usize {
    let seen = seen.lock().expect("one thread");
    seen.management.get(&0x19).copied().unwrap_or_default()
}

fn tables(swept: &Swept) -> Vec<u64> {
    let tables = swept
        .forwarding
        .iter()
        .flat_map(|(tables, _)| tables.keys());
    tables.map(|guid| guid.0).collect()
}

#[test]
fn the_blocks_that_hold_lids_of_adapters_are_read_once() {
    let devices = forwarding();
    let (mut sweeper, seen) = sweeper(devices.clone());
    let swept = sweeper.sweep().expect("a sweep");
    assert_eq!(tables(&swept), [0x10, 0x11, 0x20, 0x21]);
    // LIDs 1 to 3 in the first block, 200 in the fourth; the others are not requested.
    assert_eq!(blocks(&seen), 4 * 2);
    let (tables, _) = swept.forwarding.as_ref().expect("tables");
    for place in SWITCHES {
        let table = &tables[&Guid(devices[place].guid)];
        let entries: Vec<_> = table.entries().collect();
        let port = |lid: u16| (lid, (lid % 7 + place as u16) as u8);
        // 100 is in no block that was requested, and 251 above the highest that is in use.
        assert_eq!(entries, [1, 2, 3, 200, 250].map(port));
    }
    let again = sweeper.sweep().expect("a sweep");
    assert_eq!(
        again.forwarding.map(|(tables, _)| tables),
        swept.forwarding.map(|(tables, _)| tables)
    );
    assert_eq!(blocks(&seen), 4 * 2);
    assert_eq!(again.stats.unanswered, 0);
}

#[test]
fn a_switch_that_does_not_answer_costs_its_own_table_only() {
    for attribute in [0x12, 0x19] {
        for refuses in [false, true] {
            let mut devices = forwarding();
            let mute = match refuses {
                true => &mut devices[6].refuses,
                false => &mut devices[6].mute,
            };
            mute.insert(attribute);
            let (mut sweeper, _) = sweeper(devices);
            let swept = sweeper.sweep().expect("a sweep");
            assert_eq!(tables(&swept), [0x10, 0x11, 0x21]);
            assert_eq!(swept.subnet.completeness.gaps(), []);
        }
    }
}

#[test]
fn a_switch_whose_change_the_subnet_manager_has_not_seen_or_that_has_no_such_table_has_none() {
    for linear in [(49_152, 250, true), (0, 250, false)] {
        let mut devices = forwarding();
        devices[5].linear = linear;
        let (mut sweeper, _) = sweeper(devices);
        assert_eq!(
            tables(&sweeper.sweep().expect("a sweep")),
            [0x10, 0x20, 0x21]
        );
    }
}

#[test]
fn a_table_lasts_until_the_subnet_changes_and_is_read_again_when_it_has_settled() {
    let mut known = KnownTables::default();
    let begin = Instant::now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    let whole = sweep(Fake::new(forwarding())).subnet;
    let mut cut = whole.clone();
    cut.links.pop();
    let mut other_lid = whole.clone();
    other_lid.lids[0].1 = 77;
    for (what, subnet, seconds, may_read) in [
        ("the first sweep", &whole, 0, true),
        ("the same", &whole, 30, true),
        ("a cable is gone", &cut, 60, false),
        ("it stays so", &cut, 90, true),
        ("it is back", &whole, 120, false),
        ("the same", &whole, 150, true),
        ("another LID", &other_lid, 180, false),
    ] {
        assert_eq!(known.may_read(subnet, at(seconds)), may_read, "{what}");
        assert!(known.current(at(seconds)).is_none());
    }
}

#[test]
fn a_change_drops_all_tables_until_they_were_read_again() {
    let (mut sweeper, seen) = sweeper(forwarding());
    assert_eq!(tables(&sweeper.sweep().expect("a sweep")).len(), 4);
    // What the next sweep finds is another shape than what is known.
    let mut other = sweep(Fake::new(forwarding())).subnet;
    other.links.pop();
    assert!(!sweeper.known_tables.may_read(&other, Instant::now()));
    assert_eq!(sweeper.sweep().expect("a sweep").forwarding, None);
    assert_eq!(blocks(&seen), 4 * 2);
    assert_eq!(tables(&sweeper.sweep().expect("a sweep")).len(), 4);
    assert_eq!(blocks(&seen), 2 * 4 * 2);
}
