//! Sources of the web page's result, and sources that the collector cannot read.

use std::fmt::{self, Write};

use super::Look;
use super::html::Esc;
use crate::health::SourceStatus;
use crate::serve::layout::{Health, Layout};
use crate::serve::phrases;

/// Targets and entries of files that are named.
const SHOWN: usize = 16;

/// On how many parts a result rests: `4 of 56 nodes, 32 of 448 NICs and 12 switches`.
pub(super) fn rests_on(layout: &Layout) -> String {
    let told: Vec<_> = layout
        .states()
        .into_iter()
        .filter_map(|(class, states)| {
            let total: usize = states.iter().sum();
            let known = total - states[Health::Unknown as usize];
            let class = if class == "host" { "node" } else { class };
            let class = class.replace("nic", "NIC");
            match total {
                0 => None,
                _ if known == total => Some(phrases::count(total, &class)),
                _ => Some(format!("{known} of {}", phrases::count(total, &class))),
            }
        })
        .collect();
    match told.as_slice() {
        [] => String::from("nothing"),
        [only] => only.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// Exporters whose scrapes fail, and entries of files that are no valid targets; empty if there are none.
pub(super) fn unreadable(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let targets = look.state.targets();
    let unreadable = targets.all.iter().filter_map(|(target, state)| {
        let last = state.last.filter(|last| last.is_unreadable())?;
        let why = state.problem.as_deref().unwrap_or(last.as_str());
        Some((target.name(), why.to_owned()))
    });
    let files = look.state.file_problems();
    let files = files
        .iter()
        .map(|problem| (problem.file.clone(), problem.why.clone()));
    let sources = look.state.sources();
    let sources = sources.iter().filter_map(|((_, name), source)| {
        let fails = matches!(source.status, SourceStatus::Failed | SourceStatus::Timeout);
        let why = source.problem.clone().filter(|_| fails)?;
        Some((name.clone(), why))
    });
    let unwritable = look.state.unwritable();
    let unwritable = unwritable.iter().filter(|(_, fails)| **fails);
    let unwritable = unwritable.map(|(what, _)| {
        let why = String::from("the state file cannot be written");
        ((*what).to_owned(), why)
    });
    let all: Vec<_> = unreadable
        .chain(files)
        .chain(sources)
        .chain(unwritable)
        .collect();
    if all.is_empty() {
        return Ok(());
    }
    write!(
        out,
        "<details open data-key=\"unreadable\"><summary>{} with a problem</summary><ul>",
        phrases::count(all.len(), "source")
    )?;
    for (name, why) in all.iter().take(SHOWN) {
        write!(out, "<li><code>{}</code>: {}</li>", Esc(name), Esc(why))?;
    }
    if all.len() > SHOWN {
        write!(out, "<li>and {} more</li>", all.len() - SHOWN)?;
    }
    out.push_str("</ul></details>");
    Ok(())
}
