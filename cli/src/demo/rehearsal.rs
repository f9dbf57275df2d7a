//! A run of the simulator before the collector's own analysis, without processes: for tests of what is found.

use std::time::Duration;

use railscope_collector::analyzer::Analyzer;
use railscope_collector::classes::Severity;
use railscope_collector::config::Target;
use railscope_collector::fabric::lldp::text::parse_neighbors;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_collector::mapping::{Mappings, Reader};
use railscope_collector::store::source_id::Subject;
use railscope_model::fabric::Timestamp;
use railscope_simulator::cluster::Cluster;
use railscope_simulator::faults::{Fault, Truth};
use railscope_simulator::show::ibnetdiscover::ibnetdiscover;
use railscope_simulator::show::lldp;
use railscope_simulator::show::readings::{Exporters, Probing};
use railscope_simulator::spec::Transport;

use super::switches::Counted;
use crate::eval::simulate::known_addresses;

/// Start time of every run: arbitrary.
const START: Timestamp = Timestamp(1_800_000_000_000);
/// Seconds between two scrapes and analysis cycles, as in the demo.
const TICK_SECONDS: u64 = 2;

/// A seed that is another in every run, printed so that a failure can be repeated: `RAILSCOPE_SEED` sets it.
pub(super) fn drawn_seed() -> u64 {
    let given = std::env::var("RAILSCOPE_SEED");
    let seed = given.map_or(super::clock::now().0 % 1_000_000, |seed| {
        seed.parse().expect("RAILSCOPE_SEED is a number")
    });
    println!("drawn seed: RAILSCOPE_SEED={seed}");
    seed
}

/// An incident that opened.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Heard {
    pub(super) part: String,
    pub(super) class: &'static str,
    pub(super) pages: bool,
    /// When, seconds after the start.
    pub(super) seconds: u64,
}

/// Injects faults at their times, in seconds, and reports the ground truth and what was
/// seen.
pub(super) fn rehearse(
    mut cluster: Cluster,
    probing: Probing,
    faults: impl IntoIterator<Item = (Fault, f64)>,
    seconds: u64,
) -> (Vec<Truth>, Vec<Heard>) {
    let truths = faults
        .into_iter()
        .map(|(fault, onset_seconds)| {
            let fault = Fault {
                onset_seconds,
                ..fault
            };
            cluster
                .inject(fault)
                .expect("a fault that the cluster can have")
        })
        .collect();
    let mut exporters = Exporters::of(&cluster).probing(&cluster, probing);
    let mut analyzer = Analyzer::default();
    analyzer.set_addresses(known_addresses(cluster.plan()));
    analyzer.set_targets(exporters.names());
    let reader = |counted: Counted| {
        let about = match &counted {
            Counted::Switch(name) => Some(Subject::Switch(name.clone())),
            Counted::Subnet => None,
        };
        let target = Target {
            about,
            kind: Some(counted.kind().into()),
            url: counted.url("http://demo").expect("an address").into(),
        };
        (counted, Reader::new(target.into(), Mappings::default()))
    };
    let mut switches: Vec<_> = Counted::all(&cluster).into_iter().map(reader).collect();
    let (mut swept, mut heard) = (None, Vec::<Heard>::new());
    for second in (0..=seconds).step_by(TICK_SECONDS as usize) {
        let at = START.plus_seconds(second as f64);
        cluster.advance(Duration::from_secs(second));
        exporters.probe(&cluster);
        if swept.as_ref() != Some(cluster.wiring()) {
            if cluster.spec().transport == Transport::Infiniband {
                let subnet = parse_ibnetdiscover(&ibnetdiscover(cluster.wiring(), at));
                analyzer.take_subnet(subnet, at);
            }
            // Only switches of an Ethernet report any.
            for (switch, text) in lldp::switches(&cluster) {
                analyzer.take_switch(&switch, parse_neighbors(&text), at);
            }
            swept = Some(cluster.wiring().clone());
        }
        for (counted, reader) in &mut switches {
            let Some(page) = counted.page(&cluster) else {
                continue; // a switch without an optical signal
            };
            let (speaker, said) = reader.read(&page, at).expect("their scrape body");
            for (subject, reading) in &said.readings {
                analyzer.ingest_from(&speaker, subject, reading, at, false);
            }
        }
        for (name, reading) in exporters.read(&cluster) {
            analyzer.ingest_reading(name, &reading, at);
        }
        for incident in analyzer.tick(at).incidents {
            let now = Heard {
                part: incident.root.to_string(),
                class: incident.class.name,
                pages: incident.severity == Severity::Critical,
                seconds: second,
            };
            let known = |before: &Heard| (&before.part, before.class) == (&now.part, now.class);
            if !heard.iter().any(known) {
                heard.push(now);
            }
        }
    }
    (truths, heard)
}
