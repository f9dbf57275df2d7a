//! Switches whose exporters alone tell of their cables, and that start again.

use railscope_model::metric::{LLDP_NEIGHBOR, SWITCH_PORT_UP};
use railscope_model::reading::{Labels, NodeReading};

use super::{Cluster, NODES, RAILS, at, incidents, switch};

/// What the exporter of a leaf, or of the spine, reports of its ports and their neighbors; hosts report none.
fn told_by_exporter(name: &str, dark: bool) -> NodeReading {
    let mut reading = NodeReading::default();
    let uplink = |leaf: usize| {
        (
            format!("swp{}", leaf + 1),
            format!("leaf-{leaf}"),
            "swp49".to_owned(),
        )
    };
    let ends: Vec<(String, String, String)> = match name.strip_prefix("leaf-") {
        Some(rail) => {
            let host = |node| {
                (
                    format!("swp{}", node + 1),
                    format!("n{node}"),
                    format!("eth{rail}"),
                )
            };
            let rail: usize = rail.parse().expect("a number");
            let up = (
                "swp49".to_owned(),
                "spine-0".to_owned(),
                format!("swp{}", rail + 1),
            );
            (0..NODES).map(host).chain([up]).collect()
        }
        None => (0..RAILS).map(uplink).collect(),
    };
    for (local, system, port) in ends {
        let is_dark = dark && system == "leaf-1";
        reading.push(&SWITCH_PORT_UP, &Labels::new([&local]), !is_dark);
        if !is_dark {
            let chassis = format!("chassis of {system}");
            let labels = [&*local, &*chassis, &*port, &*system, ""];
            reading.push(&LLDP_NEIGHBOR, &Labels::new(labels), true);
        }
    }
    reading
}

#[test]
fn a_leaf_that_starts_again_is_one_incident_though_nothing_else_tells_of_its_cables() {
    let mut cluster = Cluster::new();
    for ports in cluster.ports.iter_mut().flatten() {
        ports.system.clear();
        ports.chassis.clear();
    }
    // In a settled cluster cables were evaluated long ago.
    for (ticks, is_off) in [(240, false), (3, true), (30, true)] {
        for ports in &mut cluster.ports {
            ports[1].up = !is_off;
        }
        for _ in 0..ticks {
            let on = ["leaf-0", "leaf-1", "spine-0"];
            for name in on.into_iter().filter(|name| !(is_off && *name == "leaf-1")) {
                let now = at(cluster.seconds + 5);
                let reading = told_by_exporter(name, is_off);
                cluster.analyzer.ingest_switch(&switch(name), &reading, now);
            }
            cluster.watch(1);
        }
        let view = cluster.analyzer.tick(at(cluster.seconds));
        let expected: &[&str] = if is_off {
            &["switch-down switch/leaf-1"]
        } else {
            &[]
        };
        assert_eq!(incidents(&view), expected, "{ticks} ticks");
    }
}
