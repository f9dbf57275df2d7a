//! Values that cannot be: what a broken exporter prints is no fault of hardware.

use super::{Fault, check};

/// Node 3 prints this in the place of every value, but for those that name things.
fn prints(value: &'static str) -> Box<Fault> {
    Box::new(move |node, _, page: String| {
        if node != 3 {
            return page;
        }
        let line = |line: &str| match line.rsplit_once(' ') {
            Some((series, _)) if !series.contains("_info{") => format!("{series} {value}\n"),
            _ => format!("{line}\n"),
        };
        page.lines().map(line).collect()
    })
}

#[test]
fn values_that_cannot_be_name_no_part() {
    for value in ["NaN", "+Inf", "-Inf", "-1", "1e300"] {
        println!("{value}");
        check(&prints(value), &[]);
    }
}
