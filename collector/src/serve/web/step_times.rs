//! Step times of jobs, the share of their long steps that paths and hosts explain, and transfer times of collectives.

use std::fmt::{self, Write};

use super::html::{Esc, scrolling};
use crate::jobs::collective_times::CollectiveTail;
use crate::jobs::step_tails::{Share, StepTail};
use crate::serve::api::tails::QUANTILES;

pub(super) fn table(out: &mut String, tails: &[StepTail]) -> fmt::Result {
    out.push_str("<h2>Step times of jobs</h2>\n");
    if tails.is_empty() {
        out.push_str(
            "<p class=\"hint\">No job reports its step times; see docs/step-times.md.</p>\n",
        );
        return Ok(());
    }
    out.push_str(&scrolling("Step times of jobs"));
    out.push_str("<table class=\"figures\"><thead><tr><th scope=\"col\">job</th><th scope=\"col\">steps</th>");
    for (_, q) in QUANTILES {
        write!(out, "<th scope=\"col\">p{}</th>", 100.0 * q)?;
    }
    out.push_str("<th scope=\"col\">lost in long steps</th><th scope=\"col\">with slow probes</th><th scope=\"col\">with late timers</th></tr></thead><tbody>");
    for tail in tails {
        let (job, steps) = (Esc(&tail.job), tail.steps);
        write!(out, "<tr><th scope=\"row\">{job}</th><td>{steps:.0}</td>")?;
        for (_, q) in QUANTILES {
            match tail.quantiles.get(&q.to_string()) {
                Some(seconds) => write!(out, "<td>{seconds:.3} s</td>")?,
                None => out.push_str("<td>–</td>"),
            }
        }
        let lost = 100.0 * tail.excess_seconds / tail.watched_seconds;
        write!(out, "<td>{lost:.2} %</td>")?;
        let explained = tail.explained;
        share(out, explained.and_then(|of| of.fabric))?;
        share(out, explained.and_then(|of| of.hosts))?;
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>\n<p class=\"hint\">Of the last hour: time by which steps longer than 1.1 times the median exceeded it, and the share of this time that coincides with slow probes or late timers on the nodes of the job in the same 30 s windows, with its 95 % confidence interval.</p>\n");
    Ok(())
}

/// Transfer times of collectives, by job.
pub(super) fn collectives(out: &mut String, tails: &[CollectiveTail]) -> fmt::Result {
    if tails.is_empty() {
        return Ok(());
    }
    out.push_str("<h2>Transfer times of collectives</h2>\n");
    out.push_str(&scrolling("Transfer times of collectives"));
    out.push_str("<table class=\"figures\"><thead><tr><th scope=\"col\">job</th><th scope=\"col\">collective</th><th scope=\"col\">bytes</th><th scope=\"col\">count</th>");
    for (_, q) in QUANTILES {
        write!(out, "<th scope=\"col\">p{}</th>", 100.0 * q)?;
    }
    out.push_str("</tr></thead><tbody>");
    for tail in tails {
        let (job, collective) = (Esc(&tail.job), Esc(&tail.collective));
        write!(
            out,
            "<tr><th scope=\"row\">{job}</th><td>{collective}</td><td>{}</td><td>{}</td>",
            tail.bytes, tail.count
        )?;
        for seconds in tail.quantiles.values() {
            write!(out, "<td>{:.2} ms</td>", 1e3 * seconds)?;
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>\n<p class=\"hint\">Shortest time of all ranks in one collective, which excludes waiting for late ranks; the last 1,000 of each kind and size.</p>\n");
    Ok(())
}

fn share(out: &mut String, share: Option<Share>) -> fmt::Result {
    let Some(share) = share else {
        out.push_str("<td>–</td>");
        return Ok(());
    };
    let [value, low, high] =
        [share.value, share.at_least, share.at_most].map(|share| 100.0 * share);
    write!(
        out,
        "<td>{value:.0} %<small>{low:.0} to {high:.0} %</small></td>"
    )
}
