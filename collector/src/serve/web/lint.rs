//! Wiring findings on the web page, collapsed; nothing if there are none.

use std::fmt::{self, Write};

use super::Look;
use super::html::Esc;
use crate::serve::phrases;

/// Findings that the page shows; the API returns all.
const SHOWN: usize = 24;

pub(super) fn section(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let findings = &look.snapshot.view.lint;
    if findings.is_empty() {
        return Ok(());
    }
    write!(
        out,
        "<details class=\"lint\" data-key=\"lint\"><summary>Wiring: {}</summary><ul>",
        phrases::count(findings.len(), "finding")
    )?;
    for finding in findings.iter().take(SHOWN) {
        write!(
            out,
            "<li><strong>{}</strong> {} {}</li>",
            finding.rule.name,
            Esc(&finding.sentence),
            finding.rule.action
        )?;
    }
    if findings.len() > SHOWN {
        write!(
            out,
            "<li><a href=\"{}api/v1/topology/lint\">{} more</a></li>",
            look.root,
            findings.len() - SHOWN
        )?;
    }
    out.push_str("</ul></details>\n");
    Ok(())
}
