//! Errors of the configuration: which file, line, column and field, what was expected, what was meant.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use railscope_model::plan::PlanError;

/// Keys further away than this share of their length are no typing mistakes.
const MAX_DISTANCE_SHARE: f64 = 0.4;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The wiring plan is refused.
    #[error("{}", Lines(.0))]
    Plan(Vec<PlanError>),
    /// The file of the plan is of a kind that reports no cables.
    #[error("{}: no wiring plan: expected a table or TOML of cables, or an NDT", .0.display())]
    NoPlan(PathBuf),
    /// The file is invalid.
    #[error("{}:{line}:{column}: {}{message}{}", file.display(), In(field), Meant(meant))]
    Invalid {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Character in the line, from 1.
        column: usize,
        /// The field, with the tables around it; empty where TOML itself is broken.
        field: String,
        /// What is wrong and what was expected.
        message: String,
        /// The known key that was probably meant.
        meant: Option<String>,
    },
}

struct Lines<'a>(&'a [PlanError]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            let gap = if number == 0 { "" } else { "\n" };
            write!(f, "{gap}{error}")?;
        }
        Ok(())
    }
}

struct In<'a>(&'a str);

impl fmt::Display for In<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => Ok(()),
            field => write!(f, "{field}: "),
        }
    }
}

struct Meant<'a>(&'a Option<String>);

impl fmt::Display for Meant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .as_ref()
            .map_or(Ok(()), |key| write!(f, "; did you mean `{key}`?"))
    }
}

impl ConfigError {
    pub(crate) fn at(
        text: &str,
        file: &Path,
        span: Range<usize>,
        field: String,
        message: String,
    ) -> Self {
        let (line, column) = place(text, span.start);
        Self::Invalid {
            file: file.to_owned(),
            line,
            column,
            field,
            message,
            meant: None,
        }
    }

    /// The same error with what was probably meant.
    #[must_use]
    pub(crate) fn meaning(mut self, probably: Option<String>) -> Self {
        if let Self::Invalid { meant, .. } = &mut self {
            *meant = probably;
        }
        self
    }

    pub(crate) fn from_toml(text: &str, file: &Path, mut error: toml::de::Error) -> Self {
        let (line, column) = place(text, error.span().map_or(0, |span| span.start));
        let message = error.message().to_owned();
        // Without the text, the error prints the path to the field in place of an excerpt.
        error.set_input(None);
        let printed = error.to_string();
        let path = printed
            .rsplit_once("\nin `")
            .and_then(|(_, path)| path.trim_end().strip_suffix('`'));
        let mut field = path.unwrap_or_default().to_owned();
        let mut words = message.split('`').skip(1).step_by(2);
        let mut meant = None;
        if message.starts_with("unknown field")
            && let Some(unknown) = words.next()
        {
            let known: Vec<_> = words.collect();
            meant = nearest(unknown, &known).map(str::to_owned);
            if !field.ends_with(unknown) {
                field = [field.as_str(), unknown]
                    .into_iter()
                    .filter(|part| !part.is_empty())
                    .collect::<Vec<_>>()
                    .join(".");
            }
        }
        Self::Invalid {
            file: file.to_owned(),
            line,
            column,
            field,
            message,
            meant,
        }
    }
}

/// Line and character of a byte of the text, both from 1.
fn place(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

/// The known key that an unknown one is most like, if it is alike at all.
pub(crate) fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |key: &&str| strsim::osa_distance(unknown, key);
    let best = known.iter().min_by_key(|key| distance(key))?;
    let longest = unknown.chars().count().max(best.chars().count());
    (distance(best) as f64 <= MAX_DISTANCE_SHARE * longest as f64).then_some(*best)
}
