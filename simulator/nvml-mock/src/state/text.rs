//! Reads and writes the state file, line by line.

use std::fmt::{self, Display};
use std::ops::Range;

use super::faults::{Event, Fault, Process};
use super::gpu::GpuState;
use super::link::LinkState;
use super::mig::{MAX_MIG_DEVICES, MigDevice};
use super::values::Value;
use super::vgpu::Vgpu;
use super::{MAX_GPUS, MAX_LINKS, NodeGpus};

/// A line that was ignored, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LineError {
    /// Counted from 1.
    pub line: usize,
    /// The line itself.
    pub text: String,
    /// What is expected there.
    pub expected: String,
}

impl Display for LineError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "line {}: `{}`: expected {}",
            self.line, self.text, self.expected
        )
    }
}

impl NodeGpus {
    /// Reads a state file. Lines are applied in order, a later one wins; `gpus` counts at any position. Invalid lines
    /// change nothing and are returned.
    #[must_use]
    pub fn parse(text: &str) -> (Self, Vec<LineError>) {
        let mut node = Self::h100(gpu_count(text));
        let mut errors = Vec::new();
        for (line, text) in lines(text) {
            if let Err(expected) = node.apply(text) {
                errors.push(LineError {
                    line,
                    text: text.into(),
                    expected,
                });
            }
        }
        (node, errors)
    }

    fn apply(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = first_word(line);
        match word {
            "gpus" => count(rest, MAX_GPUS).map(drop),
            "crash" if rest.is_empty() => {
                self.crash = true;
                Ok(())
            }
            "fail" | "hang" | "delay" | "spoil" => {
                Fault::parse(word, rest).map(|fault| self.faults.push(fault))
            }
            "gpu" => {
                let (which, rest) = first_word(rest);
                let mut chosen = select(which, self.gpus.len(), "GPU")?;
                chosen.try_for_each(|index| self.gpus[index].apply(index, rest))
            }
            "nvlink" => {
                let (which, rest) = first_word(rest);
                let mut chosen = select(which, self.gpus.len(), "GPU")?;
                chosen.try_for_each(|index| self.gpus[index].apply_link(rest))
            }
            _ if Self::KEYS.contains(&word) => self.set(word, rest),
            _ => Err(closest(
                word,
                &[
                    &[
                        "gpus", "gpu", "nvlink", "fail", "hang", "delay", "spoil", "crash",
                    ],
                    Self::KEYS,
                ],
            )),
        }
    }

    /// The text that [`NodeGpus::parse`] reads back, without what it would assume anyway.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        line(&mut text, format_args!("gpus {}", self.gpus.len()));
        for (key, value) in self.changed(&Self::default()) {
            line(&mut text, format_args!("{key} {value}"));
        }
        for fault in &self.faults {
            line(&mut text, fault);
        }
        if self.crash {
            line(&mut text, "crash");
        }
        for (index, gpu) in self.gpus.iter().enumerate() {
            gpu.render(index, &mut text);
        }
        text
    }
}

impl GpuState {
    fn apply(&mut self, index: usize, line: &str) -> Result<(), String> {
        let (word, rest) = first_word(line);
        match word {
            "links" => count(rest, MAX_LINKS).map(|count| self.set_link_count(index, count)),
            "process" => Process::parse(rest).map(|process| self.processes.push(process)),
            "mig" if self.mig.len() == MAX_MIG_DEVICES => Err(format!("at most {MAX_MIG_DEVICES}")),
            "mig" => MigDevice::parse(rest).map(|device| self.mig.push(device)),
            "vgpu" => Vgpu::parse(rest).map(|vgpu| self.vgpus.push(vgpu)),
            "xid" | "event" => Event::parse(word, rest).map(|event| self.events.push(event)),
            "fail" | "hang" | "delay" | "spoil" => {
                Fault::parse(word, rest).map(|fault| self.faults.push(fault))
            }
            _ if Self::KEYS.contains(&word) => self.set(word, rest),
            _ => Err(closest(
                word,
                &[
                    &[
                        "links", "process", "mig", "vgpu", "xid", "event", "fail", "hang", "delay",
                        "spoil",
                    ],
                    Self::KEYS,
                ],
            )),
        }
    }

    fn apply_link(&mut self, line: &str) -> Result<(), String> {
        let (which, rest) = first_word(line);
        let (key, value) = first_word(rest);
        let mut chosen = select(which, self.links.len(), "link")?;
        if LinkState::KEYS.contains(&key) {
            chosen.try_for_each(|link| self.links[link].set(key, value))
        } else {
            Err(closest(key, &[LinkState::KEYS]))
        }
    }

    fn render(&self, index: usize, text: &mut String) {
        let base = Self::h100(index);
        for (key, value) in self.changed(&base) {
            line(text, format_args!("gpu {index} {key} {value}"));
        }
        if self.links.len() != base.links.len() {
            line(text, format_args!("gpu {index} links {}", self.links.len()));
        }
        for (number, link) in self.links.iter().enumerate() {
            for (key, value) in link.changed(&LinkState::hgx(index, number)) {
                line(text, format_args!("nvlink {index} {number} {key} {value}"));
            }
        }
        let lines = self.processes.iter().map(|item| item as &dyn Display);
        let lines = lines.chain(self.mig.iter().map(|item| item as &dyn Display));
        let lines = lines.chain(self.vgpus.iter().map(|item| item as &dyn Display));
        let lines = lines.chain(self.events.iter().map(|item| item as &dyn Display));
        for item in lines.chain(self.faults.iter().map(|item| item as &dyn Display)) {
            line(text, format_args!("gpu {index} {item}"));
        }
    }
}

/// Lines with content, numbered from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn first_word(line: &str) -> (&str, &str) {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    (word, rest.trim_start())
}

/// The last good `gpus` line counts, because `gpu *` needs the number beforehand.
fn gpu_count(text: &str) -> usize {
    let counts = lines(text).filter_map(|(_, line)| {
        let (word, rest) = first_word(line);
        if word == "gpus" {
            count(rest, MAX_GPUS).ok()
        } else {
            None
        }
    });
    counts.last().unwrap_or(NodeGpus::DEFAULT_GPUS)
}

fn count(text: &str, most: usize) -> Result<usize, String> {
    let count: u32 = Value::parse(text)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count <= most {
        Ok(count)
    } else {
        Err(format!("at most {most}"))
    }
}

/// One index, or all of them for `*`.
fn select(which: &str, len: usize, what: &str) -> Result<Range<usize>, String> {
    if which == "*" {
        return Ok(0..len);
    }
    match which.parse() {
        Ok(index) if index < len => Ok(index..index + 1),
        _ => Err(format!("a {what} below {len}, or *")),
    }
}

/// Suggestion for an unknown word: the known one with the smallest edit distance.
fn closest(word: &str, known: &[&[&str]]) -> String {
    let nearest = known
        .iter()
        .copied()
        .flatten()
        .min_by_key(|candidate| distance(word, candidate));
    nearest.map_or_else(String::new, |nearest| {
        format!("a known key (did you mean `{nearest}`?)")
    })
}

/// Edit distance by Levenshtein, one row at a time.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, b) in row.iter_mut().skip(1).zip(to.bytes()) {
            left = (diagonal + usize::from(a != b))
                .min(*cell + 1)
                .min(left + 1);
            diagonal = std::mem::replace(cell, left);
        }
    }
    row.last().copied().unwrap_or(0)
}

fn line(text: &mut String, content: impl Display) {
    text.push_str(&content.to_string());
    text.push('\n');
}
