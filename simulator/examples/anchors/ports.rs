//! Ports of a leaf: rates, on and off, likeness over time, and how evenly its uplinks are used.

use std::path::Path;

use railscope_simulator::statistics::{
    Balance, Runs, autocorrelation, mean, median, quantile, rates, variation,
};
use railscope_simulator::traffic::router::Routing;

use crate::simulated::{Leaf, SEEN, leaf};
use crate::svg::{COLORS, Chart, Line};
use crate::traces::{self, Counter, Failure, RECORDED_SECONDS};
use crate::{Section, head, row, shown};

/// The time that is compared: after the hole at the start of the recording, before its end.
const FROM: f64 = 300.0;
const TO: f64 = 1490.0;
/// Counters are read that often.
const READ_SECONDS: f64 = 0.5;
/// The switch of the trace renews a counter every 0.5 to 1.3 s: twice that is the least that shows rates.
const WINDOW: f64 = 2.0;
/// Below 1 % of the port's 200 Gb/s it is off.
const OFF_GIGABITS: f64 = 2.0;
const GIGABIT: f64 = 1e9 / 8.0;

fn gigabits(counter: &Counter, window: f64) -> Vec<f64> {
    let rates = rates(counter, FROM, TO, window);
    rates.iter().map(|rate| rate / GIGABIT).collect()
}

/// Ports of the trace's leaf that belong to a job, by their mean rates.
fn seen(folder: &Path, number: u8) -> Result<Leaf, Failure> {
    let ports = traces::leaf(folder, number)?;
    let servers = |range: (f64, f64)| {
        let ports = ports.iter().filter(|(name, _)| traces::is_server(name));
        let counters = ports.map(|(_, counter)| counter);
        let own = counters.filter(|counter| {
            let mean = mean(&gigabits(counter, WINDOW));
            mean.is_some_and(|mean| (range.0..range.1).contains(&mean))
        });
        own.cloned().collect()
    };
    let uplinks = ports.iter().filter(|(name, _)| traces::is_uplink(name));
    Ok(Leaf {
        servers: SEEN.iter().map(|job| servers(job.gigabits)).collect(),
        uplinks: uplinks.map(|(_, counter)| counter.clone()).collect(),
    })
}

/// The middle of a statistic over the ports of a job.
fn over(ports: &[Counter], of: impl Fn(&Counter) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = ports.iter().filter_map(of).collect();
    median(&values)
}

/// Share of the readings that found nothing new.
fn stale(counter: &Counter) -> Option<f64> {
    let from = counter.windows(2).filter(|pair| pair[0].0 >= FROM);
    let stale: Vec<f64> = from
        .map(|pair| f64::from(u8::from(pair[1].1 - pair[0].1 < 1.0)))
        .collect();
    mean(&stale)
}

/// How far the ports of a job are apart in a window, on average.
fn apart(ports: &[Counter]) -> Option<f64> {
    let rates: Vec<Vec<f64>> = ports.iter().map(|port| gigabits(port, 10.0)).collect();
    let windows = rates.first()?.len();
    let in_window = |at: usize| variation(&rates.iter().map(|port| port[at]).collect::<Vec<_>>());
    median(&(0..windows).filter_map(in_window).collect::<Vec<_>>())
}

fn ports_table(sources: &[(&str, &Leaf)]) -> String {
    let mut text = head(&[
        "job",
        "source",
        "ports",
        "mean Gb/s",
        "2 s: 5 / 50 / 95 / 100 %",
        "CoV 2 s",
        "CoV 10 s",
        "CoV 60 s",
        "on",
        "off runs: median, longest (s)",
        "on runs: median (s)",
        "CoV over ports",
        "readings without news",
    ]);
    for (job, seen) in SEEN.iter().enumerate() {
        for (source, leaf) in sources {
            let ports = &leaf.servers[job];
            let at = |share: f64| {
                shown(
                    over(ports, |port| quantile(&gigabits(port, WINDOW), share)),
                    1,
                )
            };
            let cov =
                |window: f64| shown(over(ports, |port| variation(&gigabits(port, window))), 2);
            let runs = |of: &dyn Fn(Runs) -> Option<f64>| {
                over(ports, |port| {
                    of(Runs::of(&gigabits(port, WINDOW), OFF_GIGABITS))
                })
            };
            let seconds = |lengths: &[usize], share: f64| {
                let lengths: Vec<f64> = lengths.iter().map(|n| *n as f64 * WINDOW).collect();
                quantile(&lengths, share)
            };
            let off = |share: f64| shown(runs(&|runs| seconds(&runs.off, share)), 0);
            text += &row([
                seen.name.to_owned(),
                (*source).to_owned(),
                ports.len().to_string(),
                shown(over(ports, |port| mean(&gigabits(port, WINDOW))), 1),
                [0.05, 0.5, 0.95, 1.0].map(at).join(" / "),
                cov(2.0),
                cov(10.0),
                cov(60.0),
                shown(runs(&|runs| runs.share_on()), 2),
                format!("{}, {}", off(0.5), off(1.0)),
                shown(runs(&|runs| seconds(&runs.on, 0.5)), 0),
                shown(apart(ports), 4),
                shown(over(ports, stale), 2),
            ]);
        }
    }
    text
}

fn likeness_table(sources: &[(&str, &Leaf)]) -> String {
    let lags = [1, 2, 3, 5, 11, 30];
    let mut text = head(&["job", "source", "1 s", "2 s", "3 s", "5 s", "11 s", "30 s"]);
    for (job, seen) in SEEN.iter().enumerate() {
        for (source, leaf) in sources {
            let cells = lags.map(|lag| {
                let of = |port: &Counter| autocorrelation(&gigabits(port, 1.0), lag);
                shown(over(&leaf.servers[job], of), 2)
            });
            text += &row([seen.name.to_owned(), (*source).to_owned()]
                .into_iter()
                .chain(cells));
        }
    }
    text
}

/// Windows in which the balance of uplinks is measured, in seconds.
const BALANCE_WINDOWS: [f64; 6] = [2.0, 5.0, 10.0, 60.0, 300.0, TO - FROM];

fn balance(leaf: &Leaf, window: f64) -> Option<Balance> {
    let rates: Vec<Vec<f64>> = leaf
        .uplinks
        .iter()
        .map(|port| gigabits(port, window))
        .collect();
    let windows = rates.first()?.len();
    let in_window = |at: usize| Balance::of(&rates.iter().map(|port| port[at]).collect::<Vec<_>>());
    let balances: Vec<Balance> = (0..windows).filter_map(in_window).collect();
    let of = |part: fn(&Balance) -> f64| median(&balances.iter().map(part).collect::<Vec<_>>());
    Some(Balance {
        variation: of(|balance| balance.variation)?,
        most: of(|balance| balance.most)?,
    })
}

fn balance_table(sources: &[(String, Leaf)]) -> String {
    let mut text = head(&[
        "source", "up / all", "2 s", "5 s", "10 s", "60 s", "300 s", "all",
    ]);
    let sum = |ports: &mut dyn Iterator<Item = &Counter>| -> f64 {
        ports.filter_map(|port| mean(&gigabits(port, 10.0))).sum()
    };
    for (name, leaf) in sources {
        let up = sum(&mut leaf.uplinks.iter());
        // What servers receive and the upward traffic are about what servers send.
        let all = sum(&mut leaf.servers.iter().flatten());
        let cells = BALANCE_WINDOWS.map(|window| {
            balance(leaf, window).map_or_else(
                || "-".to_owned(),
                |Balance { variation, most }| format!("{variation:.2}, {most:.2}"),
            )
        });
        text += &row([name.clone(), shown(Some(up / all), 2)]
            .into_iter()
            .chain(cells));
    }
    text
}

/// A line for each job of each leaf, of its first port.
fn job_lines(leaves: [(&Leaf, bool); 2], of: impl Fn(&Counter) -> Vec<(f64, f64)>) -> Vec<Line> {
    let mut lines = Vec::new();
    for (job, seen) in SEEN.iter().enumerate() {
        for (leaf, dashed) in leaves {
            let source = if dashed { "simulated" } else { "trace" };
            lines.extend(leaf.servers[job].first().map(|port| Line {
                name: format!("{} {source}", seen.name),
                dashed,
                color: COLORS[job],
                points: of(port),
            }));
        }
    }
    lines
}

fn balance_lines(uplinks: &[(String, Leaf)]) -> Vec<Line> {
    let line = |(number, (name, leaf)): (usize, &(String, Leaf))| {
        let of = |window: f64| balance(leaf, window).map(|balance| (window, balance.variation));
        Line {
            name: name.clone(),
            // The four leaves of the trace come first.
            dashed: number >= 4,
            color: COLORS[number % COLORS.len()],
            points: BALANCE_WINDOWS.into_iter().filter_map(of).collect(),
        }
    };
    uplinks.iter().enumerate().map(line).collect()
}

fn charts(
    trace: &Leaf,
    simulated: &Leaf,
    uplinks: &[(String, Leaf)],
) -> Vec<(&'static str, String)> {
    let both = [(trace, false), (simulated, true)];
    let distribution = |port: &Counter| {
        let rates = gigabits(port, WINDOW);
        let at = |n: i32| f64::from(n) / 50.0;
        let of = |n| quantile(&rates, at(n)).map(|rate| (at(n), rate));
        (0..=50).filter_map(of).collect()
    };
    let likeness = |port: &Counter| {
        let rates = gigabits(port, 1.0);
        let of = |lag| autocorrelation(&rates, lag).map(|value| (lag as f64, value));
        (1..=40).filter_map(of).collect()
    };
    let rates = Chart {
        title: "Rate of one port of each job in windows of 2 s",
        x: "share of the windows below",
        y: "Gb/s",
        log_x: false,
        lines: job_lines(both, distribution),
    };
    let likeness = Chart {
        title: "Rate of one port of each job in windows of 1 s",
        x: "lag (s)",
        y: "autocorrelation",
        log_x: false,
        lines: job_lines(both, likeness),
    };
    let uplinks = Chart {
        title: "How unevenly the 30 uplinks of a leaf are used",
        x: "length of the window (s)",
        y: "CoV over uplinks",
        log_x: true,
        lines: balance_lines(uplinks),
    };
    vec![
        ("rates.svg", rates.svg()),
        ("likeness.svg", likeness.svg()),
        ("uplinks.svg", uplinks.svg()),
    ]
}

/// The leaf of the trace beside that of the simulator.
pub(crate) fn section(folder: &Path) -> Result<Section, Failure> {
    let trace = seen(folder, 1)?;
    let simulate = |routing| leaf(routing, RECORDED_SECONDS, READ_SECONDS);
    let simulated = simulate((Routing::Adaptive, 1))?;
    let sources = [("trace", &trace), ("simulated", &simulated)];
    let (ports, likeness) = (ports_table(&sources), likeness_table(&sources));
    let mut uplinks = Vec::new();
    for number in 1..=4 {
        uplinks.push((format!("trace, leaf {number}"), seen(folder, number)?));
    }
    for (name, routing) in [
        ("adaptive", (Routing::Adaptive, 1)),
        ("ECMP, one flow", (Routing::Ecmp, 1)),
        ("ECMP, 4 flows", (Routing::Ecmp, 4)),
        ("ECMP, 64 flows", (Routing::Ecmp, 64)),
        ("static", (Routing::Static, 1)),
    ] {
        uplinks.push((format!("simulated, {name}"), simulate(routing)?));
    }
    let text = format!(
        include_str!("ports.md"),
        ports = ports,
        likeness = likeness,
        balance = balance_table(&uplinks)
    );
    let charts = charts(&trace, &simulated, &uplinks);
    Ok(Section { text, charts })
}
