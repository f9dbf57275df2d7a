//! A synthetic cluster: rail-optimized, every unit behind separate leaves, as exporters and ibnetdiscover show
//! it.

use std::fmt::Write;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::NodeName;

use crate::analyzer::Analyzer;
use crate::config::{Config, Target};
use crate::fabric::subnet::parse_ibnetdiscover;
use crate::status::{Clock, ScrapeResult, Snapshot, State};

/// When the cluster was begun to be watched.
pub(super) const START: u64 = 1_700_000_000;
/// Seconds until the newest tick.
pub(super) const SEEN: u64 = 900;

/// How large the cluster is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cluster {
    pub(super) nodes: usize,
    pub(super) rails: usize,
    pub(super) nodes_in_unit: usize,
    pub(super) spines: usize,
}

/// Cables, as the line of one end shows them, that are gone from the subnet in the end.
pub(super) type Lost<'a> = &'a [(&'a str, u16)];

impl Cluster {
    pub(super) fn name(index: usize) -> NodeName {
        format!("gpu-{:03}", index + 1).parse().expect("a name")
    }

    fn leaf(self, unit: usize, rail: usize) -> String {
        format!("leaf-{:02}", unit * self.rails + rail + 1)
    }

    fn units(self) -> usize {
        self.nodes.div_ceil(self.nodes_in_unit)
    }

    /// What ibnetdiscover prints: cables by their ends, each node with its lines.
    pub(super) fn subnet(self, lost: Lost<'_>) -> String {
        let mut cables: Vec<[(String, u16, String); 2]> = Vec::new();
        let switch = |name: String, number: usize| (format!("S-{:016x}", 0xa000 + number), name);
        for index in 0..self.nodes {
            for rail in 0..self.rails {
                let unit = index / self.nodes_in_unit;
                let (leaf, name) = switch(self.leaf(unit, rail), unit * self.rails + rail);
                let port = index % self.nodes_in_unit + 1;
                let nic = format!("{} mlx5_{rail}", Self::name(index));
                let hca = format!("H-{:016x}", 0x10_0000 + 16 * index + rail);
                cables.push([(hca, 1, nic), (leaf, port as u16, name)]);
            }
        }
        for leaf in 0..self.units() * self.rails {
            for spine in 0..self.spines {
                let (upper, upper_name) = switch(format!("spine-{:02}", spine + 1), 0x1000 + spine);
                let (lower, lower_name) = switch(self.leaf(0, leaf), leaf);
                cables.push([
                    (lower, 41 + spine as u16, lower_name),
                    (upper, leaf as u16 + 1, upper_name),
                ]);
            }
        }
        cables.retain(|ends| {
            !ends
                .iter()
                .any(|(_, port, name)| lost.contains(&(name, *port)))
        });
        print(&cables)
    }

    /// A healthy scrape of one node, `seconds` after the start.
    pub(super) fn page(self, index: usize, seconds: u64) -> String {
        let mut page = String::new();
        for rail in 0..self.rails {
            let (nic, gpu) = (
                format!("0000:{:02x}:00.0", 0x10 + rail),
                format!("0000:{:02x}:00.0", 0x40 + rail),
            );
            let guid = 0x10_0000 + 16 * index + rail;
            let lines = format!(
                "rdma_port_info{{device=\"mlx5_{rail}\",port=\"1\",pci=\"{nic}\",netdev=\"\",node_guid=\"{guid:#018x}\",port_guid=\"\",link_layer=\"InfiniBand\",driver=\"mlx5_core\",numa_node=\"0\"}} 1\n\
                 rdma_port_up{{device=\"mlx5_{rail}\",port=\"1\"}} 1\n\
                 rdma_port_speed_bytes_per_second{{device=\"mlx5_{rail}\",port=\"1\"}} 5e10\n\
                 rdma_port_errors_total{{device=\"mlx5_{rail}\",port=\"1\",kind=\"symbol_error\"}} 0\n\
                 pcie_path_info{{pci=\"{nic}\",kind=\"nic\",name=\"mlx5_{rail}\",parent=\"\",root_port=\"\",numa_node=\"0\"}} 1\n\
                 pcie_path_info{{pci=\"{gpu}\",kind=\"gpu\",name=\"{rail}\",parent=\"\",root_port=\"\",numa_node=\"0\"}} 1\n\
                 pcie_link_width_lanes{{pci=\"{nic}\"}} 16\n\
                 pcie_link_max_width_lanes{{pci=\"{nic}\"}} 16\n\
                 gpu_info{{gpu=\"{rail}\",uuid=\"GPU-{index}-{rail}\",pci=\"{gpu}\",name=\"H100\",serial=\"\",vbios=\"\",driver=\"\",architecture=\"\",numa_node=\"0\"}} 1\n\
                 gpu_nic_info{{gpu=\"{rail}\",device=\"mlx5_{rail}\",hop=\"PIX\",nearest=\"true\"}} 1\n\
                 gpu_utilization_ratio{{gpu=\"{rail}\"}} 1\n\
                 gpu_clock_hertz{{gpu=\"{rail}\",clock=\"sm\"}} 1.98e9\n\
                 gpu_clock_event_seconds_total{{gpu=\"{rail}\",reason=\"hw_thermal\"}} 0\n\
                 gpu_energy_joules_total{{gpu=\"{rail}\"}} {seconds}\n"
            );
            // Two nodes have a job.
            if (2..4).contains(&index) {
                page += &format!(
                    "railscope_workload_info{{gpu=\"{rail}\",mig=\"\",device=\"\",pci=\"{gpu}\",claim=\"\",namespace=\"\",workload=\"\",container=\"\",hpc_job=\"4711\"}} 1\n"
                );
            }
            lines
                .lines()
                .for_each(|line| page += &format!("railscope_{line}\n"));
        }
        page
    }

    /// Watches the cluster for a quarter of an hour, of which the last five minutes have the faults:
    /// changed scrapes (by node, and seconds since the fault), and lost cables.
    pub(super) fn watch(
        self,
        change: impl Fn(usize, u64, String) -> Option<String>,
        lost: Lost<'_>,
        clock: Clock,
    ) -> State {
        let config = Config {
            cluster: String::from("alpha"),
            ..Config::default()
        };
        let state = State::new(
            &Config {
                subnet: Some(no_matter()),
                ..config
            },
            clock,
        );
        let target = |index| {
            let url = format!("http://10.0.0.{index}:10660/metrics");
            Target::of_node(Self::name(index), url)
        };
        let targets: Vec<_> = (0..self.nodes).map(target).collect();
        state.set_targets(&targets, true);
        let nodes: Vec<_> = (0..self.nodes).map(Self::name).collect();
        let mut analyzer = Analyzer::default();
        analyzer.set_targets(&nodes);
        let at = |seconds| Timestamp((START + seconds) * 1000);
        analyzer.take_subnet(parse_ibnetdiscover(&self.subnet(&[])), at(0));
        for seconds in (SEEN - 400..=SEEN).step_by(20) {
            let broken = seconds.checked_sub(SEEN - 300);
            if broken == Some(0) {
                analyzer.take_subnet(parse_ibnetdiscover(&self.subnet(lost)), at(seconds));
            }
            for (index, node) in nodes.iter().enumerate() {
                let healthy = self.page(index, seconds);
                let page = match broken {
                    Some(since) => change(index, since, healthy),
                    None => Some(healthy),
                };
                match page {
                    Some(page) => {
                        let ingested = analyzer.ingest(node, &page, at(seconds));
                        assert_eq!(
                            (ingested.unknown, &*ingested.errors),
                            (0, &[][..]),
                            "the catalogue's words"
                        );
                        state.record_samples(&ingested);
                        state.record_scrape(
                            &targets[index],
                            ScrapeResult::Ok,
                            Some(at(seconds)),
                            None,
                        );
                    }
                    None => {
                        let said = String::from("not reached: Connection refused (os error 111)");
                        state.record_scrape(
                            &targets[index],
                            ScrapeResult::Unreachable,
                            None,
                            Some(said),
                        );
                    }
                }
            }
            state.publish(Snapshot::new(analyzer.tick(at(seconds))));
        }
        state
    }
}

fn no_matter() -> crate::config::SubnetSource {
    let second = std::time::Duration::from_secs(1);
    crate::config::SubnetSource {
        from: crate::config::SubnetFrom::Command(Vec::new()),
        interval: second,
        timeout: second,
        node_name_map: None,
        forwarding_file: None,
    }
}

/// Sections of all nodes, each with its cables.
fn print(cables: &[[(String, u16, String); 2]]) -> String {
    let mut sections: std::collections::BTreeMap<(&str, &str), Vec<String>> =
        std::collections::BTreeMap::new();
    for [a, b] in cables {
        for (near, far) in [(a, b), (b, a)] {
            let guid = &near.0[2..];
            let own = if near.0.starts_with('H') {
                format!("({guid})")
            } else {
                String::new()
            };
            let far_own = if far.0.starts_with('H') {
                format!("({})", &far.0[2..])
            } else {
                String::new()
            };
            let comment = if near.0.starts_with('H') {
                format!("# lid 1 lmc 0 \"{}\" lid 1 4xNDR", far.2)
            } else {
                format!("# \"{}\" lid 1 4xNDR", far.2)
            };
            let line = format!(
                "[{}]{own}\t\"{}\"[{}]{far_own}\t\t{comment}\n",
                near.1, far.0, far.1
            );
            sections.entry((&near.0, &near.2)).or_default().push(line);
        }
    }
    let mut text = String::new();
    for ((id, name), lines) in sections {
        let guid = &id[2..];
        let section = match id.as_bytes()[0] {
            b'S' => write!(
                text,
                "\nvendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x{guid}\nswitchguid=0x{guid}({guid})\nSwitch\t65 \"{id}\"\t\t# \"{name}\" enhanced port 0 lid 1 lmc 0\n"
            ),
            _ => write!(
                text,
                "\nvendid=0x2c9\ndevid=0x1021\nsysimgguid=0x{guid}\ncaguid=0x{guid}\nCa\t1 \"{id}\"\t\t# \"{name}\"\n"
            ),
        };
        section.expect("a string");
        text.extend(lines);
    }
    text
}
