//! What the detectors check, as text or as the API's JSON.

use std::fmt::{self, Write as _};

use anyhow::{Context as _, bail};
use railscope_collector::config::Config;
use railscope_collector::serve::api::detectors::{Detectors, Rule};

use super::Format;

/// All detectors, one, or those that name a class.
pub(super) fn tell(name: Option<&str>, format: Format) -> anyhow::Result<String> {
    let detectors = match Detectors::of(name, &Config::default().runbook) {
        Ok(detectors) => detectors,
        Err(expected) => bail!("{:?}: expected {expected}", name.unwrap_or_default()),
    };
    Ok(match format {
        Format::Text => words(&detectors)?,
        Format::Json => {
            let json = serde_json::to_string_pretty(&detectors);
            json.context("cannot write JSON")? + "\n"
        }
    })
}

fn words(detectors: &Detectors) -> Result<String, fmt::Error> {
    let mut out = String::new();
    for (number, detector) in detectors.detectors.iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        writeln!(out, "{}", detector.name)?;
        for rule in &detector.rules {
            in_words(&mut out, rule)?;
        }
    }
    Ok(out)
}

fn in_words(out: &mut String, rule: &Rule) -> fmt::Result {
    let signal = match rule.signal {
        "" => String::new(),
        signal => format!(" by {signal}"),
    };
    writeln!(
        out,
        "  {}{signal}: {} ({})",
        rule.class, rule.title, rule.severity
    )?;
    writeln!(out, "    checks      {}", rule.check)?;
    writeln!(out, "    threshold   {}", rule.threshold)?;
    for one in &rule.thresholds {
        writeln!(
            out,
            "      {}: {} {} ({})",
            one.what, one.value, one.unit, one.source
        )?;
    }
    writeln!(out, "    clears when {}", rule.clears)?;
    writeln!(out, "    what to do  {}", rule.action)?;
    writeln!(out, "    runbook     {}", rule.runbook)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detector_is_told_with_every_number_and_a_wrong_name_with_those_there_are() {
        let text = tell(Some("flapping-port"), Format::Text).expect("known");
        for said in [
            "flapping-port\n  port-flapping: Link is flapping",
            "link failures: 2 failures (one is a moved cable",
            "clears when The link stays up",
            "/port-flapping.md",
        ] {
            assert!(text.contains(said), "{said}\n{text}");
        }
        let all = tell(None, Format::Json).expect("all");
        let all: serde_json::Value = serde_json::from_str(&all).expect("JSON");
        let last = all["detectors"].as_array().and_then(|all| all.last());
        assert_eq!(last.expect("some")["name"], "root-cause");
        let error = tell(Some("flapping"), Format::Text).expect_err("unknown");
        assert!(error.to_string().contains("flapping-port"), "{error}");
    }
}
