//! What the collector keeps of a fabric over time and over a restart.
use crate::topology_net as net;

use std::fs;

use net::Net;
use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::assemble::changes::{ChangeLog, KEPT_CHANGES, Logged};
use railscope_collector::fabric::Change;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_collector::persist::fabric_file::{StateError, load, save};
use railscope_model::fabric::Timestamp;

/// Two leaves of four hosts each under two spines, but for one cable: leaf, spine.
fn text(without: Option<(usize, usize)>) -> String {
    let mut net = Net::default();
    let spines: Vec<_> = (0..2).map(|n| net.switch(&format!("spine-{n}"))).collect();
    for leaf in 0..2 {
        let switch = net.switch(&format!("leaf-{leaf}"));
        spines.iter().for_each(|spine| net.link(switch, *spine));
        for host in 0..4 {
            net.host(switch, &format!("n{leaf}{host} mlx5_0"));
        }
    }
    let Some((leaf, spine)) = without else {
        return net.text();
    };
    let ends = [format!("\"leaf-{leaf}\""), format!("\"spine-{spine}\"")];
    let blocks = net.text();
    let blocks = blocks.split("\n\n").map(|block| {
        let own = |line: &&str| line.starts_with("Switch");
        let at = block.lines().find(own).unwrap_or_default();
        let far = [(0, 1), (1, 0)]
            .into_iter()
            .find(|(own, _)| at.contains(&ends[*own]));
        let keeps = |line: &&str| {
            far.is_none_or(|(_, far)| !(line.starts_with('[') && line.contains(&ends[far])))
        };
        block.lines().filter(keeps).collect::<Vec<_>>().join("\n")
    });
    blocks.collect::<Vec<_>>().join("\n\n")
}

fn at(seconds: u64) -> Timestamp {
    Timestamp(1_700_000_000_000 + 1000 * seconds)
}

fn see(analyzer: &mut Analyzer, text: &str, seconds: u64) -> ClusterView {
    analyzer.take_subnet(parse_ibnetdiscover(text), at(seconds));
    analyzer.tick(at(seconds))
}

fn changes(view: &ClusterView) -> Vec<(Timestamp, &Change)> {
    let entries = view.changes.entries.iter();
    entries.map(|logged| (logged.at, &logged.change)).collect()
}

/// The cable from the second leaf to the second spine, and when it was last seen.
fn cable(view: &ClusterView) -> (bool, Timestamp) {
    let spine = "switch/spine-1".parse().expect("a part");
    let leaf = "switch/leaf-1".parse().expect("a part");
    let spine = view.fabric.find(&spine).expect("the spine");
    let leaf = view.fabric.find(&leaf).expect("the leaf");
    let mut near = view
        .fabric
        .neighbors(spine)
        .filter(|near| near.peer == leaf);
    let link = near.next().expect("the cable").link;
    (link.is_present(), link.seen())
}

#[test]
fn a_flapping_cable_is_two_changes_and_the_first_sight_of_a_fabric_is_none() {
    let mut analyzer = Analyzer::default();
    let (whole, torn) = (text(None), text(Some((1, 1))));
    assert_eq!(changes(&see(&mut analyzer, &whole, 0)), []);
    assert_eq!(changes(&see(&mut analyzer, &whole, 30)), []);
    see(&mut analyzer, &torn, 60);
    let view = see(&mut analyzer, &whole, 90);
    let [
        (gone, Change::CableWent(went)),
        (back, Change::CableCame(came)),
    ] = changes(&view)[..]
    else {
        unreachable!("{:?}", changes(&view));
    };
    assert_eq!((gone, back), (at(60), at(90)));
    assert_eq!(went, came, "the same cable under the same names");
}

#[test]
fn a_restart_knows_the_cable_that_was_lost_before_and_the_one_that_went_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut analyzer = Analyzer::default();
    see(&mut analyzer, &text(None), 0);
    let before = see(&mut analyzer, &text(Some((1, 1))), 60);
    assert_eq!(cable(&before), (false, at(0)));
    save(folder.path(), &before).expect("written");

    let past = load(folder.path()).expect("readable").expect("there");
    assert_eq!((past.at, &past.changes), (at(60), &*before.changes));
    let mut restarted = Analyzer::default();
    restarted.restore(past.fabric, past.changes);
    let unread = restarted.tick(at(1000));
    assert_eq!(
        unread.fabric.links().count(),
        0,
        "nothing is lost before a sweep was read"
    );
    let after = see(&mut restarted, &text(Some((0, 0))), 1060);
    let words: Vec<_> = changes(&after).into_iter().map(|(when, _)| when).collect();
    assert_eq!(
        words,
        [at(60), at(1060), at(1060)],
        "one went before, one went and one came since"
    );
    assert_eq!(cable(&after), (true, at(1060)));
    let lost = after.fabric.links().filter(|(.., link)| !link.is_present());
    let ages: Vec<_> = lost.map(|(.., link)| link.seen()).collect();
    assert_eq!(ages, [at(60)], "last seen in the sweep before the restart");
}

#[test]
fn a_file_that_cannot_be_understood_is_an_error_with_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(load(folder.path()).expect("nothing there").is_none());
    let view = see(&mut Analyzer::default(), &text(None), 0);
    save(folder.path(), &view).expect("written");
    let file = folder.path().join("topology.json");
    let whole = fs::read_to_string(&file).expect("text");
    for (broken, said) in [
        (whole[..whole.len() / 2].to_owned(), "line 1 column"),
        (
            whole.replacen("\"version\":1", "\"version\":2", 1),
            "version 2",
        ),
        (
            whole.replacen("\"ends\":[0,", "\"ends\":[4294967295,", 1),
            "none of the",
        ),
        (whole.replacen("4xNDR", "4xWARP", 1), "links["),
        (whole.replacen("\"subnet\"", "\"rumour\"", 1), "witness"),
        (String::new(), "EOF"),
    ] {
        fs::write(&file, &broken).expect("written");
        match load(folder.path()) {
            Err(StateError::Content { message, .. }) => {
                assert!(message.contains(said), "{message:?} does not say {said:?}");
            }
            other => unreachable!("{said}: {other:?}"),
        }
    }
}

#[test]
fn a_write_that_fails_leaves_the_old_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut analyzer = Analyzer::default();
    let view = see(&mut analyzer, &text(None), 0);
    save(folder.path(), &view).expect("written");
    fs::create_dir(folder.path().join("topology.json.new")).expect("in the way");
    let torn = see(&mut analyzer, &text(Some((1, 1))), 60);
    assert!(save(folder.path(), &torn).is_err());
    let past = load(folder.path()).expect("readable").expect("there");
    assert_eq!(past.at, at(0));
}

#[test]
fn the_log_is_bounded_and_counts_what_it_forgot() {
    let mut log = ChangeLog::default();
    for number in 0..KEPT_CHANGES as u64 + 3 {
        let part = format!("host/n{number}").parse().expect("a part");
        let change = Change::PartCame(part);
        log.push(Logged {
            at: at(number),
            change,
        });
    }
    assert_eq!((log.entries.len(), log.forgotten), (KEPT_CHANGES, 3));
    assert_eq!(log.entries.front().map(|logged| logged.at), Some(at(3)));
}
