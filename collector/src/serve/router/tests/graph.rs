//! The graph at the metrics endpoint is as fine as its series allow, and each cable is in it once.

use railscope_model::metric::{GRAPH_EDGE, GRAPH_VERTEX, GRAPH_VERTEX_FAULTY, Metric};
use railscope_model::reading::NodeReading;

use super::cluster::Cluster;
use super::{faulty, now};
use crate::serve::metrics::graph::push;
use crate::status::State;

const CLUSTER: Cluster = Cluster {
    nodes: 32,
    rails: 8,
    nodes_in_unit: 16,
    spines: 4,
};

fn graph(state: &State, most: usize) -> NodeReading {
    let snapshot = state.snapshot().expect("a tick");
    let mut reading = NodeReading::default();
    push(&mut reading, &snapshot.layout, most);
    reading
}

/// Labels and value of each series of a metric.
fn series(reading: &NodeReading, metric: &Metric) -> Vec<(Vec<String>, f64)> {
    let samples = reading.samples().iter();
    let own = samples.filter(|sample| sample.metric.name == metric.name);
    own.map(|sample| {
        let labels = sample.labels.values().map(str::to_owned).collect();
        (labels, sample.value.as_f64())
    })
    .collect()
}

#[test]
fn it_is_as_fine_as_its_series_allow() {
    let state = CLUSTER.watch(|_, _, page| Some(page), &[], now);
    for (most, vertices, edges) in [
        (0, 0, 0),
        (9, 0, 0),
        // Nodes, leaves, spines.
        (10, 3, 2),
        (17, 3, 2),
        // Of two units nodes and leaves, and the spines.
        (18, 5, 4),
        (203, 5, 4),
        // Nodes of two units, 16 leaves, 4 spines.
        (204, 22, 80),
        (usize::MAX, 22, 80),
    ] {
        let reading = graph(&state, most);
        let found = [&GRAPH_VERTEX, &GRAPH_EDGE].map(|metric| series(&reading, metric));
        assert_eq!(found.each_ref().map(Vec::len), [vertices, edges], "{most}");
        assert!(
            reading.samples().len() <= most,
            "{most}: {}",
            reading.samples().len()
        );
        let sum =
            |series: &[(Vec<String>, f64)]| series.iter().map(|(_, value)| value).sum::<f64>();
        if most >= 10 {
            let cables = state.snapshot().expect("a tick");
            let cables = crate::serve::wire::links(&cables.view)["cable"];
            assert_eq!(
                found.each_ref().map(|series| sum(series)),
                [32.0 + 20.0, cables as f64]
            );
        }
    }
}

#[test]
fn what_is_ill_is_counted_at_its_vertex() {
    let reading = graph(&faulty(CLUSTER), usize::MAX);
    let ill: Vec<_> = series(&reading, &GRAPH_VERTEX_FAULTY)
        .into_iter()
        .filter(|(_, faulty)| *faulty > 0.0)
        .map(|(labels, faulty)| format!("{} {faulty}", labels[0]))
        .collect();
    assert!(
        ill.iter().any(|vertex| vertex.starts_with("nodes/su-1 ")),
        "{ill:?}"
    );
    assert!(ill.contains(&String::from("switch/leaf-03 1")), "{ill:?}");
}
