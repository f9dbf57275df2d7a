//! Railscope's wiring plan as TOML: `[[cables]]` with the columns of the table.

use railscope_model::plan::{PlanError, WiringPlan};
use serde::Deserialize;

use super::Source;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    cables: Vec<toml::Spanned<RawCable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCable {
    from: String,
    from_port: Port,
    to: String,
    to_port: Port,
    rail: Option<u16>,
    plane: Option<u16>,
    length_m: Option<f64>,
    serial: Option<String>,
}

/// A number, or a name.
#[derive(Deserialize)]
#[serde(untagged)]
enum Port {
    Number(u16),
    Name(String),
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Reads the plan by way of its table, so that both forms mean the same; errors name the lines of the TOML.
pub(super) fn read_toml(source: &Source<'_>) -> Result<WiringPlan, Vec<PlanError>> {
    let raw: Raw = toml::from_str(source.text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let expected = "[[cables]] with from, from_port, to, to_port and optional rail, plane, length_m, serial";
        vec![source.error(line_of(source.text, at), "cables", error.message().split(',').next().unwrap_or_default(), expected)]
    })?;
    let mut table = String::from("from,from_port,to,to_port,rail,plane,length_m,serial\n");
    let mut lines = vec![1];
    for cable in &raw.cables {
        lines.push(line_of(source.text, cable.span().start));
        let cable = cable.get_ref();
        table += &row(cable);
        table.push('\n');
    }
    WiringPlan::parse(source.file, &table).map_err(|mut errors| {
        for error in &mut errors {
            error.line = lines.get(error.line - 1).copied().unwrap_or(error.line);
        }
        errors
    })
}

fn row(cable: &RawCable) -> String {
    let text = |value: Option<String>| value.unwrap_or_default();
    let fields = [
        cable.from.clone(),
        cable.from_port.to_string(),
        cable.to.clone(),
        cable.to_port.to_string(),
        text(cable.rail.map(|rail| rail.to_string())),
        text(cable.plane.map(|plane| plane.to_string())),
        text(cable.length_m.map(|length| length.to_string())),
        text(cable.serial.clone()),
    ];
    let quoted = fields.map(|field| {
        format!(
            "\"{}\"",
            field.replace('"', "\"\"").replace(['\n', '\r'], " ")
        )
    });
    quoted.join(",")
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}
