//! A leaf-spine of network namespaces with ECMP, real exporters that probe across it: loss shows on the flows that
//! cross the lossy cable and on no others, a slow host as the host's, a dead one as its own.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

#[path = "../exporter/tests/common/namespace.rs"]
#[allow(
    dead_code,
    reason = "the exporter's tests use more of it than this one"
)]
mod namespace;

#[path = "support/cable.rs"]
#[allow(dead_code, reason = "another test uses more of it than this one")]
mod cable;

#[path = "support/leaf_spine.rs"]
mod leaf_spine;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use leaf_spine::{NIC, Running, Site, host_address, trunk_addresses};
use railscope_model::exposition::{Line, parse};

const TEST: &str = "probes_tell_a_lossy_way_from_a_slow_host_and_from_a_dead_one";
/// For anything that is waited for; a busy machine may need long.
const PATIENCE: Duration = Duration::from_secs(90);
const HOSTS: usize = 3;
const FLOWS: u8 = 8;
/// Long, so that a machine that stops for a second loses nothing.
const TIMEOUT_SECONDS: f64 = 3.0;

/// The cable from this leaf to this spine may lose packets upwards. Host 0 is on the first leaf, 1 and 2 on the second.
const LOSSY: (usize, usize) = (0, 1);

/// By this address the spine replies to host 0.
fn spine_address(spine: usize) -> String {
    let [_, of_spine] = trunk_addresses(0, spine);
    of_spine
}

/// Addresses and paths for IPv6, by the first spine only.
fn route_v6(site: &Site) {
    for host in 0..HOSTS {
        let (leaf, net) = (
            &site.leaves[usize::from(host > 0)],
            format!("fd00:0:0:{}:", host + 1),
        );
        site.hosts[host].ip(&format!("-6 addr add {net}:2/64 dev {NIC} nodad"));
        leaf.ip(&format!("-6 addr add {net}:1/64 dev down{host} nodad"));
        site.hosts[host].ip(&format!("-6 route add default via {net}:1"));
    }
    let spine = &site.spines[0];
    for (leaf, near) in site.leaves.iter().enumerate() {
        let net = format!("fd00:0:0:9{leaf}:");
        near.ip(&format!("-6 addr add {net}:1/64 dev up0 nodad"));
        spine.ip(&format!("-6 addr add {net}:2/64 dev down{leaf} nodad"));
        let (below, beyond): (&[usize], &[usize]) = match leaf {
            0 => (&[1], &[2, 3]),
            _ => (&[2, 3], &[1]),
        };
        for host in below {
            spine.ip(&format!("-6 route add fd00:0:0:{host}::/64 via {net}:1"));
        }
        for host in beyond {
            near.ip(&format!("-6 route add fd00:0:0:{host}::/64 via {net}:2"));
        }
    }
}

impl Running<'_> {
    /// The full profile; none while it is not up yet.
    fn page(&self) -> Option<String> {
        self.get(10660, "/metrics?profile=full")
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status();
        assert!(sent.expect("kill").success());
    }
}

/// What host 0 reports of one flow.
#[derive(Debug, Clone, Default)]
struct Flow {
    sent: u64,
    lost: u64,
    slow: u64,
    hops: BTreeMap<u8, String>,
}

impl Flow {
    fn crosses(&self, spine: usize) -> bool {
        self.hops.get(&2) == Some(&spine_address(spine))
    }
}

/// What host 0 reports of its flows, by peer and number.
type Flows = BTreeMap<(String, u8), Flow>;

fn flows(page: &str) -> Flows {
    let mut flows = Flows::new();
    for line in parse(page) {
        let Ok(Line::Series(series)) = line else {
            continue;
        };
        let label = |name| series.label(name).map(Cow::into_owned);
        let (Some(peer), Some(number)) = (label("peer_node"), label("flow")) else {
            continue;
        };
        let number = number.parse().expect("a number");
        let flow = flows.entry((peer, number)).or_default();
        match series.name {
            "railscope_probe_flow_sent_total" => flow.sent = series.value as u64,
            "railscope_probe_flow_lost_total" => flow.lost = series.value as u64,
            "railscope_probe_flow_slow_total" => flow.slow = series.value as u64,
            "railscope_probe_hop_info" => {
                let hop = label("hop").expect("a hop").parse().expect("a number");
                flow.hops.insert(hop, label("address").expect("an address"));
            }
            other => panic!("{other}"),
        }
    }
    flows
}

/// The values of series of this name, by their label text.
fn values(page: &str, name: &str) -> BTreeMap<String, f64> {
    let series = parse(page).filter_map(|line| match line {
        Ok(Line::Series(series)) if series.name == name => {
            Some((series.raw_labels().to_owned(), series.value))
        }
        _ => None,
    });
    series.collect()
}

/// Probes of a peer that spent more than 0.1 s in the responder.
fn long_stays(page: &str) -> f64 {
    let of = |word: &str| {
        let name = format!("railscope_probe_responder_seconds_{word}");
        values(page, &name)
    };
    let below = of("bucket");
    let below = below
        .iter()
        .find(|(labels, _)| labels.contains("le=\"0.1\""));
    of("count").values().sum::<f64>() - below.map_or(0.0, |(_, value)| *value)
}

/// Scrapes until the flows are as expected.
fn wait(from: &Running<'_>, what: &str, done: impl Fn(&Flows) -> bool) -> Flows {
    let begun = Instant::now();
    loop {
        let flows = from.page().map(|page| flows(&page)).unwrap_or_default();
        if done(&flows) {
            println!("{what} after {:?}", begun.elapsed());
            return flows;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: {flows:#?}");
        thread::sleep(Duration::from_millis(300));
    }
}

/// How much each flow has sent and lost since.
fn since(before: &Flows, now: &Flows) -> BTreeMap<(String, u8), (u64, u64)> {
    let risen = now.iter().filter_map(|(flow, now)| {
        let before = before.get(flow)?;
        Some((
            flow.clone(),
            (now.sent - before.sent, now.lost - before.lost),
        ))
    });
    risen.collect()
}

fn write_list(path: &Path, peers: &[usize]) {
    let targets = peers.iter().map(|peer| {
        format!(
            r#"{{"device":"{NIC}","peer_node":"host{peer}","peer_device":"{NIC}","address":"{}:10661","flows":{FLOWS}}}"#,
            host_address(*peer)
        )
    });
    let v6 = format!(
        r#"{{"device":"{NIC}","peer_node":"host2v6","peer_device":"{NIC}","address":"[fd00:0:0:3::2]:10661","flows":1}}"#
    );
    let targets: Vec<_> = targets.chain([v6]).collect();
    let text = format!(
        r#"{{"interval_seconds":0.05,"timeout_seconds":{TIMEOUT_SECONDS},"slow_seconds":0.4,"dscp":26,"targets":[{}]}}"#,
        targets.join(",")
    );
    fs::write(path, text).expect("write");
}

#[test]
fn probes_tell_a_lossy_way_from_a_slow_host_and_from_a_dead_one() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let Some(site) = Site::build(TEST, &[1, HOSTS - 1], &[LOSSY]) else {
        return;
    };
    route_v6(&site);
    let list: PathBuf = folder.path().join("list.json");
    write_list(&list, &[1, 2]);
    let place = list.display().to_string();
    let everybody = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), everybody).expect("chmod");
    let mut others: Vec<_> = site.hosts[1..]
        .iter()
        .map(|host| Running::exporter(host, folder.path(), &[]))
        .collect();
    let prober = Running::exporter(&site.hosts[0], folder.path(), &["--probe.list", &place]);
    let all = 2 * usize::from(FLOWS) + 1;
    let start = wait(&prober, "hops of all flows", |flows| {
        let known = flows.values().filter(|flow| flow.hops.len() == 3);
        known.count() == all && flows.values().all(|flow| flow.sent > 0)
    });
    let page = prober.page().expect("a page");
    let status = values(&page, "railscope_source_status");
    assert!(
        status.contains_key(r#"source="prober",device="",status="ok""#),
        "{status:#?}"
    );
    let spines: BTreeSet<_> = start.values().map(|flow| flow.crosses(1)).collect();
    assert_eq!(spines.len(), 2, "flows take both spines: {start:#?}");

    let v6 = &start[&("host2v6".to_owned(), 0)].hops;
    let v6: Vec<_> = v6.values().map(String::as_str).collect();
    assert_eq!(v6, ["fd00:0:0:1::1", "fd00:0:0:90::2", "fd00:0:0:91::1"]);

    lossy_cable(&site, &prober);
    slow_host(&prober, &others);
    dead_host(&prober, &mut others);

    let before = wait(&prober, "a page", |flows| flows.len() == all);
    write_list(&list, &[2]);
    let left = wait(&prober, "a shorter list", |flows| {
        flows.len() == usize::from(FLOWS) + 1
    });
    for (flow, now) in &left {
        assert!(now.sent >= before[flow].sent, "{flow:?} began anew");
    }
}

/// Flows that cross the lossy cable lose what it loses, and no others lose anything.
fn lossy_cable(site: &Site, prober: &Running<'_>) {
    let before = wait(prober, "a page", |flows| !flows.is_empty());
    let lossy = &site.carried[&LOSSY];
    lossy.lose(20);
    wait(prober, "120 probes of each flow", |flows| {
        since(&before, flows).values().all(|(sent, _)| *sent >= 120)
    });
    lossy.lose(0);
    let lost = |flows: &Flows| {
        let since = since(&before, flows);
        since.values().map(|(_, lost)| lost).sum::<u64>()
    };
    let after = wait(prober, "what was lost is told", |flows| {
        lost(flows) >= lossy.lost()
    });
    let dropped = lossy.lost();
    assert_eq!(lost(&after), dropped, "each lost packet is one lost probe");
    for (flow, (sent, lost)) in since(&before, &after) {
        let share = lost as f64 / sent as f64;
        let expected = if before[&flow].crosses(1) {
            0.05..0.4
        } else {
            0.0..f64::MIN_POSITIVE
        };
        assert!(expected.contains(&share), "{flow:?}: {lost} of {sent}");
    }
}

/// A host that stops for a while shows in its own time, and neither as loss nor as a slow path.
fn slow_host(prober: &Running<'_>, others: &[Running<'_>]) {
    let before = wait(prober, "a page", |flows| !flows.is_empty());
    let stays = |host: usize| others[host].page().map_or(0.0, |page| long_stays(&page));
    let quiet = stays(1);
    for _ in 0..4 {
        others[0].signal("-STOP");
        thread::sleep(Duration::from_millis(600));
        others[0].signal("-CONT");
        thread::sleep(Duration::from_millis(100));
    }
    let begun = Instant::now();
    while stays(0) < 20.0 {
        assert!(begun.elapsed() < PATIENCE, "{} long stays", stays(0));
        thread::sleep(Duration::from_millis(300));
    }
    println!(
        "long stays: {} in the slow host, {} in the other",
        stays(0),
        stays(1) - quiet
    );
    let after = wait(prober, "more probes", |flows| {
        since(&before, flows).values().all(|(sent, _)| *sent >= 60)
    });
    for (flow, now) in &after {
        assert_eq!(now.lost, before[flow].lost, "{flow:?}");
        assert_eq!(now.slow, before[flow].slow, "{flow:?}");
    }
}

/// All flows to a host that is dead are lost, and no others.
fn dead_host(prober: &Running<'_>, others: &mut Vec<Running<'_>>) {
    let before = wait(prober, "a page", |flows| !flows.is_empty());
    drop(others.remove(0));
    let to = |flow: &(String, u8)| flow.0 == "host1";
    let after = wait(prober, "a dead host", |flows| {
        let since = since(&before, flows);
        since
            .iter()
            .all(|(flow, (_, lost))| !to(flow) || *lost >= 20)
    });
    for (flow, (sent, lost)) in since(&before, &after) {
        if !to(&flow) {
            assert_eq!(lost, 0, "{flow:?} of {sent}");
        }
    }
}
