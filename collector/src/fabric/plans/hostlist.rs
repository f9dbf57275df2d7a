//! Hostlists: `tux[0-3,12]`, `rack[01-02]n[1-8]`, as Slurm and topograph write lists of names.

use std::collections::BTreeMap;

/// Maximum number of names that the lists of one file may expand to. Slurm's default limit is 65,536; this allows a larger cluster.
const MOST_NAMES: usize = 1 << 18;
/// Bytes of a name with a range in it: host names have no more (RFC 1035, 2.3.4).
const LONGEST_NAME: usize = 253;
/// Digits of a number in brackets: more do not count anything that exists.
const MOST_DIGITS: usize = 9;

/// The lists of one file: few bytes can expand to many names, so the expansion of all lists is limited.
#[derive(Debug)]
pub(super) struct Hostlists {
    left: usize,
}

impl Default for Hostlists {
    fn default() -> Self {
        Self { left: MOST_NAMES }
    }
}

impl Hostlists {
    /// Every name that a list expands to, in its order.
    ///
    /// # Errors
    /// What was found, and what was expected: an open bracket, a range that runs backwards, too many names.
    pub(super) fn expand(&mut self, list: &str) -> Result<Vec<String>, (String, &'static str)> {
        let mut names = Vec::new();
        for item in split(list)? {
            let item = item.trim();
            if item.is_empty() {
                continue;
            }
            let grown = expand_one(item, self.left)?;
            self.left = self.left.saturating_sub(grown.len());
            names.extend(grown);
        }
        Ok(names)
    }
}

/// Every name that a single list expands to.
///
/// # Errors
/// As of a file's.
pub fn expand(list: &str) -> Result<Vec<String>, (String, &'static str)> {
    Hostlists::default().expand(list)
}

/// Cuts a list at the commas outside of brackets.
fn split(list: &str) -> Result<Vec<&str>, (String, &'static str)> {
    let (mut items, mut start, mut open) = (Vec::new(), 0, false);
    for (at, sign) in list.char_indices() {
        match sign {
            '[' if open => return Err((list.to_owned(), "no bracket within brackets")),
            '[' => open = true,
            ']' if !open => return Err((list.to_owned(), "an opening bracket before this one")),
            ']' => open = false,
            ',' if !open => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if open {
        return Err((list.to_owned(), "a closing bracket"));
    }
    items.push(&list[start..]);
    Ok(items)
}

fn expand_one(item: &str, most: usize) -> Result<Vec<String>, (String, &'static str)> {
    let too_many = || (item.to_owned(), "at most 262144 names in a file");
    let mut names = vec![String::new()];
    let mut rest = item;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, behind) = after.split_once(']').unwrap_or((after, ""));
        let longest = names.last().map_or(0, String::len) + before.len() + MOST_DIGITS;
        if longest + behind.find('[').unwrap_or(behind.len()) > LONGEST_NAME {
            return Err((item.to_owned(), "names of at most 253 bytes"));
        }
        let numbers = numbers(inside, most)?;
        if names.len().saturating_mul(numbers.len()) > most {
            return Err(too_many());
        }
        names = names
            .iter()
            .flat_map(|name| {
                numbers
                    .iter()
                    .map(move |number| format!("{name}{before}{number}"))
            })
            .collect();
        rest = behind;
    }
    if names.len() > most {
        return Err(too_many());
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

/// The numbers of a bracket with their leading zeros, at most so many.
fn numbers(inside: &str, most: usize) -> Result<Vec<String>, (String, &'static str)> {
    let mut numbers = Vec::new();
    for range in inside.split(',') {
        let range = range.trim();
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let read = |text: &str| {
            let plain =
                (1..=MOST_DIGITS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
            let number = text.parse::<usize>().ok().filter(|_| plain);
            number.ok_or_else(|| (range.to_owned(), "a number, or a range such as 0-3"))
        };
        let (from, to) = (read(first)?, read(last)?);
        if from > to {
            return Err((range.to_owned(), "a range that runs upwards"));
        }
        if to - from >= most.saturating_sub(numbers.len()) {
            return Err((range.to_owned(), "at most 262144 names in a file"));
        }
        let width = first.len();
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

/// The shortest list of names with one number range each, as Slurm prints them.
pub fn compress<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    // By what stands before the last number, what behind it, and its digits where they are padded.
    let mut groups: BTreeMap<(&str, &str, usize), Vec<u64>> = BTreeMap::new();
    let mut plain: Vec<&str> = Vec::new();
    for name in names {
        match last_number(name) {
            Some((before, digits, after)) => {
                let width = if digits.starts_with('0') {
                    digits.len()
                } else {
                    0
                };
                let number = digits.parse().unwrap_or_default();
                groups
                    .entry((before, after, width))
                    .or_default()
                    .push(number);
            }
            None => plain.push(name),
        }
    }
    let mut items: Vec<String> = plain.into_iter().map(str::to_owned).collect();
    for ((before, after, width), mut numbers) in merge_widths(groups) {
        numbers.sort_unstable();
        numbers.dedup();
        let inside = ranges(&numbers, width);
        items.push(match numbers.as_slice() {
            [one] => format!("{before}{one:0width$}{after}"),
            _ => format!("{before}[{inside}]{after}"),
        });
    }
    items.sort();
    items.join(",")
}

type Groups<'a> = BTreeMap<(&'a str, &'a str, usize), Vec<u64>>;

/// `09` and `10` are one range of two digits: numbers without padding join those whose width they have.
fn merge_widths(mut groups: Groups<'_>) -> Groups<'_> {
    let padded: Vec<_> = groups
        .keys()
        .copied()
        .filter(|(.., width)| *width > 1)
        .collect();
    for (before, after, width) in padded {
        let Some(free) = groups.remove(&(before, after, 0)) else {
            continue;
        };
        let (fits, rest): (Vec<_>, Vec<_>) = free
            .into_iter()
            .partition(|number| number.to_string().len() == width);
        groups
            .entry((before, after, width))
            .or_default()
            .extend(fits);
        if !rest.is_empty() {
            groups.insert((before, after, 0), rest);
        }
    }
    groups
}

fn last_number(name: &str) -> Option<(&str, &str, &str)> {
    let end = name.rfind(|sign: char| sign.is_ascii_digit())? + 1;
    let start = name[..end]
        .rfind(|sign: char| !sign.is_ascii_digit())
        .map_or(0, |at| {
            at + name[at..].chars().next().map_or(1, char::len_utf8)
        });
    let digits = &name[start..end];
    (digits.len() <= MOST_DIGITS).then_some((&name[..start], digits, &name[end..]))
}

fn ranges(numbers: &[u64], width: usize) -> String {
    let mut parts = Vec::new();
    let mut rest = numbers;
    while let Some(first) = rest.first() {
        let run = rest
            .iter()
            .zip(*first..)
            .take_while(|(a, b)| **a == *b)
            .count();
        let last = rest[run - 1];
        parts.push(if run == 1 {
            format!("{first:0width$}")
        } else {
            format!("{first:0width$}-{last:0width$}")
        });
        rest = &rest[run..];
    }
    parts.join(",")
}
