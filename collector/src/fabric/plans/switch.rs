//! Reads what a switch's commands print about its ports: `show interfaces counters`, `show pfc counters` and `show pfcwd stats`
//! of SONiC, `show interfaces` and link messages of Junos. One text may contain several of them.

mod counters;
mod junos;
mod link_log;
mod pfc;

use railscope_model::plan::PlanError;

use super::Source;

/// What the ports of one switch report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SwitchReport {
    /// What was read, one sentence for each command.
    pub answer: Vec<String>,
    /// Faults, each with the port and what to do.
    pub findings: Vec<String>,
}

/// Whether a line belongs to the output of one of the commands.
pub(super) fn is_switch(line: &str) -> bool {
    pfc::is_heading(line)
        || counters::is_heading(line)
        || junos::is_heading(line)
        || link_log::is_event(line)
}

/// Reads all known outputs in a text.
pub(super) fn read(source: &mut Source<'_>) -> Result<SwitchReport, Vec<PlanError>> {
    let mut report = SwitchReport::default();
    pfc::read(source, &mut report);
    counters::read(source, &mut report);
    junos::read(source, &mut report);
    link_log::read(source, &mut report);
    if report.answer.is_empty() {
        let expected = "show interfaces counters, show pfc counters or show pfcwd stats of SONiC, show interfaces or SNMP_TRAP_LINK_DOWN messages of Junos";
        return Err(vec![source.error(1, "text", "no port", expected)]);
    }
    Ok(report)
}

/// Some names, and how many more there are.
fn some(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = names.get(..SHOWN).unwrap_or(names).join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
