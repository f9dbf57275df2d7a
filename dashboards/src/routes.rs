//! The way from the fleet to the root cause of each scenario of the demo: panels, each one link from the one before.

use crate::board::Board;

/// One scenario, and where to look.
pub(crate) struct Route {
    /// Name of the scenario: `railscope demo --scene NAME`.
    pub(crate) scene: &'static str,
    /// Class of its incident; empty if it has none.
    pub(crate) class: &'static str,
    /// Panels in this order, the first on the fleet's dashboard.
    pub(crate) panels: &'static [(Board, &'static str)],
}

const LIST: (Board, &str) = (Board::Fleet, "Incidents");

/// One for each scenario of the demo.
pub(crate) const ROUTES: &[Route] = &[
    Route {
        scene: "slow-gpu",
        class: "gpu-slow",
        panels: &[LIST, (Board::Incident, "Slowest SM clock of the node")],
    },
    Route {
        scene: "thermal",
        class: "gpu-slow",
        panels: &[LIST, (Board::Incident, "Hottest GPU sensor of the node")],
    },
    Route {
        scene: "slow-pcie",
        class: "pcie-degraded",
        panels: &[LIST, (Board::Incident, "PCIe lanes of the node")],
    },
    Route {
        scene: "dead-rail",
        class: "switch-down",
        panels: &[LIST, (Board::Incident, "Ports down at the leaf")],
    },
    Route {
        scene: "dead-leaf",
        class: "switch-down",
        panels: &[LIST, (Board::Incident, "Ports down at the leaf")],
    },
    Route {
        scene: "dead-uplink",
        class: "uplink-down",
        panels: &[
            LIST,
            (Board::Incident, "This incident"),
            (Board::Fabric, "Missing cables"),
        ],
    },
    Route {
        scene: "miswired-cable",
        class: "miscabled-rail",
        panels: &[
            LIST,
            (Board::Incident, "This incident"),
            (Board::Fabric, "Wiring findings"),
        ],
    },
    Route {
        scene: "flapping-optic",
        class: "port-down",
        panels: &[LIST, (Board::Incident, "Ports of the node that are up")],
    },
    Route {
        scene: "noisy-vm-host",
        class: "host-steal",
        panels: &[LIST, (Board::Incident, "Timer stalls of the node")],
    },
    Route {
        scene: "pfc-storm",
        class: "pfc-storm",
        panels: &[LIST, (Board::Incident, "Pause of the node")],
    },
    Route {
        scene: "jittery-uplink",
        class: "uplink-jitter",
        panels: &[
            LIST,
            (Board::Incident, "This incident"),
            (Board::Tail, "Slow probes by component"),
        ],
    },
    // Packets sent and not received are counters of switches: the evidence is on Railscope's own web page.
    Route {
        scene: "spine-gray-failure",
        class: "uplink-lossy",
        panels: &[LIST, (Board::Incident, "This incident")],
    },
    Route {
        scene: "your-code",
        class: "",
        panels: &[
            (Board::Fleet, "Open incidents"),
            (Board::Job, "Straggler analysis by job"),
        ],
    },
    Route {
        scene: "calm-roce",
        class: "",
        panels: &[(Board::Fleet, "Open incidents")],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boards;
    use crate::panel::Panel;

    /// Most links from the fleet to the panel that shows the cause.
    const MOST_LINKS: usize = 2;

    fn panel(board: Board, title: &str) -> Panel {
        let dashboard = boards::all().into_iter().find(|found| found.board == board);
        let panels = dashboard.expect("a dashboard").panels;
        let panel = panels.into_iter().find(|panel| panel.title == title);
        panel.unwrap_or_else(|| panic!("{board:?} has no panel {title}"))
    }

    /// Whether a panel, or the top of its dashboard, links to a dashboard.
    fn leads(from: (Board, &str), to: Board) -> bool {
        let panel = panel(from.0, from.1);
        let columns = panel.columns.iter().flat_map(|column| &column.links);
        let mut links = panel.links.iter().chain(columns);
        from.0.next().contains(&to) || links.any(|link| link.board() == Some(to))
    }

    #[test]
    fn the_cause_of_each_scenario_is_at_most_two_links_from_the_fleet() {
        for Route { scene, panels, .. } in ROUTES {
            assert_eq!(panels[0].0, Board::Fleet, "{scene}");
            assert!(panels.len() <= MOST_LINKS + 1, "{scene}");
            for (board, title) in *panels {
                panel(*board, title);
            }
            for pair in panels.windows(2) {
                assert!(leads(pair[0], pair[1].0), "{scene}: no link {pair:?}");
            }
        }
    }

    #[test]
    fn every_scenario_of_the_demo_has_its_way_and_its_class() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/src/demo/scenes");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).expect("scenarios") {
            let path = entry.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("a scenario");
            let name = path.file_stem().expect("a name").to_string_lossy();
            let route = ROUTES.iter().find(|route| route.scene == name);
            let route = route.unwrap_or_else(|| panic!("{name}: no way to it"));
            let named = format!("expect = {{ named = \"{}\"", route.class);
            let silent = route.class.is_empty() && text.contains("expect = \"silence\"");
            assert!(silent || text.contains(&named), "{name}: {}", route.class);
            count += 1;
        }
        assert_eq!(count, ROUTES.len());
    }
}
