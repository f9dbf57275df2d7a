//! Sites whose switches alone are scraped: hosts are known as their neighbors.

use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::fabric::Told;
use railscope_model::metric::SWITCH_PORT_UP;
use railscope_model::reading::{Labels, NodeReading};

use super::{at, cables, heard, incidents, node, switch};

/// Two leaves with a host at each of four ports, below one spine; hosts do not report that they do not forward.
fn told(name: &str) -> Told {
    let neighbors = match name {
        "spine" => vec![
            heard("swp1", "leaf-0", "swp49"),
            heard("swp2", "leaf-1", "swp49"),
        ],
        leaf => {
            let rail = &leaf["leaf-".len()..];
            let hosts = (0..4).map(|host| {
                let mut told = heard(
                    &format!("swp{}", host + 1),
                    &format!("gpu-{host}.example"),
                    // As lldpd on hosts: the address as port, the interface as description.
                    &format!("0c:42:a1:00:0{rail}:0{host}"),
                );
                told.description = format!("ens{rail}f0np0");
                told.forwards = None;
                told
            });
            let mut unlisted = heard("swp50", "core", "Ethernet7");
            unlisted.forwards = None;
            let spine = heard(
                "swp49",
                "spine",
                &format!("swp{}", 1 + usize::from(rail == "1")),
            );
            hosts.chain([spine, unlisted]).collect()
        }
    };
    Told {
        neighbors,
        ..Told::default()
    }
}

struct Site {
    analyzer: Analyzer,
    seconds: u64,
}

impl Site {
    fn new() -> Self {
        let mut analyzer = Analyzer::default();
        for name in ["leaf-0", "leaf-1", "spine"] {
            analyzer.take_switch(&switch(name), Ok(told(name)), at(0));
        }
        let seconds = 0;
        Self { analyzer, seconds }
    }

    /// Some ticks, with the ports of leaf-0 that are down.
    fn watch(&mut self, ticks: u64, dark: &[&str]) -> ClusterView {
        for _ in 0..ticks {
            self.seconds += 5;
            for name in ["leaf-0", "leaf-1", "spine"] {
                let mut reading = NodeReading::default();
                for neighbor in told(name).neighbors {
                    let is_dark = name == "leaf-0" && dark.contains(&&*neighbor.local);
                    reading.push(&SWITCH_PORT_UP, &Labels::new([&neighbor.local]), !is_dark);
                }
                let now = at(self.seconds);
                self.analyzer.ingest_switch(&switch(name), &reading, now);
            }
            self.analyzer.tick(at(self.seconds));
        }
        self.analyzer.tick(at(self.seconds))
    }
}

#[test]
fn neighbors_with_an_interface_of_a_host_become_hosts_where_no_host_is_listed() {
    let mut site = Site::new();
    let view = site.watch(2, &[]);
    let all = cables(&view);
    assert_eq!(all.len(), 10, "{all:?}");
    let cable =
        "link/gpu-2.example:ens1f0np0/1: nic/gpu-2.example:ens1f0np0 1 - switch/leaf-1 swp3";
    assert!(all.iter().any(|known| known == cable), "{all:?}");
    assert!(!all.iter().any(|known| known.contains("core")), "{all:?}");
    assert_eq!(view.lldp.strangers.len(), 1, "{:?}", view.lldp.strangers);
    assert_eq!(incidents(&view), [""; 0]);
}

#[test]
fn the_lost_cable_of_such_a_host_is_found_and_its_return_ends_it() {
    let mut site = Site::new();
    site.watch(12, &[]);
    let view = site.watch(12, &["swp3"]);
    assert_eq!(
        incidents(&view),
        ["port-down link/gpu-2.example:ens0f0np0/1"]
    );
    let view = site.watch(60, &[]);
    assert_eq!(incidents(&view), [""; 0]);
}

#[test]
fn strangers_stay_strangers_where_hosts_are_listed() {
    let mut site = Site::new();
    site.analyzer.set_targets(&[node(1)]);
    let view = site.watch(2, &[]);
    assert_eq!(cables(&view).len(), 2);
    assert_eq!(view.lldp.strangers.len(), 5, "{:?}", view.lldp.strangers);
}

#[test]
fn an_interface_that_two_ports_have_as_neighbor_is_nobodys() {
    let mut site = Site::new();
    let mut clones = told("leaf-1");
    for neighbor in &mut clones.neighbors[1..4] {
        // Installed from one image, and slow to learn their names.
        neighbor.system = "ubuntu".to_owned();
    }
    clones.neighbors[0].forwards = Some(true);
    site.analyzer
        .take_switch(&switch("leaf-1"), Ok(clones), at(1));
    let view = site.watch(2, &[]);
    let all = cables(&view);
    // The neighbor that forwards is a switch of which nothing else is known.
    let to_hosts = all.iter().filter(|cable| cable.contains("nic/"));
    assert_eq!(to_hosts.count(), 4, "{all:?}");
}
