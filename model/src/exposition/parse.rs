//! Any exporter's text as series, without copying: Prometheus text 0.0.4 and OpenMetrics 1.0.
//!
//! Every line is either read completely or reported with its position; a bad line never hides the next one.

use std::borrow::Cow;

use memchr::memchr;

use super::labels::{behind_label, label_at, read_labels, skip_blanks, skip_name, unescape};

/// A line that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: expected {expected}, found {found:?}")]
pub struct ParseError {
    /// Line number, from 1.
    pub line: usize,
    /// Byte in the line, from 1.
    pub column: usize,
    /// What was expected there.
    pub expected: &'static str,
    /// What was found there, shortened to 32 bytes.
    pub found: String,
}

/// The type of a family, from a TYPE line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// `counter`
    Counter,
    /// `gauge`
    Gauge,
    /// `histogram` or `gaugehistogram`
    Histogram,
    /// `summary`
    Summary,
    /// `info`
    Info,
    /// `stateset`
    StateSet,
    /// `untyped` or `unknown`
    Unknown,
}

/// One sample line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Series<'a> {
    /// Series name.
    pub name: &'a str,
    /// What stands between the braces, unread: see [`Series::labels`].
    labels: &'a str,
    /// Name and labels, unchanged from the line.
    head: &'a str,
    /// The value. NaN and infinities are values.
    pub value: f64,
    /// Time stamp as written: milliseconds in the text format, seconds in OpenMetrics.
    pub timestamp: Option<f64>,
}

impl<'a> Series<'a> {
    /// Label names and values in the order of the line; values are unescaped, and copied only if that
    /// changes them.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> + use<'a> {
        let (labels, mut at) = (self.labels, 0);
        std::iter::from_fn(move || {
            // The line was checked when it was read, so an end here is the end of the labels.
            let (name, value) = label_at(labels, at).ok()??;
            at = behind_label(labels, value.end + 1).ok()?;
            Some((&labels[name], unescape(&labels[value])))
        })
    }

    /// The value of one label.
    pub fn label(&self, name: &str) -> Option<Cow<'a, str>> {
        self.labels()
            .find_map(|(found, value)| (found == name).then_some(value))
    }

    /// The label text between the braces, unchanged from the line: a key for equal lines.
    pub fn raw_labels(&self) -> &'a str {
        self.labels
    }

    /// Name and labels, unchanged from the line, with their braces: a key for equal lines, see [`Parser::next_behind`].
    pub fn head(&self) -> &'a str {
        self.head
    }
}

/// One line with content.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Line<'a> {
    /// A sample.
    Series(Series<'a>),
    /// `# TYPE family type`
    Type(&'a str, Type),
    /// `# EOF`, which ends an OpenMetrics exposition.
    End,
}

/// Iterates over the lines of an exposition that have content, or cannot be parsed.
#[derive(Debug, Clone)]
pub struct Parser<'a> {
    rest: &'a str,
    line: usize,
}

/// Reads an exposition line by line.
pub fn parse(page: &str) -> Parser<'_> {
    Parser {
        rest: page,
        line: 0,
    }
}

impl<'a> Parser<'a> {
    /// The unread rest, in complete lines.
    pub fn rest(&self) -> &'a str {
        self.rest
    }

    /// The value of the next line, if that line begins with what was the [`Series::head`] of another: name and labels need
    /// not be read again. `None` reads nothing: the line is another, or cannot be read.
    pub fn next_behind(&mut self, head: &str) -> Option<f64> {
        let behind = self.rest.strip_prefix(head)?;
        if behind.as_bytes().first() != Some(&b' ') {
            return None;
        }
        let end = memchr(b'\n', behind.as_bytes());
        let (value, rest) = end.map_or((behind, ""), |end| (&behind[..end], &behind[end + 1..]));
        let (value, _) = read_value(value.strip_suffix('\r').unwrap_or(value)).ok()?;
        self.rest = rest;
        self.line += 1;
        Some(value)
    }
}

impl<'a> Iterator for Parser<'a> {
    type Item = Result<Line<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.rest.is_empty() {
                return None;
            }
            let end = memchr(b'\n', self.rest.as_bytes());
            let (line, rest) = end.map_or((self.rest, ""), |end| {
                (&self.rest[..end], &self.rest[end + 1..])
            });
            self.rest = rest;
            self.line += 1;
            let line = line.strip_suffix('\r').unwrap_or(line);
            match read_line(line) {
                Ok(None) => {}
                Ok(Some(read)) => return Some(Ok(read)),
                Err(fault) => return Some(Err(fault.at(self.line, line))),
            }
        }
    }
}

/// What is wrong with a line, before its number is known. `rest` is the tail of the line from the fault on.
pub(super) struct Fault<'a> {
    pub(super) rest: &'a str,
    pub(super) expected: &'static str,
}

impl Fault<'_> {
    #[cold]
    fn at(&self, line: usize, text: &str) -> ParseError {
        let mut end = self.rest.len().min(32);
        while !self.rest.is_char_boundary(end) {
            end -= 1;
        }
        let column = text.len() - self.rest.len() + 1;
        ParseError {
            line,
            column,
            expected: self.expected,
            found: self.rest[..end].to_owned(),
        }
    }
}

pub(super) type Read<'a, T> = Result<T, Fault<'a>>;

fn read_line(line: &str) -> Read<'_, Option<Line<'_>>> {
    match line.as_bytes().first() {
        Some(b'#') => read_comment(line),
        Some(b' ' | b'\t') | None => {
            let trimmed = line.trim_ascii_start();
            if trimmed.is_empty() {
                Ok(None)
            } else {
                read_line(trimmed)
            }
        }
        Some(_) => read_series(line).map(|series| Some(Line::Series(series))),
    }
}

fn read_comment(line: &str) -> Read<'_, Option<Line<'_>>> {
    if line == "# EOF" {
        return Ok(Some(Line::End));
    }
    let Some(rest) = line.strip_prefix("# TYPE ") else {
        return Ok(None);
    };
    let Some((family, kind)) = rest.trim().split_once([' ', '\t']) else {
        return Err(Fault {
            rest,
            expected: "a family name and a type",
        });
    };
    let kind = match kind.trim() {
        "counter" => Type::Counter,
        "gauge" => Type::Gauge,
        "histogram" | "gaugehistogram" => Type::Histogram,
        "summary" => Type::Summary,
        "info" => Type::Info,
        "stateset" => Type::StateSet,
        "untyped" | "unknown" => Type::Unknown,
        _ => {
            return Err(Fault {
                rest: kind,
                expected: "a metric type such as counter",
            });
        }
    };
    Ok(Some(Line::Type(family, kind)))
}

fn read_series(line: &str) -> Read<'_, Series<'_>> {
    let (name, after) = line.split_at(skip_name(line.as_bytes(), 0));
    let after = &after[skip_blanks(after.as_bytes(), 0)..];
    let (name, labels, after) = if after.starts_with('{') {
        read_labels(name, after)?
    } else {
        (name, "", after)
    };
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() {
        return Err(Fault {
            rest: line,
            expected: "a series name",
        });
    }
    let (value, timestamp) = read_value(after)?;
    Ok(Series {
        name,
        labels,
        head: &line[..line.len() - after.len()],
        value,
        timestamp,
    })
}
/// Reads value, optional time stamp and, in OpenMetrics, an optional exemplar, which is skipped.
fn read_value(text: &str) -> Read<'_, (f64, Option<f64>)> {
    let text = text.trim_ascii_start();
    let end = text
        .bytes()
        .position(|byte| byte == b' ' || byte == b'\t')
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let value = read_number(number).ok_or(Fault {
        rest: text,
        expected: "a number",
    })?;
    let rest = rest.trim_ascii();
    if rest.is_empty() || rest.starts_with('#') {
        return Ok((value, None));
    }
    let end = rest
        .bytes()
        .position(|byte| byte == b' ' || byte == b'\t')
        .unwrap_or(rest.len());
    let (timestamp, behind) = rest.split_at(end);
    let timestamp = read_number(timestamp).filter(|timestamp| timestamp.is_finite());
    let timestamp = timestamp.ok_or(Fault {
        rest,
        expected: "a time stamp",
    })?;
    let behind = behind.trim_ascii_start();
    if behind.is_empty() || behind.starts_with('#') {
        Ok((value, Some(timestamp)))
    } else {
        Err(Fault {
            rest: behind,
            expected: "the end of the line",
        })
    }
}

fn read_number(text: &str) -> Option<f64> {
    // Most values are short counts: below 10^15 a float holds every one of them.
    if text.len() < 16 && !text.is_empty() {
        let mut value = 0u64;
        for byte in text.bytes() {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return text.parse().ok();
            }
            value = value * 10 + u64::from(digit);
        }
        return Some(value as f64);
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exposition as `name{labels}=value@timestamp` lines and `!line:column expected` errors.
    fn show(page: &str) -> Vec<String> {
        let line = |line: Result<Line<'_>, ParseError>| match line {
            Ok(Line::Series(series)) => {
                let labels: Vec<_> = series
                    .labels()
                    .map(|(name, value)| format!("{name}:{value}"))
                    .collect();
                let timestamp = series
                    .timestamp
                    .map_or(String::new(), |timestamp| format!("@{timestamp}"));
                format!(
                    "{}{{{}}}={}{timestamp}",
                    series.name,
                    labels.join(","),
                    series.value
                )
            }
            Ok(Line::Type(family, kind)) => format!("{family}:{kind:?}"),
            Ok(Line::End) => "end".to_owned(),
            Err(error) => format!("!{}:{} {}", error.line, error.column, error.expected),
        };
        parse(page).map(line).collect()
    }

    fn check(page: &str, expected: &[&str]) {
        assert_eq!(show(page), expected, "{page}");
    }

    #[test]
    fn text_and_open_metrics_read_alike() {
        check(
            "# HELP a help\n# TYPE a counter\na_total 1\na_total{b=\"c\",d=\"e\"} 2.5 1600000000000\n\n",
            &[
                "a:Counter",
                "a_total{}=1",
                "a_total{b:c,d:e}=2.5@1600000000000",
            ],
        );
        check(
            "# TYPE a info\n# UNIT a bytes\na_info{b=\"c\"} 1 # {trace=\"x\"} 1 2\r\n# EOF\n",
            &["a:Info", "a_info{b:c}=1", "end"],
        );
    }

    #[test]
    fn foreign_spellings_are_read() {
        check(
            "a { b = \"c\" , } NaN\n\tb{} +Inf\nc -1e-9 17 # {t=\"\"} 3\n{\"my.name\",\"l.1\"=\"v\"} 4\nd:e{x=\"} 1\"} 1e15",
            &[
                "a{b:c}=NaN",
                "b{}=inf",
                "c{}=-0.000000001@17",
                "my.name{l.1:v}=4",
                "d:e{x:} 1}=1000000000000000",
            ],
        );
        check(
            r#"a{b="q\"uo\\te\n\x"} 18446744073709551615"#,
            &["a{b:q\"uo\\te\n\\x}=18446744073709552000"],
        );
    }

    #[test]
    fn a_bad_line_says_where_and_hides_no_other() {
        check(
            "a 1\n1b 2\nc{d=\"e} 3\nd{e=f} 4\ne{f=\"g\" h=\"i\"} 5\nf one\ng\nh 1 2 3\ni{j=\"k\"\n# TYPE l lorem\n{} 1\nm 1 NaN\nz 26",
            &[
                "a{}=1",
                "!2:1 a series name",
                "!3:5 a closing quote",
                "!4:5 a label value in quotes",
                "!5:9 , or } behind a label",
                "!6:3 a number",
                "!7:2 a number",
                "!8:7 the end of the line",
                "!9:8 a label such as name=\"value\", or }",
                "!10:10 a metric type such as counter",
                "!11:1 a series name",
                "!12:5 a time stamp",
                "z{}=26",
            ],
        );
    }
}
