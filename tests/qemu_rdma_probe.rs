//! Probes by RDMA on a real kernel: two exporters with soft-RoCE devices in a virtual machine, one of which is slowed, loses packets, is
//! stopped, dies, and loses its device.

use std::path::Path;

use crate::guest::{Page, Results, run_in_guest};
use crate::support::{RAILSCOPE, need, skip};

/// Most of `sent` probes of one phase whose reply may come too late because the emulated machine was stopped: it shares the CPUs of the
/// host. What a phase must not do to probes (a stopped program, for one) would do it to over 10 % of them.
fn stalls(sent: f64) -> f64 {
    3.0 + 0.02 * sent
}

/// One sample of the scenario.
struct Moment {
    /// The prober.
    a: Page,
    /// The responder.
    b: Page,
    /// Packets that device 0 sent less those that device 1 received, and vice versa.
    missing: [f64; 2],
}

impl Moment {
    fn of(results: &Results, name: &str) -> Self {
        let page = |node: &str| Page::read(results.text(&format!("{name}/{node}")));
        let packets = results.text(&format!("{name}/packets"));
        let count = |device: &str, counter: &str| -> f64 {
            let line = packets
                .lines()
                .find_map(|line| line.strip_prefix(&format!("{device} {counter} ")));
            line.expect("a counter").parse().expect("a count")
        };
        Self {
            a: page("a"),
            b: page("b"),
            missing: [
                count("rxe0", "sent_pkts") - count("rxe1", "rcvd_pkts"),
                count("rxe1", "sent_pkts") - count("rxe0", "rcvd_pkts"),
            ],
        }
    }

    /// Of the probes of A by this transport: sent, lost, above 20 ms, above 100 ms.
    fn probes(&self, transport: &str) -> [f64; 4] {
        let words = [format!("transport=\"{transport}\"")];
        let of = |name: &str, more: &[&str]| {
            let words: Vec<&str> = words
                .iter()
                .map(String::as_str)
                .chain(more.iter().copied())
                .collect();
            self.a.sum(name, &words)
        };
        let all = of("railscope_probe_rtt_seconds_count", &[]);
        [
            of("railscope_probes_sent_total", &[]),
            of("railscope_probes_lost_total", &[]),
            all - of("railscope_probe_rtt_seconds_bucket", &["le=\"0.02\""]),
            all - of("railscope_probe_rtt_seconds_bucket", &["le=\"0.1\""]),
        ]
    }

    fn median(&self, transport: &str) -> f64 {
        let words = [&*format!("transport=\"{transport}\""), "q=\"0.5\""];
        self.a
            .sum("railscope_probe_path_rtt_quantile_seconds", &words)
    }
}

fn between<const N: usize>(before: [f64; N], after: [f64; N]) -> [f64; N] {
    std::array::from_fn(|place| after[place] - before[place])
}

#[test]
fn rdma_probes_tell_network_and_responder_apart_on_a_real_kernel() {
    need!("qemu-system-x86_64", "timeout", "tc");
    let program = Path::new(RAILSCOPE).with_file_name("railscope-rdma-probe");
    if !program.exists() {
        skip!(
            "not built: cargo build -p railscope-rdma-probe --features verbs (needs libibverbs-dev, librdmacm-dev, libclang 14)"
        );
    }
    let results = match run_in_guest("rdma_probe", "", &[&program]) {
        Ok(results) => results,
        Err(why) => skip!("{why}"),
    };
    beside_others_tools(&results);
    network_is_seen(&results);
    program_is_told_apart(&results);
}

/// What else measures the same pair is printed; nothing was lost.
fn beside_others_tools(results: &Results) {
    let healthy = Moment::of(results, "healthy");
    let [sent, lost, ..] = healthy.probes("rdma");
    assert!(
        sent >= 50.0 && lost <= stalls(sent),
        "{sent} sent, {lost} lost"
    );
    println!(
        "median round trip: RDMA {:.0} us, UDP {:.0} us; {} {}",
        healthy.median("rdma") * 1e6,
        healthy.median("udp") * 1e6,
        results.text("ping").lines().last().unwrap_or_default(),
        results
            .text("ibv_rc_pingpong")
            .lines()
            .last()
            .unwrap_or_default(),
    );
}

/// Delay and loss on the return path.
fn network_is_seen(results: &Results) {
    let moment = |name: &str| Moment::of(results, name);
    // 20 ms on the return path are in every round trip, and in none of the responder's times.
    let (before, after) = (moment("undelayed"), moment("delayed"));
    for transport in ["rdma", "udp"] {
        let [sent, lost, slow, _] = between(before.probes(transport), after.probes(transport));
        let missing = between(before.missing, after.missing);
        println!(
            "{transport}, delayed: {sent} probes, {lost} lost, {slow} above 20 ms, missing {missing:?}"
        );
        assert!(
            slow >= 20.0 && lost <= stalls(sent),
            "{transport}: {slow} of {sent} are slow, {lost} lost"
        );
    }

    // What is lost is what the devices miss. A prober that was itself short of CPU forgets some probes, but never counts one as lost
    // whose packets both arrived. Counters are read one after the other: some packets may be in flight.
    let (before, after) = (moment("lossless"), moment("lossy"));
    let [sent, lost, ..] = between(before.probes("rdma"), after.probes("rdma"));
    let [out, back] = between(before.missing, after.missing);
    println!("lossy: {lost} of {sent} probes lost, {back} answers missing");
    let is_near = lost > 0.0 && lost <= back + stalls(sent) && lost >= 0.4 * back;
    assert!(
        is_near && out.abs() <= stalls(sent),
        "{lost} lost; missing: {out} on the way out, {back} back"
    );
}

/// A program that is stopped or dies, and a device that is removed, are no faults of the network.
fn program_is_told_apart(results: &Results) {
    let moment = |name: &str| Moment::of(results, name);
    let after = moment("lossy");
    let stopped = moment("stopped");
    let [sent, lost, _, slow] = between(after.probes("rdma"), stopped.probes("rdma"));
    let unanswerable = |moment: &Moment| moment.a.sum("railscope_probes_unanswerable_total", &[]);
    let unanswered = unanswerable(&stopped) - unanswerable(&after);
    println!("stopped: {sent} probes, {lost} lost, {slow} above 100 ms, {unanswered} unanswerable");
    assert!(
        lost <= stalls(sent) && slow <= stalls(sent),
        "of a program that is stopped: {lost} lost, {slow} slow"
    );
    assert!(unanswered > 10.0, "{unanswered}");
    let responder = "railscope_probe_responder_seconds";
    let long = |moment: &Moment| {
        let of = |name: &str, words: &[&str]| moment.b.sum(&format!("{responder}_{name}"), words);
        let rdma = "transport=\"rdma\"";
        of("count", &[rdma]) - of("bucket", &[rdma, "le=\"0.1\""])
    };
    assert!(
        long(&stopped) > long(&after),
        "its own node reports the delay"
    );

    // One that dies is started again and found by its new queue pairs.
    let killed = moment("killed");
    let [sent, lost, ..] = between(stopped.probes("rdma"), killed.probes("rdma"));
    println!("killed: {sent} probes, {lost} lost");
    assert!(
        sent >= 40.0 && lost <= stalls(sent),
        "{sent} sent, {lost} lost"
    );

    let removed = Page::read(results.text("removed/a"));
    let status =
        "railscope_source_status{source=\"rdma-prober\",device=\"rxe0\",status=\"absent\"}";
    assert!(
        removed.statuses().contains(status),
        "{:#?}",
        removed.statuses()
    );
    let returned = moment("returned");
    let [sent, lost, ..] = between(killed.probes("rdma"), returned.probes("rdma"));
    println!("removed and back: {sent} probes, {lost} lost");
    assert!(sent >= 40.0, "{sent} sent");
    assert_eq!(results.text("exporter.status").trim(), "0");
    println!(
        "descriptors of both exporters: {}",
        results.text("descriptors").replace('\n', " ")
    );
}
