//! Just enough of PromQL to see which series an expression reads, and inside which functions.

/// A name that stands where a series or function may stand, with the calls around it, outermost first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    /// `railscope_rdma_port_up`, `rate`, `sum` …
    pub(crate) text: &'a str,
    /// `["topk", "rate"]` for a series in `topk(5, rate(series[5m]))`.
    pub(crate) inside: Vec<&'a str>,
}

/// Every name outside of label matchers, strings, ranges and label lists.
pub(crate) fn names(expression: &str) -> Vec<Name<'_>> {
    const LABEL_LISTS: &[&str] = &[
        "by",
        "without",
        "on",
        "ignoring",
        "group_left",
        "group_right",
    ];
    let mut names = Vec::new();
    let mut calls: Vec<&str> = Vec::new();
    let mut last = "";
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            'a'..='z' | 'A'..='Z' | '_' | ':' => {
                let word = word(rest);
                names.push(Name {
                    text: word,
                    inside: calls.clone(),
                });
                last = word;
                rest = &rest[word.len()..];
                continue;
            }
            // A number such as 1e3 is no name.
            '0'..='9' => word(rest).len(),
            '{' => closing(rest, '}'),
            '[' => closing(rest, ']'),
            '"' | '\'' => quoted(rest),
            '(' if LABEL_LISTS.contains(&last) => closing(rest, ')'),
            '(' => {
                calls.push(last);
                1
            }
            ')' => {
                calls.pop();
                1
            }
            other => other.len_utf8(),
        };
        if !first.is_whitespace() {
            last = "";
        }
        rest = &rest[length..];
    }
    names
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    &text[..end.unwrap_or(text.len())]
}

fn quoted(text: &str) -> usize {
    let quote = &text[..1];
    text[1..].find(quote).map_or(text.len(), |end| end + 2)
}

/// Length up to the closing bracket, strings skipped.
fn closing(text: &str, close: char) -> usize {
    let mut at = 1;
    while let Some(c) = text[at..].chars().next() {
        at += match c {
            '"' | '\'' => quoted(&text[at..]),
            _ => c.len_utf8(),
        };
        if c == close {
            break;
        }
    }
    at
}

#[test]
fn names_stand_with_the_calls_around_them() {
    let names = names(
        r#"topk(5, sum by (rail) (rate(a_total{x="b(c}", y=~"d"}[5m]))) * on (e) group_left (f) g == bool 1e3"#,
    );
    let found: Vec<_> = names
        .iter()
        .map(|name| (name.text, name.inside.join(" ")))
        .collect();
    let expected = [
        ("topk", ""),
        ("sum", "topk"),
        ("by", "topk"),
        ("rate", "topk "),
        ("a_total", "topk  rate"),
        ("on", ""),
        ("group_left", ""),
        ("g", ""),
        ("bool", ""),
    ];
    assert_eq!(
        found,
        expected.map(|(text, inside)| (text, inside.to_owned()))
    );
}
