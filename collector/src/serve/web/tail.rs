//! The view of tail latency: classes of paths, and the components and pairs of NICs with the most slow probes.

use std::fmt::{self, Write};

use super::html::{Esc, scrolling};
use super::{Look, step_times};
use crate::classes::{HOST_STALLS, HOST_STEAL, NOISY_NEIGHBOR, PATH_SLOW, UPLINK_JITTER};
use crate::detect::tails::{Causes, ClassTail, Quantile, STALLS_SECONDS, Slow};
use crate::serve::api::tails::QUANTILES;
use crate::serve::phrases;

/// Excess from which the view names a component: not reached by chance among the 100,000 NICs of a large cluster.
const STANDS_OUT: f64 = 6.0;

/// Hosts that make probes slow that are described.
const HOSTS: usize = 5;

pub(super) fn view(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let tails = &look.snapshot.view.tails;
    out.push_str("<section class=\"top\"><div class=\"verdict\">");
    verdict(out, look)?;
    out.push_str("</div></section>\n");
    if tails.classes.is_empty() {
        out.push_str(
            "<section class=\"calm\"><p>Probes are off by default; see docs/probing.md.</p></section>\n",
        );
        out.push_str("<section class=\"where\">\n");
        step_times::table(out, &look.snapshot.view.step_tails)?;
        step_times::collectives(out, &look.snapshot.view.collective_tails)?;
        out.push_str("</section>\n");
        return Ok(());
    }
    out.push_str("<section class=\"where\">\n<h2>Path classes, last 150 s</h2>\n");
    classes(out, &tails.classes)?;
    out.push_str("<h2>Causes of slow probes</h2>\n");
    causes(out, &tails.causes)?;
    let covered = tails.coverage;
    writeln!(
        out,
        "<p class=\"hint\">Probes cross {} of {} host cables and, with known paths, {} of {} cables between switches.</p>",
        covered.host_cables.probed,
        covered.host_cables.all,
        covered.switch_cables.probed,
        covered.switch_cables.all
    )?;
    out.push_str("<h2>Components with the most slow probes</h2>\n");
    slow(out, &tails.components, |out, part| {
        let words = phrases::part(part, &look.snapshot.layout);
        write!(out, "<th scope=\"row\">{}</th>", Esc(words))
    })?;
    out.push_str("<h2>Pairs of NICs with the most slow probes</h2>\n");
    slow(out, &tails.pairs, |out, pair| {
        write!(
            out,
            "<th scope=\"row\">{} {} to {} {} <small>{}</small></th>",
            Esc(&pair.node),
            Esc(&pair.device),
            Esc(&pair.peer_node),
            Esc(&pair.peer_device),
            pair.path_class
        )
    })?;
    step_times::table(out, &look.snapshot.view.step_tails)?;
    step_times::collectives(out, &look.snapshot.view.collective_tails)?;
    out.push_str("</section>\n");
    Ok(())
}

/// Open incidents whose effect is a tail, or else what the figures show. What stands out is not yet
/// a cause: every component on the path of a slow one does.
fn verdict(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let classes = [
        &UPLINK_JITTER,
        &PATH_SLOW,
        &HOST_STALLS,
        &HOST_STEAL,
        &NOISY_NEIGHBOR,
    ];
    let view = &look.snapshot.view;
    let mut open = (view.incidents.iter())
        .filter(|incident| classes.contains(&incident.class))
        .peekable();
    if open.peek().is_some() {
        for incident in open {
            writeln!(
                out,
                "<h1><a href=\"{}incidents/{}\">{}: {}</a></h1>",
                look.root,
                Esc(&incident.id),
                incident.class.title,
                Esc(phrases::part(&incident.root, &look.snapshot.layout))
            )?;
        }
        return Ok(());
    }
    let tails = &view.tails;
    let standing_out = tails.components.iter();
    let standing_out = standing_out.filter(|slow| slow.excess() >= STANDS_OUT);
    let words = match (tails.classes.is_empty(), standing_out.count()) {
        (true, _) => "No probes: the tail latency is unknown",
        (false, 0) => "No component stands out in slow probes",
        (false, _) => "Some paths have more slow probes than usual; no component is named",
    };
    writeln!(out, "<h1>{words}</h1>")
}

fn classes(out: &mut String, classes: &[ClassTail]) -> fmt::Result {
    out.push_str(&scrolling("Path classes"));
    out.push_str("<table class=\"figures\"><thead><tr><th scope=\"col\">path class</th><th scope=\"col\">nodes</th><th scope=\"col\">timed probes</th><th scope=\"col\">lost</th>");
    for (_, q) in QUANTILES {
        write!(out, "<th scope=\"col\">p{}</th>", 100.0 * q)?;
    }
    for bound in STALLS_SECONDS {
        write!(out, "<th scope=\"col\">above {}</th>", time(bound))?;
    }
    out.push_str("<th scope=\"col\">worst node, p99.9</th></tr></thead><tbody>");
    for class in classes {
        let timed = class.round_trips.count();
        let lost = class.lost / (class.lost + timed).max(1.0);
        write!(
            out,
            "<tr><th scope=\"row\">{} <small>{}</small></th><td>{}</td><td>{timed:.0}</td><td>{}</td>",
            class.path_class,
            Esc(&class.transport),
            class.nodes,
            percent(lost)
        )?;
        for (_, q) in QUANTILES {
            match class.round_trips.quantile(q) {
                Some(found) => quantile(out, found)?,
                None => out.push_str("<td>–</td>"),
            }
        }
        for bound in STALLS_SECONDS {
            let share = class.round_trips.share_above(bound);
            let share = share.map_or_else(|| "–".to_owned(), percent);
            write!(out, "<td>{share}</td>")?;
        }
        match &class.worst_node {
            Some((seconds, node)) => {
                write!(out, "<td>{}, {}</td></tr>", Esc(node), time(*seconds))?;
            }
            None => out.push_str("<td>–</td></tr>"),
        }
    }
    out.push_str("</tbody></table></div>\n<p class=\"hint\">Quantiles lie between the bounds below them: those of the histogram's bucket. A node's own p99.9 is within 0.4 %. Times include delays of interrupts at both hosts, tens of µs; timestamps of the prober's NIC remove its half.</p>\n");
    Ok(())
}

fn causes(out: &mut String, causes: &Causes) -> fmt::Result {
    if causes.slow == 0.0 {
        out.push_str("<p class=\"hint\">No probe was slow.</p>\n");
        return Ok(());
    }
    let explained = causes.explained.iter();
    let rows = explained.map(|(cause, slow)| (cause.name(), *slow));
    let others = [
        ("as usual on all paths", causes.usual),
        ("no cause found", causes.unexplained()),
    ];
    out.push_str("<table class=\"figures\"><thead><tr><th scope=\"col\">cause</th><th scope=\"col\">slow probes</th><th scope=\"col\">share</th></tr></thead><tbody>");
    for (name, slow) in rows.chain(others) {
        write!(
            out,
            "<tr><th scope=\"row\">{name}</th><td>{slow:.0}</td><td>{:.0} %</td></tr>",
            100.0 * slow / causes.slow
        )?;
    }
    out.push_str("</tbody></table>\n");
    for host in causes.hosts.iter().take(HOSTS) {
        let node = Esc(&host.node);
        match host.timer_stalls_per_second {
            Some(stalls) if stalls > 0.0 => writeln!(
                out,
                "<p class=\"hint\">{node}: its timers are more than 200 µs late {stalls:.2} times per second, so its CPUs or hypervisor stall.</p>"
            )?,
            Some(_) => writeln!(
                out,
                "<p class=\"hint\">{node}: its timers are on time, so its NICs, its PCIe or its interrupts are slow, not its CPUs.</p>"
            )?,
            None => writeln!(
                out,
                "<p class=\"hint\">{node}: it exports no timer latency.</p>"
            )?,
        }
    }
    Ok(())
}

fn quantile(out: &mut String, found: Quantile) -> fmt::Result {
    let Quantile {
        seconds,
        at_least,
        at_most,
    } = found;
    if at_most.is_finite() {
        let (low, high) = (time(at_least), time(at_most));
        write!(
            out,
            "<td>{}<small>{low} to {high}</small></td>",
            time(seconds)
        )
    } else {
        write!(out, "<td>above {}</td>", time(at_least))
    }
}

fn slow<T>(
    out: &mut String,
    all: &[Slow<T>],
    name: impl Fn(&mut String, &T) -> fmt::Result,
) -> fmt::Result {
    if all.is_empty() {
        out.push_str("<p class=\"hint\">None.</p>\n");
        return Ok(());
    }
    out.push_str("<table class=\"figures\"><thead><tr><th scope=\"col\">name</th><th scope=\"col\">probes</th><th scope=\"col\">slow</th><th scope=\"col\">share</th><th scope=\"col\">usual</th></tr></thead><tbody>");
    for one in all {
        let class = if one.excess() >= STANDS_OUT {
            "bad"
        } else {
            ""
        };
        write!(out, "<tr class=\"{class}\">")?;
        name(out, &one.of)?;
        write!(
            out,
            "<td>{:.0}</td><td>{:.0}</td><td>{}</td><td>{}</td></tr>",
            one.probes,
            one.slow,
            percent(one.ratio()),
            percent(one.expected / one.probes)
        )?;
    }
    out.push_str("</tbody></table>\n");
    Ok(())
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// Microseconds below a millisecond, milliseconds above.
fn time(seconds: f64) -> String {
    if seconds < 1e-3 {
        format!("{:.0} µs", seconds * 1e6)
    } else {
        format!("{:.1} ms", seconds * 1e3)
    }
}
