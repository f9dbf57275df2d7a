//! PromQL queries, and the short forms of label matchers in them.

/// Short forms in expressions. Each stands for the matchers of the variables that choose the series.
const SELECTORS: &[(&str, &str)] = &[
    ("@cluster", r#"cluster=~"$cluster""#),
    ("@su", r#"cluster=~"$cluster", su=~"$su""#),
    (
        "@leaf",
        r#"cluster=~"$cluster", su=~"$su", rail=~"$rail", leaf=~"$leaf""#,
    ),
    ("@node", r#"cluster=~"$cluster", node=~"$node""#),
    ("@job", r#"cluster=~"$cluster", hpc_job=~"$job""#),
    ("@class", r#"cluster=~"$cluster", class=~"$class""#),
    ("@incident", r#"cluster=~"$cluster", incident=~"$incident""#),
    ("@subject", r#"cluster=~"$cluster", node=~"$incident_node""#),
    ("@switch", r#"cluster=~"$cluster", leaf=~"$incident_leaf""#),
    (
        "@path",
        r#"cluster=~"$cluster", path_class=~"$path_class", transport=~"$transport""#,
    ),
];

/// How Grafana receives the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Series,
    Table,
    Heatmap,
}

/// One query of a panel.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) expression: String,
    pub(crate) legend: &'static str,
    /// One value at the end of the range, in place of a curve.
    pub(crate) is_instant: bool,
    /// A name that Grafana looks for, in place of A, B, C.
    pub(crate) name: Option<&'static str>,
    /// Shortest time between two points.
    pub(crate) interval: Option<&'static str>,
}

impl Query {
    /// A query with `@` short forms. Line breaks and indentation are for the source only.
    pub(crate) fn new(expression: &str) -> Self {
        Self {
            expression: expanded(expression),
            legend: "",
            is_instant: false,
            name: None,
            interval: None,
        }
    }

    /// Curves of the nodes with the largest (`topk(5`) or smallest mean in the last hour of the time range. Where all
    /// are near each other, ranks change at every point: a curve for each node, in pieces. `among` chooses before the
    /// ranking. For values that are 0 unless something is wrong, a plain `topk` shows whatever was wrong.
    pub(crate) fn steady(pick: &str, aggregated: &str, series: &str, among: &str) -> Self {
        Self::new(&format!(
            "{aggregated} ({series}) and {pick}, {aggregated} (avg_over_time({series}[1h] @ end())) {among})"
        ))
    }

    pub(crate) fn legend(mut self, legend: &'static str) -> Self {
        self.legend = legend;
        self
    }

    pub(crate) fn instant(mut self) -> Self {
        self.is_instant = true;
        self
    }

    pub(crate) fn named(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    pub(crate) fn every(mut self, interval: &'static str) -> Self {
        self.interval = Some(interval);
        self
    }
}

fn expanded(expression: &str) -> String {
    let words: Vec<_> = expression.split_whitespace().collect();
    let mut text = words.join(" ").replace("( ", "(").replace(" )", ")");
    for (short, matchers) in SELECTORS {
        for end in ["}", ","] {
            text = text.replace(&format!("{short}{end}"), &format!("{matchers}{end}"));
        }
    }
    text
}

#[test]
fn short_forms_become_matchers_and_lines_one_line() {
    let query = Query::new("sum(\n  up{job=\"a\", @cluster}\n)");
    assert_eq!(query.expression, r#"sum(up{job="a", cluster=~"$cluster"})"#);
}
