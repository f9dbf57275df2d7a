//! Results of real sweeps, where the recordings of real hardware are at hand.
use railscope_collector::fabric::subnet::{Subnet, parse_ibnetdiscover};
use railscope_collector::fabric::{Confidence, Kind, Verdict, judge, merge_subnet};
use railscope_model::fabric::{Fabric, Timestamp};

/// Reads a capture and passes it to the test; reports if there is none.
fn with_capture(test: &str, file: &str, check: impl FnOnce(&Subnet, &Verdict)) {
    let root = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../shared/captures/ib_topology/"
    );
    let Ok(text) = std::fs::read_to_string(format!("{root}{file}")) else {
        eprintln!("SKIPPED: {test}: no capture {file}");
        return;
    };
    let subnet = parse_ibnetdiscover(&text);
    let counts = subnet.counts;
    assert_eq!(
        counts.lines,
        counts.blank + counts.comments + counts.read + counts.unread
    );
    let mut fabric = Fabric::default();
    let merge = merge_subnet(&mut fabric, &subnet, Timestamp(1));
    check(&subnet, &judge(&fabric, &merge));
}

#[test]
fn selene_is_a_rail_optimized_fabric_of_three_levels() {
    let test = "selene_is_a_rail_optimized_fabric_of_three_levels";
    with_capture(test, "selene.compute.ibnetdiscover", |subnet, verdict| {
        assert_eq!((subnet.counts.problems, subnet.counts.unread), (0, 0));
        assert_eq!((&verdict.kind, verdict.levels), (&Kind::RailOptimized, 3));
        assert_eq!(verdict.confidence, Confidence::High);
        // Leaves LGnn-nn and MLGnn-nn, spines CSPINE and MSPINE, cores CCORE: according to the names.
        assert_eq!(verdict.switches_by_tier, [204, 322, 140]);
        assert_eq!(verdict.sweep.aggregation_nodes, 666);
        assert_eq!(
            (verdict.hosts, verdict.compute_hosts, verdict.nics),
            (469, 458, 3675)
        );
        let class = &verdict.wiring.classes[0];
        assert_eq!(
            (class.hosts, class.complete, class.devices.len()),
            (458, 458, 8)
        );
        assert_eq!(verdict.service_hosts.len(), 11);
        assert!(verdict.service_hosts.iter().all(|host| host.nics == 1));
        assert!(verdict.evidence[0].starts_with("200 of 203 host-bearing leaves carry one rail"));
        assert_eq!(
            (verdict.wiring.units, verdict.wiring.missing.len()),
            (25, 0)
        );
        assert_eq!(verdict.wiring.misplaced, []);
        let ratio = verdict.oversubscription.expect("leaves have uplinks");
        assert_eq!(
            (ratio.min, ratio.median, ratio.max),
            (0.7, 0.95, 20.0 / 19.0)
        );
        assert_eq!((ratio.leaves, ratio.unknown), (200, 0));
    });
}

#[test]
fn the_ndr_capture_lacks_a_leaf_and_has_a_crossed_pair() {
    let test = "the_ndr_capture_lacks_a_leaf_and_has_a_crossed_pair";
    with_capture(
        test,
        "topograph-dgx-ndr.ibnetdiscover",
        |subnet, verdict| {
            assert_eq!(subnet.counts.problems, 0);
            assert_eq!((&verdict.kind, verdict.levels), (&Kind::RailOptimized, 2));
            assert_eq!(verdict.switches_by_tier, [31, 9]);
            let complete: usize = verdict
                .wiring
                .classes
                .iter()
                .map(|class| class.complete)
                .sum();
            assert_eq!((complete, verdict.compute_hosts), (109, 120));
            let missing: Vec<_> = verdict
                .wiring
                .missing
                .iter()
                .map(|m| m.host.as_str())
                .collect();
            let named: Vec<_> = ["01", "03", "04", "09", "12", "13", "14", "15", "17", "18"]
                .iter()
                .map(|n| format!("a05-p1-dgx-01-c{n}"))
                .chain(["localhost".to_owned()])
                .collect();
            assert_eq!(missing, named);
            assert!(
                verdict
                    .wiring
                    .missing
                    .iter()
                    .all(|m| m.rail == 2 && m.device.as_str() == "HCA-5")
            );
            // All eleven are of one unit: their leaf of rail 2 (…-03-01 by the names) is not in the sweep.
            assert_eq!(verdict.wiring.absent_leaves.len(), 1);
            assert_eq!(
                (
                    verdict.wiring.absent_leaves[0].rail,
                    verdict.wiring.absent_leaves[0].hosts
                ),
                (2, 11)
            );
            let misplaced: Vec<_> = verdict
                .wiring
                .misplaced
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(
                misplaced,
                [
                    "b08-p1-dgx-08-c01 HCA-5 of rail 2 is connected to B09-P1-IBLEAF-04-08 of rail 3, not to \
                 B09-P1-IBLEAF-03-08 (swapped with b08-p1-dgx-08-c01 HCA-6)",
                    "b08-p1-dgx-08-c01 HCA-6 of rail 3 is connected to B09-P1-IBLEAF-03-08 of rail 2, not to \
                 B09-P1-IBLEAF-04-08 (swapped with b08-p1-dgx-08-c01 HCA-5)",
                ]
            );
            let service: Vec<_> = verdict
                .service_hosts
                .iter()
                .map(|host| host.host.as_str())
                .collect();
            assert_eq!(service, ["B11-P1-CUFM-02", "ubuntu"]);
            assert_eq!(verdict.unnamed_nics, 69);
        },
    );
}

#[test]
fn a_scan_of_one_adapter_is_no_verdict() {
    let test = "a_scan_of_one_adapter_is_no_verdict";
    with_capture(
        test,
        "topograph-single-ca-bad.ibnetdiscover",
        |_, verdict| {
            let text = verdict.to_string();
            assert!(
                text.starts_with("no verdict: one CA and no switch seen"),
                "{text}"
            );
            assert_eq!(verdict.confidence, Confidence::Low);
        },
    );
}

#[test]
fn the_lab_has_self_loops_and_mixed_speeds() {
    let test = "the_lab_has_self_loops_and_mixed_speeds";
    with_capture(test, "ufm-lab-small.ibnetdiscover", |subnet, verdict| {
        assert_eq!(subnet.counts.problems, 0);
        let loops: Vec<_> = verdict
            .self_loops
            .iter()
            .map(|l| (l.switch.as_str(), l.ports.clone()))
            .collect();
        assert_eq!(
            loops,
            [(25, 26), (28, 29)].map(|(a, b)| ("r-ufm-sw226", (a.into(), b.into())))
        );
        assert!(verdict.speeds.are_mixed());
        assert!(matches!(verdict.kind, Kind::Unknown { .. }), "{verdict}");
        assert_eq!((verdict.hosts, verdict.sweep.aggregation_nodes), (5, 1));
    });
}

#[test]
fn the_report_form_reads_with_its_unknown_speeds() {
    let test = "the_report_form_reads_with_its_unknown_speeds";
    let folder = "treydock-ibnetdiscover-p/";
    for (file, nodes, cables, unused, problems) in [
        ("test.out", 7, 4, 2, 0),
        ("test2.out", 7, 2, 3, 1),
        ("test3.out", 1, 0, 1, 1),
    ] {
        with_capture(test, &format!("{folder}{file}"), |subnet, verdict| {
            let counts = subnet.counts;
            assert_eq!(
                (
                    subnet.nodes.len(),
                    subnet.links.len(),
                    counts.ports_without_cable,
                    counts.problems
                ),
                (nodes, cables, unused, problems),
                "{file}: {:?}",
                subnet.problems
            );
            assert_eq!(counts.unread, 0, "{file}");
            assert_eq!(
                verdict.confidence,
                Confidence::Low,
                "{file}: trimmed, so partial"
            );
        });
    }
}

#[test]
fn a_slice_of_a_director_is_a_tree_with_one_chassis() {
    let test = "a_slice_of_a_director_is_a_tree_with_one_chassis";
    with_capture(
        test,
        "superbench/ib_traffic_topo_aware_ibnetdiscover.txt",
        |subnet, verdict| {
            assert_eq!(subnet.counts.problems, 0);
            assert_eq!((&verdict.kind, verdict.levels), (&Kind::FatTree, 3));
            assert_eq!(verdict.switches_by_tier, [5, 2, 1]);
            assert_eq!((verdict.hosts, verdict.nics), (10, 10));
            assert_eq!(verdict.sweep.chassis.len(), 1);
            assert_eq!(verdict.sweep.chassis[0].asics, 3);
        },
    );
}
