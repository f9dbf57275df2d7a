//! Two jobs that send a gigabyte a second, and a fault on one of them: which incidents page, and what it costs.

use railscope_model::identity::{NodeName, Part};
use railscope_model::metric::GPU_SM_ACTIVE;

use super::*;
use crate::classes::{NVLINK_ERRORS, PORT_DOWN, UPLINK_DOWN};
use crate::detect::detector::{Evidence, Explanation};
use crate::detect::found::part;
use crate::diagnose::incident::{Finding, describe};
use crate::jobs::job::JobTable;

const RATE: f64 = 1e9;

fn at(seconds: u64) -> Timestamp {
    Timestamp(1_700_000_000_000 + seconds * 1000)
}

fn page(job: &str, bytes: f64) -> String {
    let held = if job.is_empty() {
        String::new()
    } else {
        format!(
            "railscope_workload_info{{gpu=\"0\",mig=\"\",device=\"\",pci=\"\",claim=\"\",namespace=\"\",workload=\"\",container=\"\",hpc_job=\"{job}\"}} 1\n"
        )
    };
    format!(
        "{held}railscope_workload_devices{{state=\"named\"}} 1\n\
         railscope_gpu_nic_info{{gpu=\"0\",device=\"mlx5_0\",hop=\"PIX\",nearest=\"true\"}} 1\n\
         railscope_rdma_port_transmit_bytes_total{{device=\"mlx5_0\",port=\"1\"}} {bytes}\n"
    )
}

fn incident(class: &'static Class, part: &str) -> Incident {
    incident_by(class, part, ("test", 0.5))
}

/// By a signal with an effect.
fn incident_by(
    class: &'static Class,
    part: &str,
    (signal, effect): (&'static str, f64),
) -> Incident {
    let found = finding(class, part, (signal, effect));
    let fabric = railscope_model::fabric::Fabric::default();
    describe(&fabric, &found.evidence.part.clone(), vec![found], at(0))
}

/// Over a cable between switches the GPU of n0 is routed.
fn finding(class: &'static Class, part: &str, (signal, effect): (&'static str, f64)) -> Finding {
    let part: Part = part.parse().expect(part);
    let routed = matches!(part, Part::SwitchLink(..)).then(|| "gpu/n0:0".parse().expect("a part"));
    let evidence = Evidence {
        detector: "test",
        signal,
        class,
        effect,
        statement: String::new(),
        victims: routed.into_iter().collect(),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    };
    let explanation = Explanation {
        check: "",
        threshold: String::new(),
        clears: "",
    };
    Finding {
        evidence,
        explanation,
    }
}

/// Twenty minutes, of which the last ten have an incident on n0 and a job `a` of n0 to n3 that runs at `speed` of its
/// usual throughput from then on; `b` has n4, and no job n5. Returns what is paged and what is lost.
fn run(
    (usual_minutes, left_out): (u64, LeftOut),
    speed: f64,
    class: &'static Class,
    part: &str,
) -> (Vec<Severity>, Vec<Lost>) {
    let (mut history, mut table) = (History::default(), JobTable::default());
    let mut impact = Impact {
        left_out,
        ..Impact::default()
    };
    let (mut paged, mut costs) = (Vec::new(), Costs::default());
    let fault = 60 * usual_minutes;
    for seconds in (0..=fault + 600).step_by(10) {
        let after = seconds.saturating_sub(fault) as f64;
        for number in 0..6 {
            let job = ["a", "a", "a", "a", "b", ""][number];
            let own = if job == "a" { speed } else { 1.0 };
            let bytes = RATE * (seconds.min(fault) as f64 + own * after);
            let node: NodeName = format!("n{number}").parse().expect("a name");
            let said = history
                .node_mut(&node)
                .ingest(&page(job, bytes), at(seconds));
            assert_eq!((said.unknown, said.errors), (0, vec![]));
        }
        // Other exporters report no jobs here, and with the fault nothing any more.
        for (node, share) in [("n6", 0.0), ("n7", 0.9)] {
            let node: NodeName = node.parse().expect("a name");
            let gpus = format!("railscope_gpu_utilization_ratio{{gpu=\"0\"}} {share}\n");
            if seconds <= fault {
                let history = history.node_mut(&node);
                history.ingest(&gpus, at(seconds));
            }
        }
        let jobs = table.refresh(&history, at(seconds));
        let mut incidents = Vec::new();
        if seconds > fault {
            incidents.push(incident(class, part));
        }
        table.hold_up(&mut incidents);
        costs = impact.tick(&history, &jobs, &mut incidents, at(seconds));
        paged.extend(incidents.iter().map(|incident| incident.severity));
    }
    paged.dedup();
    (paged, costs.lost)
}

fn check(
    usual_minutes: u64,
    speed: f64,
    class: &'static Class,
    part: &str,
    pages: &[Severity],
) -> Vec<Lost> {
    let (paged, lost) = run((usual_minutes, LeftOut::default()), speed, class, part);
    assert_eq!(
        paged, pages,
        "{} at {speed} of the pace, {part}",
        class.name
    );
    lost
}

const TICKET: Severity = Severity::Warning;
const PAGE: Severity = Severity::Critical;

#[test]
fn a_soft_fault_pages_once_its_job_is_held_up_and_a_hard_one_at_once() {
    check(10, 1.0, &GPU_SLOW, "gpu/n0:0", &[TICKET]);
    check(10, 0.97, &GPU_SLOW, "gpu/n0:0", &[TICKET]);
    check(10, 0.9, &GPU_SLOW, "gpu/n0:0", &[TICKET, PAGE]);
    check(10, 1.0, &PORT_DOWN, "link/n0:mlx5_0/1", &[PAGE]);
}

#[test]
fn what_is_not_known_takes_no_page_away_and_a_node_that_is_known_to_be_idle_pages_nobody() {
    // The job was watched for too short a time to have a baseline.
    check(2, 1.0, &GPU_SLOW, "gpu/n0:0", &[PAGE]);
    check(10, 1.0, &PORT_DOWN, "link/n5:mlx5_0/1", &[TICKET]);
    check(10, 1.0, &PORT_DOWN, "link/n6:mlx5_0/1", &[TICKET]);
    check(10, 1.0, &PORT_DOWN, "link/n7:mlx5_0/1", &[PAGE]);
    // The node is unknown, and the component is a switch.
    check(10, 1.0, &PORT_DOWN, "link/n9:mlx5_0/1", &[PAGE]);
    check(10, 1.0, &SWITCH_QOS, "switch/leaf-1", &[PAGE]);
}

#[test]
fn without_known_jobs_a_node_that_did_nothing_while_others_compute_is_idle() {
    let mut history = History::default();
    let node = |name: &str| -> NodeName { name.parse().expect("a name") };
    let gpus = |share: f64| format!("railscope_gpu_utilization_ratio{{gpu=\"0\"}} {share}\n");
    let idle = incident(&PORT_DOWN, "link/n6:mlx5_0/1");
    let busy = incident(&PORT_DOWN, "link/n7:mlx5_0/1");
    let idle_at = |incident: &Incident, history: &History, seconds| {
        is_idle(incident, history, &Jobs::default(), at(seconds))
    };
    for seconds in (0..=60).step_by(10) {
        history
            .node_mut(&node("n7"))
            .ingest(&gpus(0.9), at(seconds));
        history
            .node_mut(&node("n6"))
            .ingest(&gpus(0.0), at(seconds));
        assert_eq!(idle_at(&idle, &history, seconds), seconds == 60);
    }
    assert!(!idle_at(&busy, &history, 60));
    // All may be about to begin: what n7 did is long ago.
    assert!(!idle_at(&idle, &history, 600));
}

#[test]
fn a_cable_between_switches_pages_once_a_job_that_is_routed_over_it_is_held_up() {
    let uplink = "link/leaf-1:33";
    check(10, 1.0, &UPLINK_DOWN, uplink, &[TICKET]);
    check(10, 0.9, &UPLINK_DOWN, uplink, &[TICKET, PAGE]);
    // It is not known yet whether it is delayed.
    check(2, 1.0, &UPLINK_DOWN, uplink, &[PAGE]);
}

#[test]
fn a_clock_that_is_a_little_low_is_small_and_what_a_gpu_does_with_it_is_not() {
    let by = |signal, effect| is_small(&incident_by(&GPU_SLOW, "gpu/n0:0", (signal, effect)));
    assert!(by(GPU_CLOCK.name, 0.02));
    assert!(!by(GPU_CLOCK.name, 0.2));
    assert!(!by(GPU_SM_ACTIVE.name, 0.02));
}

#[test]
fn a_ticket_that_is_critical_for_what_it_slows_is_as_soft_as_that() {
    let of = |classes: &[&'static Class]| {
        let findings = classes.iter();
        let findings = findings.map(|class| finding(class, "gpu/n0:0", (GPU_SM_ACTIVE.name, 0.5)));
        let fabric = railscope_model::fabric::Fabric::default();
        describe(&fabric, &part("gpu/n0:0"), findings.collect(), at(0))
    };
    let [slow, down] = [&GPU_SLOW, &PORT_DOWN].map(|class| of(&[&NVLINK_ERRORS, class]));
    assert_eq!((slow.class, slow.severity), (&NVLINK_ERRORS, PAGE));
    assert!(is_soft(&slow));
    assert!(!is_soft(&down));
    assert!(!is_soft(&of(&[&PORT_DOWN])));
}

#[test]
fn without_the_gate_what_holds_no_job_up_pages_too() {
    let without = || [Step::ImpactGate].into_iter().collect();
    for (class, part) in [(&GPU_SLOW, "gpu/n0:0"), (&PORT_DOWN, "link/n5:mlx5_0/1")] {
        check(10, 1.0, class, part, &[TICKET]);
        assert_eq!(run((10, without()), 1.0, class, part).0, [PAGE], "{part}");
    }
}

#[test]
fn what_a_job_loses_is_counted_to_the_part_that_it_waits_for() {
    let lost = check(10, 0.75, &GPU_SLOW, "gpu/n0:0", &[PAGE]);
    assert_eq!(lost.len(), 1, "{lost:?}");
    let lost = &lost[0];
    assert_eq!(
        (&*lost.job, &*lost.fault_domain, lost.class),
        ("a", "gpu/n0:0", "gpu-slow")
    );
    // A quarter of four GPUs for ten minutes, less what the measurement lags behind.
    assert!((570.0..=600.0).contains(&lost.gpu_seconds), "{lost:?}");
    let lost = check(10, 0.75, &GPU_SLOW, "gpu/n4:0", &[TICKET]);
    assert_eq!((&*lost[0].fault_domain, lost[0].class), ("", "unexplained"));
}
