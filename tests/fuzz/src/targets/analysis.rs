//! Data from exporters and jobs, up to incidents and their API output.

use railscope_collector::analyzer::Analyzer;
use railscope_collector::diagnose::incident::Incident;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_collector::sources::collectives::inspector::{Lines, is_dump};
use railscope_model::fabric::Timestamp;
use railscope_model::identity::NodeName;

use super::web::{FABRIC, NOW, show};

/// Separator between two expositions.
const BETWEEN: &str = "\n--\n";
/// Hosts of the fabric; each serves the expositions in turn, starting at another one.
const HOSTS: [&str; 3] = ["gpu-01", "gpu-02", "gpu-03"];
/// Seconds between two scrapes of a host, and how many of them: more than a detector's window of minutes.
const STEP: u64 = 30;
const STEPS: u64 = 8;

fn at(step: u64) -> Timestamp {
    Timestamp(NOW.0 + step * STEP * 1_000)
}

fn analyzer() -> Analyzer {
    let mut analyzer = Analyzer::default();
    analyzer.take_subnet(parse_ibnetdiscover(FABRIC), NOW);
    analyzer
}

/// Expositions of our own exporter: identity, counters, ages, jobs.
pub(crate) fn own_page(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let pages: Vec<_> = text.split(BETWEEN).collect();
    let hosts: Vec<NodeName> = HOSTS.iter().filter_map(|name| name.parse().ok()).collect();
    let mut analyzer = analyzer();
    analyzer.set_targets(&hosts);
    for step in 0..STEPS {
        for (place, host) in hosts.iter().enumerate() {
            let page = pages[(place + step as usize) % pages.len()];
            analyzer.ingest(host, page, at(step));
        }
        let view = analyzer.tick(at(step));
        view.incidents.iter().for_each(shares_the_blame);
        if step + 1 == STEPS {
            show(view);
        }
    }
}

/// The root first, and a total share of at most 1.
fn shares_the_blame(incident: &Incident) {
    let weighed = incident.weighed.as_ref().expect("it was seen in this tick");
    assert_eq!(weighed.candidates[0].part, incident.root);
    let chances = weighed.candidates.iter().map(|one| one.posterior);
    let chances: Vec<f64> = chances.chain([weighed.no_part]).collect();
    assert!(
        chances.iter().all(|chance| (0.0..=1.0).contains(chance)),
        "{weighed:?}"
    );
    assert!(chances.iter().sum::<f64>() <= 1.0 + 1e-9, "{weighed:?}");
}

/// Lines of NCCL's Inspector, then the stragglers.
pub(crate) fn inspector(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    is_dump(&text);
    let (mut reader, mut operations) = (Lines::default(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        match reader.read("rank0.log", number, line) {
            Ok(operation) => operations.extend(operation),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    let mut analyzer = analyzer();
    let half = operations.split_off(operations.len() / 2);
    for (step, operations) in (0..).zip([operations, half]) {
        analyzer.take_collectives(operations, Vec::new(), at(step));
        analyzer.tick(at(step));
    }
}

/// Standard error of `ibnetdiscover`, with the previous sweep still known.
pub(crate) fn complaints(bytes: &[u8]) {
    let older = parse_ibnetdiscover(FABRIC);
    let mut subnet = older.clone();
    subnet.hear_complaints(&String::from_utf8_lossy(bytes));
    subnet.recall(Some(&older));
    subnet.is_settled();
    let mut analyzer = analyzer();
    analyzer.take_subnet(subnet, at(1));
    analyzer.tick(at(1));
}
