//! Tables and matrices, with Grafana's widths of columns.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use super::Filled;
use super::data::Curve;
use super::look::{self, TRANSPARENT, blues, escaped, list, text};
use super::unit::Unit;

/// Default for a column. What does not fit needs scrolling.
const NARROWEST: f64 = 150.0;
const ROW: f64 = 36.0;

/// A cell: a label, or a value.
#[derive(Debug, Clone)]
enum Cell {
    Label(String),
    Value(f64),
}

type Row = BTreeMap<String, Cell>;

pub(super) fn draw(panel: &Filled<'_>) -> String {
    let matrix = list(panel.json, "/transformations")
        .iter()
        .find(|step| step["id"] == "groupingToMatrix");
    let (fields, mut rows) = match matrix {
        Some(step) => matrix_of(panel, &step["options"]),
        None => merged(panel),
    };
    sort(panel, &mut rows);
    let columns: Vec<_> = fields
        .iter()
        .map(|field| Column::new(panel, field))
        .collect();
    let (width, height) = panel.size;
    let widths = widths(&columns, width);
    let fits = ((height / ROW) as usize).saturating_sub(1);
    let mut html = format!(
        "<div class=\"table\"><table style=\"width:{:.0}px\"><tr>",
        widths.iter().sum::<f64>()
    );
    for (column, width) in columns.iter().zip(&widths) {
        let is_value = rows
            .iter()
            .any(|row| matches!(row.get(column.field), Some(Cell::Value(_))));
        let class = if is_value { "number" } else { "" };
        write!(
            html,
            "<th class=\"{class}\" style=\"width:{width:.0}px\">{}</th>",
            escaped(&column.title)
        )
        .expect("text");
    }
    let largest = largest(&rows);
    for row in rows.iter().take(fits) {
        html += "</tr><tr>";
        for column in &columns {
            html += &column.cell(row.get(column.field), largest);
        }
    }
    html += "</tr></table></div>";
    let (below, beside) = (rows.len().saturating_sub(fits), beside(&widths, width));
    if below + beside > 0 {
        write!(
            html,
            "<p class=\"more\">scroll: {below} more rows, {beside} more columns</p>"
        )
        .expect("text");
    }
    html
}

/// Number of columns outside of the panel.
fn beside(widths: &[f64], width: f64) -> usize {
    let mut end = 0.0;
    let ends = widths.iter().map(|width| {
        end += width;
        end
    });
    ends.filter(|end| *end > width + 1.0).count()
}

/// Rows of all queries with the same labels as one, and the fields in their order.
fn merged(panel: &Filled<'_>) -> (Vec<String>, Vec<Row>) {
    let is_single = panel.answers.len() == 1;
    let mut rows: BTreeMap<_, Row> = BTreeMap::new();
    for (target, answer) in list(panel.json, "/targets").iter().zip(&panel.answers) {
        let field = if is_single {
            String::from("Value")
        } else {
            format!("Value #{}", text(target, "/refId"))
        };
        for curve in answer {
            let row = rows.entry(curve.labels.clone()).or_default();
            let labels = curve.labels.iter();
            row.extend(labels.map(|(name, value)| (name.clone(), Cell::Label(value.clone()))));
            row.extend(
                curve
                    .last()
                    .map(|value| (field.clone(), Cell::Value(value))),
            );
        }
    }
    let rows: Vec<_> = rows.into_values().collect();
    let organized = list(panel.json, "/transformations")
        .iter()
        .find(|step| step["id"] == "organize");
    let order = organized.map_or(&Value::Null, |step| &step["options"]["indexByName"]);
    let all: BTreeSet<_> = rows.iter().flat_map(BTreeMap::keys).cloned().collect();
    let mut fields: Vec<_> = all.into_iter().collect();
    fields.sort_by_key(|field| order[field].as_u64().unwrap_or(u64::MAX));
    (fields, rows)
}

/// A row and a column for each value of two labels, in the order in which they come.
fn matrix_of(panel: &Filled<'_>, options: &Value) -> (Vec<String>, Vec<Row>) {
    let [row_label, column_label] = ["/rowField", "/columnField"].map(|field| text(options, field));
    let corner = format!("{row_label}\\{column_label}");
    let label = |curve: &Curve, name: &str| curve.labels.get(name).cloned().unwrap_or_default();
    let mut curves: Vec<_> = panel.answers.iter().flatten().collect();
    let transformations = list(panel.json, "/transformations").iter();
    for step in transformations.filter(|step| step["id"] == "sortBy") {
        let field = text(step, "/options/sort/0/field");
        curves.sort_by_key(|curve| label(curve, field));
    }
    let (mut columns, mut rows) = (vec![corner.clone()], Vec::<Row>::new());
    for curve in curves {
        let (name, column) = (label(curve, row_label), label(curve, column_label));
        let is_of =
            |row: &Row| matches!(row.get(&corner), Some(Cell::Label(known)) if *known == name);
        let at = rows.iter().position(is_of).unwrap_or_else(|| {
            rows.push(Row::from([(corner.clone(), Cell::Label(name.clone()))]));
            rows.len() - 1
        });
        rows[at].extend(
            curve
                .last()
                .map(|value| (column.clone(), Cell::Value(value))),
        );
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    (columns, rows)
}

fn sort(panel: &Filled<'_>, rows: &mut [Row]) {
    let by = text(panel.json, "/options/sortBy/0/displayName");
    let fields: BTreeSet<_> = rows.iter().flat_map(BTreeMap::keys).cloned().collect();
    let field = fields
        .iter()
        .find(|field| Column::new(panel, field).title == by);
    let Some(field) = field else { return };
    let value = |row: &Row| match row.get(field) {
        Some(Cell::Value(value)) => *value,
        _ => f64::NEG_INFINITY,
    };
    rows.sort_by(|left, right| value(right).total_cmp(&value(left)));
}

fn largest(rows: &[Row]) -> f64 {
    let cells = rows.iter().flat_map(BTreeMap::values);
    let values = cells.filter_map(|cell| match cell {
        Cell::Value(value) if value.is_finite() => Some(*value),
        _ => None,
    });
    values.fold(0.0, f64::max)
}

/// Grafana's: each with its configured width, the others share the rest, but are never narrower than they may be.
fn widths(columns: &[Column<'_>], width: f64) -> Vec<f64> {
    let mut widths: Vec<_> = columns
        .iter()
        .map(|column| column.property("custom.width").as_f64())
        .collect();
    loop {
        let open = widths.iter().filter(|width| width.is_none()).count();
        let left = width - widths.iter().flatten().sum::<f64>();
        let shared = left / open.max(1) as f64;
        let narrow = |column: &Column<'_>| {
            column
                .property("custom.minWidth")
                .as_f64()
                .unwrap_or(NARROWEST)
        };
        let pairs = columns.iter().zip(&widths);
        let too_narrow = pairs
            .clone()
            .position(|(column, width)| width.is_none() && narrow(column) > shared);
        match too_narrow {
            Some(at) => widths[at] = Some(narrow(&columns[at])),
            None => return pairs.map(|(_, width)| width.unwrap_or(shared)).collect(),
        }
    }
}

/// A field with its settings from the panel and overrides.
struct Column<'a> {
    field: &'a str,
    title: String,
    defaults: &'a Value,
    own: BTreeMap<&'a str, &'a Value>,
}

impl<'a> Column<'a> {
    fn new(panel: &Filled<'a>, field: &'a str) -> Self {
        let overrides = list(panel.json, "/fieldConfig/overrides").iter();
        let mut mine = overrides.filter(|one| text(one, "/matcher/options") == field);
        let properties = mine.next().map_or(&[][..], |one| list(one, "/properties"));
        let own: BTreeMap<_, _> = properties
            .iter()
            .map(|one| (text(one, "/id"), &one["value"]))
            .collect();
        let title = own
            .get("displayName")
            .and_then(|title| title.as_str())
            .unwrap_or(field);
        Self {
            field,
            title: title.to_owned(),
            defaults: &panel.json["fieldConfig"]["defaults"],
            own,
        }
    }

    /// An override, else the default of all fields.
    fn property(&self, id: &str) -> &'a Value {
        let default = id.split('.').fold(self.defaults, |value, key| &value[key]);
        self.own.get(id).copied().unwrap_or(default)
    }

    fn cell(&self, cell: Option<&Cell>, largest: f64) -> String {
        let kind = text(self.property("custom.cellOptions"), "/type");
        let is_link =
            !list(self.property("links"), "").is_empty() && self.own.contains_key("links");
        match cell {
            None => String::from("<td></td>"),
            Some(Cell::Label(label)) => {
                let color = label_color(self.property("mappings"), label);
                let style = if kind == "color-background" {
                    format!("background:{color};color:#fff")
                } else {
                    String::new()
                };
                let class = if is_link { "link" } else { "" };
                format!(
                    "<td style=\"{style}\"><span class=\"{class}\">{}</span></td>",
                    escaped(label)
                )
            }
            Some(Cell::Value(value)) => self.value(kind, *value, largest),
        }
    }

    fn value(&self, kind: &str, value: f64, largest: f64) -> String {
        let unit = Unit {
            id: self.property("unit").as_str().unwrap_or("short"),
            decimals: self.property("decimals").as_u64(),
        };
        let shown = escaped(&unit.shown(value));
        let by_size = text(self.property("color"), "/mode") == "continuous-blues";
        let color = if by_size {
            blues(value / largest.max(f64::MIN_POSITIVE))
        } else {
            look::threshold(self.property("thresholds"), value).to_owned()
        };
        let ink = if by_size && value < 0.6 * largest || color == TRANSPARENT {
            "#24292e"
        } else {
            "#fff"
        };
        match kind {
            "color-background" => format!(
                "<td class=\"number\" style=\"background:{color};color:{ink}\">{shown}</td>"
            ),
            "color-text" if color != TRANSPARENT => {
                format!("<td class=\"number\" style=\"color:{color}\"><b>{shown}</b></td>")
            }
            "gauge" => {
                let most = self.property("max").as_f64().unwrap_or(largest);
                let width = 60.0 * (value / most).clamp(0.0, 1.0);
                format!(
                    "<td class=\"number\"><span class=\"bar\" style=\"width:{width:.0}px;background:{color}\"></span>{shown}</td>"
                )
            }
            _ => format!("<td class=\"number\">{shown}</td>"),
        }
    }
}

/// The color of a label by a mapping.
fn label_color(mappings: &Value, label: &str) -> &'static str {
    let color = mappings
        .pointer("/0/options")
        .and_then(|options| options[label]["color"].as_str());
    color.map_or(TRANSPARENT, look::color)
}

#[test]
fn columns_share_the_width_and_lie_outside_when_there_are_too_many() {
    let column = |defaults: &'static Value| Column {
        field: "",
        title: String::new(),
        defaults,
        own: BTreeMap::new(),
    };
    let some = [&Value::Null; 4].map(column);
    assert_eq!(widths(&some, 800.0), [200.0; 4]);
    assert_eq!(widths(&some, 400.0), [150.0; 4]);
    assert_eq!(beside(&[150.0; 4], 400.0), 2);
}
