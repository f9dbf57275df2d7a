//! NVIDIA's cabling plan (NDT, of UFM): a table of start device and port, end device and port.

use railscope_model::plan::{PlanError, PlannedCable, Socket, WiringPlan};

use super::Source;
use super::cabling::{cable as cable_between, socket};

/// Columns that must be there; UFM writes others beside them, which report nothing of the cable's
/// ends.
const NEEDED: [&str; 4] = ["StartDevice", "StartPort", "EndDevice", "EndPort"];

/// Reads the table. A port that is called `Port 7` is of a switch; any other name is a host's device, with or without
/// the name of the host before it.
pub(super) fn read(source: &mut Source<'_>) -> Result<WiringPlan, Vec<PlanError>> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(source.text.as_bytes());
    let mut columns: Option<[usize; 4]> = None;
    let mut errors = Vec::new();
    let mut plan = WiringPlan::default();
    for record in reader.records() {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                let line = error.position().map_or(0, csv::Position::line) as usize;
                errors.push(source.error(line, "row", &error.to_string(), "fields between commas"));
                continue;
            }
        };
        let line = record.position().map_or(0, csv::Position::line) as usize;
        let Some(columns) = columns else {
            match header(source, line, &record) {
                Ok(found) => columns = found,
                Err(error) => return Err(vec![error]),
            }
            continue;
        };
        if record.get(0).is_some_and(|first| first.starts_with('#')) {
            continue;
        }
        match cable(source, line, &record, columns) {
            Ok(cable) => plan.cables.push(cable),
            Err(error) => errors.push(error),
        }
    }
    if columns.is_none() {
        let expected = NEEDED.join(",");
        errors.push(source.error(1, "header", "no header", &expected));
    }
    if errors.is_empty() {
        Ok(plan)
    } else {
        Err(errors)
    }
}

/// Places of the needed columns; none where the row is no header yet.
fn header(
    source: &Source<'_>,
    line: usize,
    record: &csv::StringRecord,
) -> Result<Option<[usize; 4]>, PlanError> {
    let place = |wanted: &str| {
        let mut fields = record
            .iter()
            .map(|field| field.trim_start_matches('#').trim());
        fields.position(|field| field.eq_ignore_ascii_case(wanted))
    };
    if place(NEEDED[0]).is_none() {
        return Ok(None);
    }
    let mut columns = [0; 4];
    for (column, wanted) in columns.iter_mut().zip(NEEDED) {
        *column = place(wanted).ok_or_else(|| {
            source.error(
                line,
                "header",
                &format!("no column {wanted}"),
                &NEEDED.join(","),
            )
        })?;
    }
    Ok(Some(columns))
}

fn cable(
    source: &Source<'_>,
    line: usize,
    record: &csv::StringRecord,
    columns: [usize; 4],
) -> Result<PlannedCable, PlanError> {
    let field = |number: usize| {
        let text = record.get(columns[number]).unwrap_or_default();
        if text.is_empty() {
            Err(source.error(line, NEEDED[number], "nothing", "a name"))
        } else {
            Ok(text)
        }
    };
    let end = |device: usize, port: usize| {
        let (name, text) = (field(device)?, field(port)?);
        named_end(name, text).ok_or_else(|| {
            source.error(line, NEEDED[device], name, "the name of a host or a switch")
        })
    };
    Ok(cable_between([end(0, 1)?, end(2, 3)?]))
}

fn named_end(device: &str, port: &str) -> Option<Socket> {
    let number = port.strip_prefix("Port").unwrap_or(port).trim();
    if number.parse::<u16>().is_ok() {
        return socket(device, true, number);
    }
    socket(device, false, port.strip_prefix(device).unwrap_or(port))
}
