//! What holds for every page: what is written reads back, and no text makes the parser panic or lose a line.

use std::sync::Arc;

use proptest::prelude::*;
use railscope_model::exposition::{Format, Line, Page, parse};
use railscope_model::metric::{CATALOGUE, Kind, Profile};
use railscope_model::reading::{Labels, NodeReading, Value};

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::Int),
        any::<f64>().prop_map(Value::Float)
    ]
}

fn reading() -> impl Strategy<Value = NodeReading> {
    let sample = (
        0..CATALOGUE.len(),
        prop::collection::vec(any::<String>(), 10),
        value(),
    );
    prop::collection::vec(sample, 0..40).prop_map(|samples| {
        let mut reading = NodeReading::default();
        for (index, labels, value) in samples {
            let metric = CATALOGUE[index];
            let value = if metric.kind == Kind::Info {
                Value::Int(1)
            } else {
                value
            };
            reading.push(
                metric,
                &Labels::new(labels.into_iter().take(metric.labels.len())),
                value,
            );
        }
        reading.normalise();
        reading
    })
}

fn same(a: f64, b: f64) -> bool {
    a == b || a.is_nan() && b.is_nan()
}

proptest! {
    #[test]
    fn what_is_written_reads_back(reading in reading(), open_metrics: bool) {
        let format = if open_metrics { Format::OpenMetrics } else { Format::Text };
        let text = Page::new(Arc::new(reading.clone())).write(format, Profile::Full);
        let mut read = parse(&text).filter_map(|line| match line.expect("a line of ours") {
            Line::Series(series) => Some(series),
            Line::Type(..) | Line::End => None,
        });
        for sample in reading.samples() {
            let series = read.next().expect("a series for each sample");
            prop_assert_eq!(series.name, sample.metric.name);
            let labels: Vec<_> = series.labels().map(|(_, value)| value.into_owned()).collect();
            prop_assert_eq!(labels, sample.labels.values().map(str::to_owned).collect::<Vec<_>>());
            prop_assert!(same(series.value, sample.value.as_f64()), "{} {:?}", series.value, sample.value);
        }
        prop_assert!(read.next().is_none());
    }

    #[test]
    fn no_text_panics_and_every_line_is_read_or_reported_once(text: String) {
        let spoken = parse(&text).count();
        prop_assert!(spoken <= text.lines().count());
        for line in parse(&text) {
            match line {
                Ok(Line::Series(series)) => prop_assert!(series.labels().all(|(name, _)| !name.is_empty())),
                Ok(_) => {}
                Err(error) => prop_assert!(error.line >= 1 && error.column >= 1),
            }
        }
    }

    #[test]
    fn a_broken_line_hides_no_other(
        reading in reading(), cut in any::<prop::sample::Index>(), junk in "[a-z{}\",= 0-9\\\\]{0,12}",
    ) {
        let text = Page::new(Arc::new(reading)).write(Format::Text, Profile::Full);
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        prop_assume!(!lines.is_empty());
        let whole = parse(&text).count();
        let at = cut.index(lines.len());
        lines[at] = format!("{{{junk}");
        let broken = lines.join("\n");
        let spoken = parse(&broken).count();
        let was_comment = text.lines().nth(at).is_some_and(|line| line.starts_with("# HELP"));
        prop_assert_eq!(spoken, whole + usize::from(was_comment));
        prop_assert!(parse(&broken).filter(Result::is_err).count() <= 1);
    }
}
