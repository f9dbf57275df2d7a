//! Whether the plan or what was built is out of the common run: where the plan breaks a rule that the plan itself and
//! the cables keep everywhere else, the plan is wrong.

use std::collections::BTreeSet;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::Part;
use railscope_model::plan::WiringPlan;

use super::{Case, Finding, WRONG_PLAN, by_peers, is_about_cables};
use crate::fabric::{SubnetMerge, assign_rails, judge, plan_fabric};

/// Decides for each finding by the plan whether the plan is wrong. `odd` are the cables that differ from their
/// peers as they were built; `plan` calls everything by the names of what was seen.
pub(super) fn blame(
    case: &Case<'_>,
    plan: &WiringPlan,
    odd: &BTreeSet<Part>,
    findings: &mut [Finding],
) {
    let is_cable = |finding: &&mut Finding| {
        is_about_cables(finding.rule) && !finding.parts.iter().any(|part| odd.contains(part))
    };
    let mut open: Vec<&mut Finding> = findings.iter_mut().filter(is_cable).collect();
    if open.is_empty() {
        return;
    }
    let drawn = odd_by_plan(plan);
    for finding in &mut open {
        let own = |drawn: &&Finding| {
            let [first, ..] = finding.parts.as_slice() else {
                return false;
            };
            drawn.parts.contains(first)
        };
        let Some(why) = drawn.iter().find(own) else {
            continue;
        };
        let built = std::mem::take(&mut finding.sentence);
        finding.rule = &WRONG_PLAN;
        finding.sentence = format!("The plan is wrong, not the cable: {}", lower(&built));
        finding.evidence = vec![
            format!(
                "as planned it would be a {}: {}",
                why.rule.name.replace('-', " "),
                lower(&why.sentence)
            ),
            format!("as built it fits its peers on {}", case.verdict.kind),
        ];
    }
}

/// What would be wrong with the wiring if it were as planned, by the plan's own regularity.
fn odd_by_plan(plan: &WiringPlan) -> Vec<Finding> {
    let mut fabric = plan_fabric(plan, Timestamp(0), None);
    assign_rails(&mut fabric);
    let verdict = judge(&fabric, &SubnetMerge::default());
    let mut findings = by_peers(&Case::of(&fabric, &verdict, true));
    findings.retain(|finding| is_about_cables(finding.rule));
    findings
}

/// A sentence behind a colon.
fn lower(sentence: &str) -> String {
    let mut letters = sentence.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => sentence.to_owned(),
    }
}
