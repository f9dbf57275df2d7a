//! Plans are read as written by hand, and errors are reported line by line.

use super::*;

const HEADER: &str = "from,from_port,to,to_port,rail,plane,length_m,serial\n";

fn errors(text: &str) -> Vec<String> {
    let errors = WiringPlan::parse("plan.csv", text).expect_err(text);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn columns_stand_in_any_order_and_optional_ones_may_be_empty_or_missing() {
    let text = "# cables of the first rack\nto_port,to,from,from_port,rail\n\n\
                7, switch/leaf-su0-r3 ,nic/n1:mlx5_3,1,3\n1,\"switch/spine, left\",switch/leaf-su0-r3,33,\n";
    let plan = WiringPlan::parse("plan.csv", text).expect("a plan");
    let [first, second] = &plan.cables[..] else {
        panic!("{plan:?}");
    };
    assert_eq!(
        first.ends.each_ref().map(ToString::to_string),
        ["nic/n1:mlx5_3 port 1", "switch/leaf-su0-r3 port 7"]
    );
    assert_eq!(
        (first.rail, first.plane, second.rail),
        (Some(3), None, None)
    );
    assert_eq!(second.ends[1].to_string(), "switch/spine, left port 1");
    let written = plan.to_string();
    assert!(
        written.starts_with("from,from_port,to,to_port,rail\n"),
        "{written}"
    );
    assert_eq!(WiringPlan::parse("again", &written), Ok(plan));
}

#[test]
fn every_column_comes_back_as_it_was_written() {
    let row = "nic/n1:mlx5_0,1,switch/leaf,2,0,1,1.5,\"MT \"\"7\"\", spare\"\n";
    let text = format!("{HEADER}{row}");
    let sheet = format!("\u{feff}{}", text.replace('\n', "\r\n"));
    assert_eq!(
        WiringPlan::parse("a", &sheet),
        WiringPlan::parse("a", &text)
    );
    let plan = WiringPlan::parse("plan.csv", &text).expect("a plan");
    let cable = &plan.cables[0];
    assert_eq!((cable.rail, cable.plane), (Some(0), Some(1)));
    assert_eq!(cable.length_meters, Some(1.5));
    assert_eq!(cable.serial.as_deref(), Some("MT \"7\", spare"));
    assert_eq!(plan.to_string(), text);
}

#[test]
fn each_error_names_file_line_field_and_what_was_expected() {
    let good = "nic/n1:mlx5_0,1,switch/leaf,2,,,,\n";
    for (row, expected) in [
        (
            "host/n1,1,switch/leaf,3,,,,",
            "plan.csv:3: from: found \"host/n1\", expected a NIC or a switch, such as nic/gpu-node-00:mlx5_0 or switch/leaf-1",
        ),
        (
            "nic/n1:mlx5_1,0,switch/leaf,3,,,,",
            "plan.csv:3: from_port: found \"0\", expected a port from 1 to 65535",
        ),
        (
            "nic/n1:mlx5_1,1,switch/leaf,,,,,",
            "plan.csv:3: to_port: found \"\", expected a port from 1 to 65535, or its name",
        ),
        (
            "nic/n1:mlx5_1,swp1,switch/leaf,3,,,,",
            "plan.csv:3: from_port: found \"swp1\", expected a port from 1 to 65535",
        ),
        (
            "nic/n1:mlx5_1,1,switch/leaf,70000,,,,",
            "plan.csv:3: to_port: found \"70000\", expected a port from 1 to 65535, or its name",
        ),
        (
            "nic/n1:mlx5_1,1,switch/leaf,3,first,,,",
            "plan.csv:3: rail: found \"first\", expected a number from 0 to 65535, or nothing",
        ),
        (
            "nic/n1:mlx5_1,1,switch/leaf,3,,,-2,",
            "plan.csv:3: length_m: found \"-2\", expected metres, or nothing",
        ),
        (
            "nic/n1:mlx5_1,1,switch/leaf,3",
            "plan.csv:3: row: found 4 fields, expected 8",
        ),
        (
            "nic/n1:mlx5_1,1,switch/leaf,3,,,,\"MT",
            "plan.csv:3: row: found a quote that does not end, expected it to end on its line",
        ),
        (
            "nic/n1:mlx5_1,1,switch/leaf,2,,,,",
            "plan.csv:3: to_port: found switch/leaf port 2, which has a cable in line 2, expected a port without a cable",
        ),
    ] {
        assert_eq!(errors(&format!("{HEADER}{good}{row}\n")), [expected]);
    }
    assert_eq!(
        errors(&format!("{HEADER}{good}x,1,y,1,,,,\nx,1,y,1,,,,")).len(),
        4
    );
}

#[test]
fn a_table_without_its_header_is_refused_at_once() {
    assert_eq!(
        errors("nic/n1:mlx5_0,1,switch/leaf,2\n")[0],
        "plan.csv:1: header: found \"nic/n1:mlx5_0\", expected from, from_port, to, to_port, rail, plane, length_m, serial"
    );
    assert_eq!(
        errors("from,from_port,to\n"),
        ["plan.csv:1: to_port: found no such column, expected it in the header"]
    );
    assert_eq!(
        errors("from,from,from_port,to,to_port\n"),
        ["plan.csv:1: from: found the column twice, expected it once"]
    );
    assert_eq!(
        errors(""),
        ["plan.csv:1: from: found no header, expected from,from_port,to,to_port"]
    );
}

#[test]
fn the_page_about_plans_shows_one() {
    let page = include_str!("../../docs/wiring-plan.md");
    let example = page
        .split("```csv\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let plan = WiringPlan::parse("docs/wiring-plan.md", example.expect("an example"));
    assert_eq!(plan.expect("a plan").cables.len(), 3);
    for column in COLUMNS {
        assert!(page.contains(&format!("| `{column}` |")), "{column}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic_and_what_it_reads_it_writes(text in "((nic/n1:mlx5_0|switch/a b|from|to|from_port|to_port|[0-9]{1,6}|\"|,|#|é)[,\n]?){0,40}") {
        for text in [format!("from,from_port,to,to_port\n{text}"), text] {
            if let Ok(plan) = WiringPlan::parse("plan.csv", &text) {
                proptest::prop_assert_eq!(WiringPlan::parse("again", &plan.to_string()), Ok(plan));
            }
        }
    }
}
