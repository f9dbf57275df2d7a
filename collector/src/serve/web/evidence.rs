//! The evidence of an incident, by what was checked: ten lines that are read, and the rest behind a fold.

use std::fmt::{self, Write};

use super::html::Esc;
use crate::diagnose::incident::{Finding, Incident};

/// Lines before the fold.
const SHOWN: usize = 10;
/// Lines of one check behind it; all of them are in the API.
const MOST: usize = 256;

/// What one check has found.
struct Group<'a> {
    first: &'a Finding,
    statements: Vec<&'a str>,
}

/// Findings of the same check together, in the order of the strongest of each.
fn groups(findings: &[Finding]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for finding in findings {
        let check = |finding: &Finding| (finding.evidence.detector, finding.evidence.class.name);
        let known = groups.iter_mut().find(|group| {
            check(group.first) == check(finding) && group.first.explanation == finding.explanation
        });
        let statement = finding.evidence.statement.as_str();
        match known {
            Some(group) => group.statements.push(statement),
            None => groups.push(Group {
                first: finding,
                statements: vec![statement],
            }),
        }
    }
    groups
}

/// How many lines of each group stand before the fold: one of each, then more of the first.
fn shares(groups: &[Group<'_>]) -> Vec<usize> {
    let mut left = SHOWN.saturating_sub(groups.len().min(SHOWN));
    let shares = groups.iter().enumerate().map(|(place, group)| {
        if place >= SHOWN {
            return 0;
        }
        let more = left.min(group.statements.len() - 1);
        left -= more;
        1 + more
    });
    shares.collect()
}

pub(super) fn section(out: &mut String, incident: &Incident) -> fmt::Result {
    let groups = groups(&incident.findings);
    let shares = shares(&groups);
    out.push_str("<h2>Evidence</h2><ol class=\"findings\">");
    let all = || groups.iter().zip(&shares);
    for (group, share) in all().filter(|(_, share)| **share > 0) {
        lines(out, group, 0..*share)?;
    }
    out.push_str("</ol>");
    let folded: usize = all()
        .map(|(group, share)| group.statements.len() - share)
        .sum();
    if folded > 0 {
        write!(
            out,
            "<details data-key=\"{}-evidence\"><summary>{folded} more of {} pieces of evidence</summary><ol class=\"findings\">",
            Esc(&incident.id),
            incident.findings.len()
        )?;
        for (group, share) in all() {
            let all = group.statements.len();
            if *share < all {
                lines(out, group, *share..all)?;
            }
        }
        out.push_str("</ol></details>");
    }
    Ok(())
}

/// Some lines of one check, and what was checked.
fn lines(out: &mut String, group: &Group<'_>, lines: std::ops::Range<usize>) -> fmt::Result {
    let (evidence, why) = (&group.first.evidence, &group.first.explanation);
    out.push_str("<li>");
    let chosen = group.statements.iter().skip(lines.start);
    for statement in chosen.take(lines.len().min(MOST)) {
        write!(out, "<p>{}</p>", Esc(statement))?;
    }
    if lines.len() > MOST {
        write!(out, "<p>and {} more, in the API</p>", lines.len() - MOST)?;
    }
    if lines.start == 0 {
        write!(
            out,
            "<dl><dt>Check</dt><dd>{}: {}</dd><dt>Threshold</dt><dd>{}</dd><dt>Clears when</dt><dd>{}</dd></dl>",
            Esc(evidence.detector),
            Esc(why.check),
            Esc(&why.threshold),
            Esc(why.clears)
        )?;
    } else {
        write!(
            out,
            "<dl><dt>Check</dt><dd>{}, as above</dd></dl>",
            Esc(evidence.detector)
        )?;
    }
    out.push_str("</li>");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::{GPU_SLOW, LINK_ERRORS};
    use crate::detect::detector::{Evidence, Explanation};
    use railscope_model::identity::Part;

    fn finding(number: usize, of_errors: bool) -> Finding {
        let part: Part = format!("host/n{number}").parse().expect("a part");
        Finding {
            evidence: Evidence {
                detector: if of_errors {
                    "error-counters"
                } else {
                    "slow-gpu"
                },
                signal: "",
                part,
                class: if of_errors { &LINK_ERRORS } else { &GPU_SLOW },
                effect: 0.0,
                statement: format!("Line {number}."),
                victims: Vec::new(),
                related: Vec::new(),
                alike: Vec::new(),
            },
            explanation: Explanation {
                check: "checked",
                threshold: String::from("any"),
                clears: "never",
            },
        }
    }

    #[test]
    fn ten_lines_stand_before_the_fold_and_every_check_has_one_of_them() {
        for (errors, slow, expected) in [
            (0, 0, vec![]),
            (3, 2, vec![3, 2]),
            (10, 0, vec![10]),
            (64, 3, vec![9, 1]),
            (1, 64, vec![1, 9]),
        ] {
            let findings: Vec<_> = (0..errors)
                .map(|number| finding(number, true))
                .chain((0..slow).map(|number| finding(number, false)))
                .collect();
            let groups = groups(&findings);
            assert_eq!(shares(&groups), expected, "{errors} and {slow}");
        }
    }

    #[test]
    fn many_checks_are_folded_too() {
        let findings: Vec<_> = (0..14)
            .map(|number| {
                let mut finding = finding(number, true);
                finding.explanation.threshold = number.to_string();
                finding
            })
            .collect();
        let groups = groups(&findings);
        let shares = shares(&groups);
        assert_eq!((groups.len(), shares.iter().sum::<usize>()), (14, SHOWN));
    }
}
