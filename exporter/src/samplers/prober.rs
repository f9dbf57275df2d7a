//! Probes of other nodes' NICs: what became of them, by NIC and by flow. Only where a list is given.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use railscope_model::metric::{
    PROBE_FLOW_LOST, PROBE_FLOW_SENT, PROBE_FLOW_SLOW, PROBE_HOP, PROBE_PATH_LOST,
    PROBE_PATH_QUANTILE, PROBE_PATH_RTT, PROBE_RESPONDER, PROBE_RTT, PROBE_RTT_MAX, PROBES_LOST,
    PROBES_SENT, PROBES_UNANSWERABLE,
};
use railscope_model::reading::{Histogram, HistogramError, Labels, NodeReading, Status};

use super::discovery::Misses;
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::ethtool::NetworkAccess;
use crate::sources::probe::{
    BOUNDS_NANOS, ClassReport, DeviceReport, FlowKey, FlowReport, ProbeAccess, Prober, QUANTILES,
    RdmaProber, Report, Times,
};
use crate::sources::sysfs::{Miss, Root};

/// Device label of the status that reports how the list was read.
const LIST: &str = "list";
/// Device label of the status that reports whether the program of the RDMA prober runs.
const PROGRAM: &str = "program";
/// A report is a second old; one that is older than this comes from a blocked thread.
const HANGS_AFTER: Duration = Duration::from_secs(10);

/// How probes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Udp,
    Rdma,
}

impl Transport {
    /// The label `transport`.
    const fn label(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Rdma => "rdma",
        }
    }

    /// Source label.
    const fn source(self) -> &'static str {
        match self {
            Self::Udp => "prober",
            Self::Rdma => "rdma-prober",
        }
    }
}

struct ProbeSampler {
    transport: Transport,
    access: ProbeAccess,
    sysfs: Root,
    network: NetworkAccess,
    prober: Option<Running>,
    named: Vec<Named>,
    unparsed: u64,
    misses: Misses,
}

/// A prober.
enum Running {
    Udp(Prober),
    Rdma(RdmaProber),
}

/// A flow and its labels, which are long and stay the same.
struct Named {
    key: Arc<FlowKey>,
    hops: Arc<[(u8, IpAddr)]>,
    labels: Labels,
    hop_labels: Vec<Labels>,
}

/// Builds the sampler of UDP probes where there is a list.
pub fn build(machine: &Machine) -> Option<Box<dyn Sampler>> {
    machine.probes.list.as_ref()?;
    Some(ProbeSampler::new(Transport::Udp, machine))
}

/// Builds the sampler of RDMA probes if there is a program for them. It responds without a list, too.
pub fn build_rdma(machine: &Machine) -> Option<Box<dyn Sampler>> {
    machine.probes.rdma.as_ref()?;
    Some(ProbeSampler::new(Transport::Rdma, machine))
}

impl Sampler for ProbeSampler {
    fn name(&self) -> &'static str {
        self.transport.source()
    }

    /// The prober runs by itself; this only reads its counts.
    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let failed = |cause| SampleError {
            what: "probing".to_owned(),
            cause,
        };
        let prober = match self.prober.take() {
            Some(prober) => prober,
            None => self.start().map_err(failed)?,
        };
        let report = self.prober.insert(prober).report();
        if report.at.elapsed() > HANGS_AFTER {
            return Err(failed(io::ErrorKind::TimedOut.into()));
        }
        if let Some(miss) = report.list_miss {
            self.misses.note(miss);
            self.misses.end_device(reading, LIST);
        }
        if !report.has_list && self.transport == Transport::Udp {
            let status = report.list_miss.map_or(Status::Absent, Status::from);
            return Ok(Presence::Absent(status));
        }
        if let Some(miss) = report.program {
            reading.push_status(self.name(), PROGRAM, miss.into());
        }
        self.push(reading, &report);
        self.misses.end_source(reading);
        Ok(Presence::Present)
    }
}

impl Running {
    fn report(&self) -> Arc<Report> {
        match self {
            Self::Udp(prober) => prober.report(),
            Self::Rdma(prober) => prober.report(),
        }
    }
}

impl ProbeSampler {
    fn new(transport: Transport, machine: &Machine) -> Box<Self> {
        Box::new(Self {
            transport,
            access: machine.probes.clone(),
            sysfs: Root::new(&machine.sysfs),
            network: machine.network.clone(),
            prober: None,
            named: Vec::new(),
            unparsed: 0,
            misses: Misses::new(transport.source()),
        })
    }

    fn start(&self) -> io::Result<Running> {
        let (list, sysfs) = (self.access.list.clone(), self.sysfs.clone());
        match (&self.access.rdma, self.transport) {
            (Some(access), Transport::Rdma) => {
                let prober = RdmaProber::start(access.clone(), list, sysfs, &self.network)?;
                Ok(Running::Rdma(prober))
            }
            _ => {
                let list = list.ok_or(io::ErrorKind::NotFound)?;
                let prober = Prober::start(list, sysfs, &self.network)?;
                Ok(Running::Udp(prober))
            }
        }
    }

    fn push(&mut self, reading: &mut NodeReading, report: &Report) {
        let transport = self.transport.label();
        for device in &report.devices {
            let pushed = push_device(reading, device, transport);
            self.misses.keep(pushed.map_err(|_| Miss::Failed));
            for miss in &device.misses {
                // Of a NIC that is not there, or has no address, nothing else would report it.
                match miss {
                    Miss::Absent => {
                        reading.push_status(
                            self.transport.source(),
                            &device.device,
                            Status::Absent,
                        );
                    }
                    other => self.misses.note(*other),
                }
            }
            self.misses.end_device(reading, &device.device);
        }
        for class in &report.classes {
            let pushed = push_class(reading, class, transport);
            self.misses.keep(pushed.map_err(|_| Miss::Failed));
        }
        self.named.truncate(report.flows.len());
        for (place, flow) in report.flows.iter().enumerate() {
            let known = self.named.get(place).is_some_and(|named| named.is(flow));
            if !known {
                let named = Named::new(flow, transport);
                match self.named.get_mut(place) {
                    Some(other) => *other = named,
                    None => self.named.push(named),
                }
            }
            if let Some(named) = self.named.get(place) {
                named.push(reading, flow);
            }
        }
        if self.transport == Transport::Rdma {
            reading.push(
                &PROBES_UNANSWERABLE,
                &Labels::new([transport]),
                report.unanswerable,
            );
        }
        for (device, times) in &report.responded {
            let times = histogram(times).map_err(|_| Miss::Failed);
            if let Some(times) = self.misses.keep(times) {
                reading.push(&PROBE_RESPONDER, &Labels::new([device, transport]), times);
            }
        }
        for _ in self.unparsed..report.unparsed {
            self.misses.note(Miss::Unparsed);
        }
        self.unparsed = report.unparsed;
        self.misses.end_device(reading, "answers");
    }
}

impl Named {
    fn new(flow: &FlowReport, transport: &str) -> Self {
        let FlowKey {
            device,
            peer_node,
            peer_device,
            flow: number,
        } = &*flow.key;
        let number = number.to_string();
        let labels = Labels::new([device, peer_node, peer_device, &number, transport]);
        let hops = flow.hops.iter();
        Self {
            key: Arc::clone(&flow.key),
            hops: Arc::clone(&flow.hops),
            hop_labels: hops.map(|(hop, by)| labels.with(hop).with(by)).collect(),
            labels,
        }
    }

    fn is(&self, flow: &FlowReport) -> bool {
        Arc::ptr_eq(&self.key, &flow.key) && Arc::ptr_eq(&self.hops, &flow.hops)
    }

    fn push(&self, reading: &mut NodeReading, flow: &FlowReport) {
        for (metric, count) in [
            (&PROBE_FLOW_SENT, flow.counts.sent),
            (&PROBE_FLOW_LOST, flow.counts.lost),
            (&PROBE_FLOW_SLOW, flow.counts.slow),
        ] {
            reading.push(metric, &self.labels, count);
        }
        for labels in &self.hop_labels {
            reading.push(&PROBE_HOP, labels, true);
        }
    }
}

fn push_device(
    reading: &mut NodeReading,
    device: &DeviceReport,
    transport: &str,
) -> Result<(), HistogramError> {
    let labels = Labels::new([&*device.device, transport]);
    reading.push(&PROBES_SENT, &labels, device.sent);
    reading.push(&PROBES_LOST, &labels, device.lost);
    if let Some(nanos) = device.longest_nanos {
        reading.push(&PROBE_RTT_MAX, &labels, nanos as f64 / 1e9);
    }
    reading.push(&PROBE_RTT, &labels, histogram(&device.round_trips)?);
    Ok(())
}

fn push_class(
    reading: &mut NodeReading,
    class: &ClassReport,
    transport: &str,
) -> Result<(), HistogramError> {
    let labels = Labels::new([class.path_class.name(), transport]);
    reading.push(&PROBE_PATH_LOST, &labels, class.lost);
    for (quantile, nanos) in QUANTILES.iter().zip(class.quantiles_nanos.iter().flatten()) {
        reading.push(
            &PROBE_PATH_QUANTILE,
            &labels.with(quantile),
            *nanos as f64 / 1e9,
        );
    }
    reading.push(&PROBE_PATH_RTT, &labels, class.round_trips.histogram()?);
    Ok(())
}

/// Times as a histogram of seconds.
pub(super) fn histogram(times: &Times) -> Result<Histogram, HistogramError> {
    let bounds = BOUNDS_NANOS.map(|nanos| nanos as f64 / 1e9);
    let sum = times.sum_nanos as f64 / 1e9;
    Histogram::new(&bounds, times.counts.to_vec(), sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::probe::Counts;
    use crate::sources::probe::RdmaAccess;
    use railscope_model::exposition::{Format, Page};
    use railscope_model::metric::Profile;
    use railscope_model::path_class::PathClass;
    use railscope_model::reading::Latencies;
    use std::collections::BTreeSet;

    fn report() -> Report {
        let (mut round_trips, mut of_class) = (Times::default(), Latencies::default());
        for nanos in [12_000, 30_000] {
            round_trips.note(nanos);
            of_class.note(nanos);
        }
        let key = |flow| FlowKey {
            device: "mlx5_0".to_owned(),
            peer_node: "gpu-2".to_owned(),
            peer_device: "mlx5_1".to_owned(),
            flow,
        };
        let flow = |number, sent, lost, hops: &[(u8, IpAddr)]| FlowReport {
            key: Arc::new(key(number)),
            counts: Counts {
                sent,
                lost,
                slow: 0,
            },
            hops: hops.into(),
        };
        let router = |last| IpAddr::from([10, 0, 0, last]);
        Report {
            has_list: true,
            devices: vec![DeviceReport {
                device: "mlx5_0".to_owned(),
                sent: 5,
                lost: 3,
                longest_nanos: Some(30_000),
                round_trips,
                misses: BTreeSet::from([Miss::Denied]),
            }],
            classes: vec![ClassReport {
                path_class: PathClass::SameRail,
                lost: 3,
                round_trips: of_class,
                quantiles_nanos: Some([12_000, 30_000, 30_000]),
            }],
            flows: vec![
                flow(0, 2, 0, &[(1, router(1)), (3, router(3))]),
                flow(1, 3, 3, &[]),
            ],
            unparsed: 2,
            ..Report::empty()
        }
    }

    fn lines(report: &Report, profile: Profile, sampler: &mut ProbeSampler) -> Vec<String> {
        let mut reading = NodeReading::default();
        sampler.push(&mut reading, report);
        reading.normalize();
        let page = Page::new(Arc::new(reading)).write(Format::Text, profile);
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    }

    fn sampler() -> ProbeSampler {
        *ProbeSampler::new(Transport::Udp, &Machine::below("/nowhere".as_ref()))
    }

    #[test]
    fn classes_of_paths_are_on_the_default_page_and_nics_and_flows_on_the_full_one() {
        let (report, mut sampler) = (report(), sampler());
        let default = lines(&report, Profile::Default, &mut sampler);
        let buckets = |line: &&String| line.contains("_bucket{");
        assert_eq!(
            default.iter().filter(buckets).count(),
            BOUNDS_NANOS.len() + 1
        );
        assert_eq!(
            default
                .iter()
                .filter(|line| !buckets(line))
                .collect::<Vec<_>>(),
            [
                r#"railscope_source_status{source="prober",device="answers",status="unparsed"} 1"#,
                r#"railscope_source_status{source="prober",device="mlx5_0",status="denied"} 1"#,
                r#"railscope_probe_path_rtt_seconds_sum{path_class="same-rail",transport="udp"} 0.000042"#,
                r#"railscope_probe_path_rtt_seconds_count{path_class="same-rail",transport="udp"} 2"#,
                r#"railscope_probe_path_lost_total{path_class="same-rail",transport="udp"} 3"#,
                r#"railscope_probe_path_rtt_quantile_seconds{path_class="same-rail",transport="udp",q="0.5"} 0.000012"#,
                r#"railscope_probe_path_rtt_quantile_seconds{path_class="same-rail",transport="udp",q="0.99"} 0.00003"#,
                r#"railscope_probe_path_rtt_quantile_seconds{path_class="same-rail",transport="udp",q="0.999"} 0.00003"#,
            ]
        );
        let full = lines(&report, Profile::Full, &mut sampler);
        let of =
            r#"device="mlx5_0",peer_node="gpu-2",peer_device="mlx5_1",flow="0",transport="udp""#;
        for line in [
            format!("railscope_probe_flow_sent_total{{{of}}} 2"),
            format!("railscope_probe_flow_lost_total{{{of}}} 0"),
            format!("railscope_probe_flow_slow_total{{{of}}} 0"),
            format!(r#"railscope_probe_hop_info{{{of},hop="3",address="10.0.0.3"}} 1"#),
            r#"railscope_probe_rtt_seconds_count{device="mlx5_0",transport="udp"} 2"#.to_owned(),
            r#"railscope_probes_sent_total{device="mlx5_0",transport="udp"} 5"#.to_owned(),
            r#"railscope_probe_rtt_max_seconds{device="mlx5_0",transport="udp"} 0.00003"#
                .to_owned(),
        ] {
            assert!(full.contains(&line), "{line}\n{full:#?}");
        }
        // What came before is reported no more.
        assert!(!full.iter().any(|line| line.contains("answers")));
    }

    #[test]
    fn rdma_probes_are_beside_those_of_udp_with_what_their_program_has_answered() {
        let mut machine = Machine::below("/nowhere".as_ref());
        machine.probes.rdma = Some(RdmaAccess::new("/nowhere/railscope-rdma-probe".into()));
        let mut sampler = *ProbeSampler::new(Transport::Rdma, &machine);
        let mut responded = Times::default();
        responded.note(3_000_000_000);
        let report = Report {
            responded: vec![("mlx5_0".to_owned(), responded)],
            unanswerable: 4,
            ..report()
        };
        let full = lines(&report, Profile::Full, &mut sampler);
        for line in [
            r#"railscope_source_status{source="rdma-prober",device="mlx5_0",status="denied"} 1"#,
            r#"railscope_probe_path_lost_total{path_class="same-rail",transport="rdma"} 3"#,
            r#"railscope_probes_unanswerable_total{transport="rdma"} 4"#,
            r#"railscope_probe_responder_seconds_sum{device="mlx5_0",transport="rdma"} 3.0"#,
            r#"railscope_probes_sent_total{device="mlx5_0",transport="rdma"} 5"#,
        ] {
            assert!(full.iter().any(|one| one == line), "{line}\n{full:#?}");
        }
    }

    #[test]
    fn a_flow_that_leaves_the_list_leaves_the_page_and_another_hop_takes_the_place_of_the_first() {
        let (mut report, mut sampler) = (report(), sampler());
        lines(&report, Profile::Full, &mut sampler);
        report.flows.remove(1);
        report.flows[0].hops = [(1, IpAddr::from([10, 0, 0, 9]))].into();
        let full = lines(&report, Profile::Full, &mut sampler);
        let flows = |word: &str| full.iter().filter(|line| line.contains(word)).count();
        assert_eq!((flows("flow_sent"), flows("probe_hop_info")), (1, 1));
        assert_eq!(flows("10.0.0.9"), 1);
    }
}
