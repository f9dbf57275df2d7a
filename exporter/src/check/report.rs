//! The table of `railscope check`, as text and as JSON.

use std::fmt::{self, Write as _};

use serde::Serialize;

use super::Rule;

/// Characters of the third column that stand below each other; longer lists of parts stick out.
const WIDEST_PART: usize = 24;

/// What became of one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Not as it should be, and an operator can repair it.
    Finding,
    /// Below what the hardware supports, because of how it is rented or shared.
    Cost,
    /// Could not be evaluated.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Finding => "FINDING",
            Self::Cost => "cost",
            Self::Unknown => "unknown",
        })
    }
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Name of the rule.
    pub check: &'static str,
    /// What became of it.
    pub verdict: Verdict,
    /// What was checked; the count if all is ok.
    pub part: String,
    /// The expected value; the rule's question if all is ok.
    pub should: String,
    /// The measured value, or why it is not known.
    pub gives: String,
    /// What to do about it; empty if all is ok.
    pub fix: String,
}

/// What the node is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Host name.
    pub name: String,
    /// `bare_metal`, `virtual_machine` or `unknown`.
    pub model: String,
    /// Empty if there is none; the same holds for the next fields.
    pub hypervisor: String,
    /// `aws`, `azure` …
    pub cloud: String,
    /// What the check itself runs in.
    pub container: String,
    /// `kubernetes`, `slurm`.
    pub orchestrator: String,
    /// GPUs on the PCI bus.
    pub gpus: usize,
    /// RDMA devices on the PCI bus.
    pub nics: usize,
    /// RDMA ports without hardware (soft-RoCE).
    pub software_ports: usize,
}

/// Expected and measured values of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What the node is.
    pub node: Node,
    /// Hard faults that explain other rows: GPUs that do not respond.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headlines: Vec<String>,
    /// What became of every question that applies to it.
    pub rows: Vec<Row>,
    /// Names of the rules that found nothing to check.
    pub not_applicable: Vec<&'static str>,
}

impl Report {
    pub(super) fn new(node: Node) -> Self {
        Self {
            node,
            headlines: Vec::new(),
            rows: Vec::new(),
            not_applicable: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, rule: &Rule, out: Out) {
        self.headlines.extend(out.headlines);
        if out.fine == 0 && out.rows.is_empty() {
            self.not_applicable.push(rule.name);
            return;
        }
        if out.fine > 0 {
            self.rows.push(Row {
                check: rule.name,
                verdict: Verdict::Ok,
                part: count(out.fine, rule.parts),
                should: rule.question.to_owned(),
                gives: "yes".to_owned(),
                fix: String::new(),
            });
        }
        let named = out.rows.into_iter().map(|row| Row {
            check: rule.name,
            ..row
        });
        self.rows.extend(named);
    }

    /// Rows with this result.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows
            .iter()
            .filter(|row| row.verdict == verdict)
            .count()
    }

    /// The table as text: one line a row, the fix below it.
    pub fn text(&self) -> String {
        let headlines = self.headlines.iter();
        let mut out: String = headlines.map(|line| format!("{line}\n")).collect();
        out += &self.heading();
        let width = |of: fn(&Row) -> &str| {
            let widths = self.rows.iter().map(|row| of(row).chars().count());
            widths.max().unwrap_or_default()
        };
        let check = width(|row| row.check);
        let part = width(|row| &row.part).min(WIDEST_PART);
        for row in &self.rows {
            out += &format!(
                "{:7}  {:check$}  {:part$}  ",
                row.verdict, row.check, row.part
            );
            out += &match row.verdict {
                Verdict::Ok => format!("{} {}\n", row.should, row.gives),
                Verdict::Unknown => format!("{}: {}\n", row.should, row.gives),
                _ => format!("should give {}; gives {}\n", row.should, row.gives),
            };
            if !row.fix.is_empty() {
                out += &format!("{:7}  {:check$}  fix: {}\n", "", "", row.fix);
            }
        }
        if !self.not_applicable.is_empty() {
            out += &format!("nothing to check: {}\n", self.not_applicable.join(", "));
        }
        let counts = [
            Verdict::Finding,
            Verdict::Cost,
            Verdict::Unknown,
            Verdict::Ok,
        ]
        .map(|verdict| self.count(verdict));
        let [findings, costs, unknown, fine] = counts;
        let findings = count(findings, "findings");
        out += &format!(
            "{findings}, {costs} by the deployment model, {unknown} not evaluated, {fine} ok\n"
        );
        out
    }

    fn heading(&self) -> String {
        let node = &self.node;
        let name = match node.name.as_str() {
            "" => "this node",
            name => name,
        };
        let mut out = format!(
            "{name}: {}, {}",
            count(node.gpus, "GPUs"),
            count(node.nics, "RDMA devices")
        );
        if node.software_ports > 0 {
            out += &format!(" and {} in software", count(node.software_ports, "ports"));
        }
        for (word, value) in [
            ("model", &node.model),
            ("hypervisor", &node.hypervisor),
            ("cloud", &node.cloud),
            ("container", &node.container),
            ("orchestrator", &node.orchestrator),
        ] {
            if !value.is_empty() {
                // Writing into a string does not fail.
                write!(out, ", {word} {value}").ok();
            }
        }
        out.push('\n');
        out
    }
}

/// What one rule found.
#[derive(Debug, Default)]
pub(super) struct Out {
    fine: usize,
    headlines: Vec<String>,
    rows: Vec<Row>,
}

impl Out {
    /// One more part that is as it should be.
    pub(super) fn fine(&mut self) {
        self.fine += 1;
    }

    /// A line above the table.
    pub(super) fn headline(&mut self, line: String) {
        self.headlines.push(line);
    }

    pub(super) fn finding(
        &mut self,
        part: impl Into<String>,
        should: impl Into<String>,
        gives: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.push(
            Verdict::Finding,
            part.into(),
            should.into(),
            gives.into(),
            fix.into(),
        );
    }

    pub(super) fn cost(
        &mut self,
        part: impl Into<String>,
        should: impl Into<String>,
        gives: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.push(
            Verdict::Cost,
            part.into(),
            should.into(),
            gives.into(),
            fix.into(),
        );
    }

    /// `what` could not be evaluated, and `why`.
    pub(super) fn unknown(
        &mut self,
        part: impl Into<String>,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.push(
            Verdict::Unknown,
            part.into(),
            what.into(),
            why.into(),
            fix.into(),
        );
    }

    fn push(&mut self, verdict: Verdict, part: String, should: String, gives: String, fix: String) {
        self.rows.push(Row {
            check: "",
            verdict,
            part,
            should,
            gives,
            fix,
        });
    }
}

/// `1 port`, `8 ports`: `things` is a plural that ends in `s`.
pub(super) fn count(number: usize, things: &str) -> String {
    let one = things.strip_suffix('s').filter(|_| number == 1);
    format!("{number} {}", one.unwrap_or(things))
}

/// `a, b, c and 5 more`.
pub(super) fn list<T: fmt::Display>(items: &[T]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<String> = items.iter().take(SHOWN).map(T::to_string).collect();
    let shown = shown.join(", ");
    match items.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
