//! Proposals for Slurm: commands for the operator to run, each with its evidence as comments above.

use std::fmt::{self, Write as _};

use super::plan::{Advice, Case, Plan};

/// Prefix of every drain reason, so that only drains proposed by Railscope are resumed.
const MARK: &str = "Railscope";

/// The proposals as a shell script.
pub(super) fn write(plan: &Plan) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    try_write(&mut text, plan).ok();
    text
}

fn try_write(out: &mut String, plan: &Plan) -> fmt::Result {
    writeln!(
        out,
        "# Railscope, cluster {}: {} to drain, {} to watch, {} to resume. Proposals only: nothing was changed.",
        comment(&plan.cluster),
        plan.drain.len(),
        plan.watch.len(),
        plan.withdrawn.iter().filter(|over| over.resume).count()
    )?;
    if plan.is_held_back {
        writeln!(
            out,
            "# {} nodes exceed the drain limit (--most): the cause is probably shared. Drain commands are commented out.",
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
        writeln!(out, "\n# Fabric or storage: a drain does not help")?;
        cases(out, &plan.fabric)?;
    }
    for over in plan.withdrawn.iter().filter(|over| over.resume) {
        let node = word(&over.node);
        writeln!(
            out,
            "\n# {node}: incident resolved. Resumes the node only if Railscope's drain is in force:"
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
            "#   {} ({}, probability {:.1} %): {}",
            comment(&case.title),
            comment(&case.severity),
            100.0 * case.confidence,
            comment(&case.part)
        )?;
        for statement in &case.evidence {
            writeln!(out, "#     evidence: {}", comment(statement))?;
        }
        if !case.jobs.is_empty() {
            writeln!(out, "#     jobs:     {}", comment(&case.jobs.join(" ")))?;
        }
        writeln!(out, "#     action:   {}", comment(&case.action))?;
        writeln!(out, "#     {}", comment(&case.incident_url))?;
    }
    Ok(())
}

/// The text with control characters replaced, so that it stays on one comment line.
fn comment(text: &str) -> String {
    let no_break = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(no_break).collect()
}

/// The text without characters that are special to a shell, quoted or not.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:/[]".contains(c);
    text.chars().filter(|c| plain(*c)).collect()
}
