//! The wiring plan: which port should be cabled to which, as a table that a site keeps (`docs/wiring-plan.md`).

use std::collections::HashMap;
use std::fmt;

use crate::identity::{Part, PortName};

/// All cables that there should be.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WiringPlan {
    /// In the order of the table.
    pub cables: Vec<PlannedCable>,
}

/// One cable: a row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedCable {
    /// Its two ends: node or lower switch first, as people write it; order means nothing.
    pub ends: [Socket; 2],
    /// Rail, where the plan has rails.
    pub rail: Option<u16>,
    /// Plane, where the plan has several.
    pub plane: Option<u16>,
    /// Length in metres.
    pub length_meters: Option<f64>,
    /// What is printed on it.
    pub serial: Option<String>,
}

/// A port of a NIC or a switch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Socket {
    /// A [`Part::Nic`] or a [`Part::Switch`].
    pub part: Part,
    /// Its number from 1, or its name on a switch that names its ports.
    pub port: PortName,
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {}", self.part, self.port)
    }
}

/// One thing that is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {field}: found {found}, expected {expected}")]
pub struct PlanError {
    /// The plan, as it was named to [`WiringPlan::parse`].
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column of the table.
    pub field: String,
    /// What was found there.
    pub found: String,
    /// What should.
    pub expected: String,
}

/// Columns of the table. The first four must be there.
const COLUMNS: [&str; 8] = [
    "from",
    "from_port",
    "to",
    "to_port",
    "rail",
    "plane",
    "length_m",
    "serial",
];
const NEEDED: usize = 4;

impl WiringPlan {
    /// Reads a plan. `file` is what errors call it.
    ///
    /// # Errors
    /// Everything that is wrong, line by line; a plan that is wrong in one line is not used in part.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<PlanError>> {
        let mut reader = Reader {
            file,
            line: 0,
            errors: Vec::new(),
        };
        let mut plan = Self::default();
        let mut columns: Option<Vec<usize>> = None;
        let mut taken: HashMap<Socket, usize> = HashMap::new();
        // Spreadsheets prepend a byte order mark.
        let text = text.trim_start_matches('\u{feff}');
        for (line, text) in (1..).zip(text.lines()) {
            reader.line = line;
            if text.trim().is_empty() || text.starts_with('#') {
                continue;
            }
            let Some(fields) = reader.fields(text) else {
                continue;
            };
            let Some(columns) = &columns else {
                // Without its header nothing of the table can be read.
                match reader.header(&fields) {
                    Some(found) => columns = Some(found),
                    None => return Err(reader.errors),
                }
                continue;
            };
            if let Some(cable) = reader.cable(columns, &fields) {
                reader.take(&mut taken, &cable);
                plan.cables.push(cable);
            }
        }
        if columns.is_none() {
            reader.line = reader.line.max(1);
            reader.wrong("from", "no header", &COLUMNS[..NEEDED].join(","));
        }
        if reader.errors.is_empty() {
            Ok(plan)
        } else {
            Err(reader.errors)
        }
    }
}

/// Reads one line after another and gathers what is wrong.
struct Reader<'a> {
    file: &'a str,
    line: usize,
    errors: Vec<PlanError>,
}

impl Reader<'_> {
    fn wrong(&mut self, field: &str, found: &str, expected: &str) {
        self.errors.push(PlanError {
            file: self.file.to_owned(),
            line: self.line,
            field: field.to_owned(),
            found: found.to_owned(),
            expected: expected.to_owned(),
        });
    }

    /// Cuts a line at its commas. A field in double quotes may hold commas, and quotes that are doubled
    /// (RFC 4180); no field spans several lines.
    fn fields(&mut self, line: &str) -> Option<Vec<String>> {
        let mut fields = vec![String::new()];
        let mut quoted = false;
        let mut rest = line.chars().peekable();
        while let Some(sign) = rest.next() {
            let field = fields.last_mut()?;
            match sign {
                '"' if quoted && rest.next_if_eq(&'"').is_some() => field.push('"'),
                '"' if quoted || field.trim().is_empty() => quoted = !quoted,
                ',' if !quoted => fields.push(String::new()),
                other => field.push(other),
            }
        }
        if quoted {
            self.wrong("row", "a quote that does not end", "it to end on its line");
            return None;
        }
        Some(fields.iter().map(|field| field.trim().to_owned()).collect())
    }

    /// For each field its place in [`COLUMNS`].
    fn header(&mut self, fields: &[String]) -> Option<Vec<usize>> {
        let mut columns = Vec::new();
        for field in fields {
            match COLUMNS.iter().position(|column| column == field) {
                Some(column) if columns.contains(&column) => {
                    self.wrong(field, "the column twice", "it once");
                }
                Some(column) => columns.push(column),
                None => self.wrong("header", &format!("{field:?}"), &COLUMNS.join(", ")),
            }
        }
        for (number, column) in COLUMNS[..NEEDED].iter().enumerate() {
            if self.errors.is_empty() && !columns.contains(&number) {
                self.wrong(column, "no such column", "it in the header");
            }
        }
        self.errors.is_empty().then_some(columns)
    }

    fn cable(&mut self, columns: &[usize], fields: &[String]) -> Option<PlannedCable> {
        if fields.len() != columns.len() {
            let (found, expected) = (fields.len(), columns.len());
            self.wrong("row", &format!("{found} fields"), &format!("{expected}"));
            return None;
        }
        let field = |column: &str| {
            let mut named = columns.iter().zip(fields);
            let (_, text) = named.find(|(number, _)| COLUMNS[**number] == column)?;
            Some(text.as_str()).filter(|text| !text.is_empty())
        };
        let from = self.socket("from", field("from"), "from_port", field("from_port"));
        let to = self.socket("to", field("to"), "to_port", field("to_port"));
        let rail = self.number("rail", field("rail"));
        let plane = self.number("plane", field("plane"));
        let length = self.length(field("length_m"));
        Some(PlannedCable {
            ends: [from?, to?],
            rail: rail?,
            plane: plane?,
            length_meters: length?,
            serial: field("serial").map(str::to_owned),
        })
    }

    fn socket(
        &mut self,
        part_field: &str,
        part: Option<&str>,
        port_field: &str,
        port: Option<&str>,
    ) -> Option<Socket> {
        let (part, port) = (part.unwrap_or_default(), port.unwrap_or_default());
        let found = match part.parse::<Part>() {
            Ok(part @ (Part::Nic(..) | Part::Switch(_))) => Some(part),
            _ => {
                let expected = "a NIC or a switch, such as nic/gpu-node-00:mlx5_0 or switch/leaf-1";
                self.wrong(part_field, &format!("{part:?}"), expected);
                None
            }
        };
        // Adapters number their ports; only switches name them.
        let named = |port: &PortName| match port {
            PortName::Number(number) => *number > 0,
            PortName::Name(name) => matches!(found, Some(Part::Switch(_))) && !is_numeric(name),
        };
        let port_found = port.parse().ok().filter(named);
        if port_found.is_none() {
            let expected = match found {
                Some(Part::Nic(..)) => "a port from 1 to 65535",
                _ => "a port from 1 to 65535, or its name",
            };
            self.wrong(port_field, &format!("{port:?}"), expected);
        }
        Some(Socket {
            part: found?,
            port: port_found?,
        })
    }

    /// An optional number.
    fn number(&mut self, field: &str, text: Option<&str>) -> Option<Option<u16>> {
        let Some(text) = text else {
            return Some(None);
        };
        let number = text.parse().ok();
        if number.is_none() {
            self.wrong(
                field,
                &format!("{text:?}"),
                "a number from 0 to 65535, or nothing",
            );
        }
        number.map(Some)
    }

    /// An optional length.
    fn length(&mut self, text: Option<&str>) -> Option<Option<f64>> {
        let Some(text) = text else {
            return Some(None);
        };
        let number = text.parse::<f64>().ok();
        let number = number.filter(|meters| meters.is_finite() && *meters > 0.0);
        if number.is_none() {
            self.wrong("length_m", &format!("{text:?}"), "metres, or nothing");
        }
        number.map(Some)
    }

    /// Two cables in one port cannot be.
    fn take(&mut self, taken: &mut HashMap<Socket, usize>, cable: &PlannedCable) {
        for (field, end) in ["from_port", "to_port"].into_iter().zip(&cable.ends) {
            if let Some(other) = taken.insert(end.clone(), self.line) {
                let found = format!("{end}, which has a cable in line {other}");
                self.wrong(field, &found, "a port without a cable");
            }
        }
    }
}

impl fmt::Display for WiringPlan {
    /// The table. Optional columns that no cable fills are omitted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<[String; COLUMNS.len()]> =
            self.cables.iter().map(PlannedCable::fields).collect();
        let filled = |column: usize| column < NEEDED || rows.iter().any(|r| !r[column].is_empty());
        let shown: Vec<usize> = (0..COLUMNS.len())
            .filter(|column| filled(*column))
            .collect();
        let mut write = |fields: &dyn Fn(usize) -> String| {
            let line: Vec<String> = shown.iter().map(|column| fields(*column)).collect();
            writeln!(f, "{}", line.join(","))
        };
        write(&|column| COLUMNS[column].to_owned())?;
        for row in &rows {
            write(&|column| quoted(&row[column]))?;
        }
        Ok(())
    }
}

impl PlannedCable {
    fn fields(&self) -> [String; COLUMNS.len()] {
        fn text(value: Option<impl fmt::Display>) -> String {
            value.map_or_else(String::new, |value| value.to_string())
        }
        let [from, to] = &self.ends;
        [
            from.part.to_string(),
            from.port.to_string(),
            to.part.to_string(),
            to.port.to_string(),
            text(self.rail),
            text(self.plane),
            text(self.length_meters),
            text(self.serial.as_ref()),
        ]
    }
}

/// Whether a name is a number after all: too large a one, a negative one, one with leading zeros.
fn is_numeric(name: &str) -> bool {
    name.trim_start_matches(['+', '-'])
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// A field as it can stand between commas.
fn quoted(field: &str) -> String {
    if field.contains([',', '"']) || field.trim() != field {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
