//! Proposals for Slurm: lines that somebody may run, each with its evidence above it.

use std::fmt::{self, Write as _};

use super::plan::{Advice, Case, Plan};

/// What every reason begins with: nobody else's drain is ever taken back.
const MARK: &str = "Railscope";

/// The proposals as a shell script that does nothing by being printed.
pub(super) fn write(plan: &Plan) -> String {
    let mut text = String::new();
    // Writing into a text does not fail.
    try_write(&mut text, plan).ok();
    text
}

fn try_write(out: &mut String, plan: &Plan) -> fmt::Result {
    writeln!(
        out,
        "# Railscope, cluster {}: {} to drain, {} to watch, {} to give back. Proposals: nothing has been done.",
        comment(&plan.cluster),
        plan.drain.len(),
        plan.watch.len(),
        plan.withdrawn.iter().filter(|over| over.resume).count()
    )?;
    if plan.is_held_back {
        writeln!(
            out,
            "# {} nodes at once are rarely the nodes' fault: find what they share. The lines are comments (--most).",
            plan.drain.len()
        )?;
    }
    for advice in &plan.drain {
        drain(out, advice, plan.is_held_back)?;
    }
    for advice in &plan.watch {
        writeln!(out, "\n# {}: no drain proposed", comment(&advice.node))?;
        cases(out, &advice.cases)?;
    }
    if !plan.fabric.is_empty() {
        writeln!(out, "\n# The fabric: no drain helps")?;
        cases(out, &plan.fabric)?;
    }
    for over in plan.withdrawn.iter().filter(|over| over.resume) {
        let node = word(&over.node);
        writeln!(
            out,
            "\n# {node}: its incident is over. Only if the drain was ours:"
        )?;
        writeln!(
            out,
            "scontrol show node {node} | grep -q 'Reason={MARK} ' && scontrol update nodename={node} state=resume"
        )?;
    }
    Ok(())
}

fn drain(out: &mut String, advice: &Advice, is_held_back: bool) -> fmt::Result {
    writeln!(out, "\n# {}", comment(&advice.node))?;
    cases(out, &advice.cases)?;
    let Some(worst) = advice.cases.first() else {
        return Ok(());
    };
    writeln!(
        out,
        "{}scontrol update nodename={} state=drain reason=\"{MARK} {} {} {}\"",
        if is_held_back { "# " } else { "" },
        word(&advice.node),
        word(&worst.incident),
        word(&worst.class),
        word(&worst.component)
    )
}

fn cases(out: &mut String, cases: &[Case]) -> fmt::Result {
    for case in cases {
        writeln!(
            out,
            "#   {} ({}, {:.1} % sure): {}",
            comment(&case.title),
            comment(&case.severity),
            100.0 * case.confidence,
            comment(&case.part)
        )?;
        for statement in &case.evidence {
            writeln!(out, "#     seen: {}", comment(statement))?;
        }
        if !case.jobs.is_empty() {
            writeln!(out, "#     jobs: {}", comment(&case.jobs.join(" ")))?;
        }
        writeln!(out, "#     do:   {}", comment(&case.action))?;
        writeln!(out, "#     {}", comment(&case.incident_url))?;
    }
    Ok(())
}

/// A text that stays on its line.
fn comment(text: &str) -> String {
    let no_break = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(no_break).collect()
}

/// A text that means nothing to a shell, within quotes or without.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:/[]".contains(c);
    text.chars().filter(|c| plain(*c)).collect()
}
