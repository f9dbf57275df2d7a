//! `railscope sweep`: one own sweep of the InfiniBand subnet, and what it cost.

use std::fmt::Write as _;
use std::io::Write as _;
use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use railscope_collector::fabric::subnet::counters::{
    COUNTERS, DeviceReading, PortReading, counter_name,
};
use railscope_collector::fabric::subnet::{NodeKind, Subnet};
use railscope_collector::sources::mad_sweep::{MAX_WINDOW, Settings, Stats, Sweeper, open};

/// Sweep the InfiniBand subnet once, as the collector does, and print what was found and the cost.
///
/// Needs read and write access to /dev/infiniband/umad*. Nothing is changed: every request is a Get.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// Port to sweep from: mlx5_0, mlx5_0:2, auto, or ibsim:SOCKET:HOST for a simulated subnet.
    #[arg(long, default_value = "auto")]
    device: String,
    /// Omit the counters.
    #[arg(long)]
    no_counters: bool,
    /// Requests in flight at a time, over all devices.
    #[arg(long, default_value_t = Settings::default().window)]
    window: usize,
    /// Subnet management requests in flight at a time to one switch.
    #[arg(long, default_value_t = Settings::default().per_switch)]
    per_switch: usize,
    /// Maximum requests per second; 0 for no limit.
    #[arg(long, default_value_t = Settings::default().mads_per_second.map_or(0, NonZeroU32::get))]
    mads_per_second: u32,
    /// Also print every port with a cable: state, speed, counters.
    #[arg(long)]
    ports: bool,
}

/// Sweeps and prints.
pub(crate) fn run(args: &SweepArgs) -> anyhow::Result<()> {
    ensure!(
        (1..=MAX_WINDOW).contains(&args.window),
        "--window: expected 1 to {MAX_WINDOW}"
    );
    ensure!(args.per_switch > 0, "--per-switch: expected 1 or more");
    let settings = Settings {
        window: args.window,
        per_switch: args.per_switch,
        mads_per_second: NonZeroU32::new(args.mads_per_second),
        counters: !args.no_counters,
        limit: Duration::from_secs(300),
        ..Settings::default()
    };
    let transport = open(&args.device, settings.timeout)?;
    let swept = Sweeper::new(transport, settings).sweep()?;
    let mut text = summary(&swept.subnet, &swept.stats);
    if args.ports {
        text += &ports(&swept.subnet, &swept.readings);
    }
    // A reader may close the pipe early.
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn summary(subnet: &Subnet, stats: &Stats) -> String {
    let count = |kind| subnet.nodes.iter().filter(|node| node.kind == kind).count();
    let mut text = format!(
        "{} switches, {} adapters, {} cables\n",
        count(NodeKind::Switch),
        count(NodeKind::Ca),
        subnet.links.len()
    );
    for gap in subnet.completeness.gaps() {
        writeln!(text, "incomplete: {gap}").ok();
    }
    for problem in &subnet.problems {
        writeln!(text, "problem: {problem}").ok();
    }
    let seconds = |time: Duration| time.as_secs_f64();
    writeln!(
        text,
        "topology {:.3} s, counters {:.3} s, {} MADs: {} answered, {} retried, {} unanswered, {} refused, {} not sent, {} unexpected",
        seconds(stats.discovery),
        seconds(stats.counters),
        stats.sent,
        stats.answered,
        stats.repeated,
        stats.unanswered,
        stats.refused,
        stats.not_asked,
        stats.stray
    )
    .ok();
    if stats.ports_without_lid > 0 {
        let ports = stats.ports_without_lid;
        writeln!(text, "{ports} ports without a LID: no counters").ok();
    }
    text
}

/// One line for each port with a cable; counters that are zero are omitted, but not such that were not read.
fn ports(subnet: &Subnet, readings: &[DeviceReading]) -> String {
    let mut text = String::new();
    for device in readings {
        let node = subnet.nodes.iter().find(|node| node.guid == device.guid);
        let name = node.map_or("", |node| node.description.as_str());
        for port in device.ports.iter().filter(|port| port.speed.is_some()) {
            let state = if port.active { "active" } else { "not active" };
            let speed = port.speed.map(|speed| speed.to_string());
            let speed = speed.unwrap_or_default();
            writeln!(
                text,
                "{} {} {name:?}: {state}, {speed}{}",
                device.guid,
                port.port,
                counted(port)
            )
            .ok();
        }
    }
    text
}

fn counted(port: &PortReading) -> String {
    let Some(counters) = port.counters else {
        return String::from(", counters not read");
    };
    let mut text = String::new();
    for place in 0..COUNTERS {
        let name = counter_name(place);
        match counters.get(place) {
            Some(0) => {}
            Some(value) if counters.is_saturated(place) => {
                write!(text, ", {name} {value} (saturated)").ok();
            }
            Some(value) => {
                write!(text, ", {name} {value}").ok();
            }
            None => {
                write!(text, ", {name} not read").ok();
            }
        }
    }
    text
}
