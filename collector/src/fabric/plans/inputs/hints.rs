//! Hints at the format of a text that a reader does not recognize.

use super::Reader::Unsupported;
use super::{DOCUMENT, INPUTS, Input, Reader};

/// The format that a text resembles most; `None` if it contains no mark of any.
pub fn nearest(text: &str) -> Option<&'static Input> {
    // Marks are rare in other texts: one is sufficient, more score higher, and the first scores highest.
    let score = |input: &Input| {
        let marks = input.marks.iter();
        let found = marks.filter(|mark| text.contains(**mark)).count();
        let first = input.marks.first().is_some_and(|mark| text.contains(mark));
        (found > 0).then(|| (usize::from(first), 100 * found / input.marks.len().max(1)))
    };
    let known = INPUTS
        .iter()
        .filter_map(|input| Some((score(input)?, input)));
    known
        .max_by_key(|(score, _)| *score)
        .map(|(_, input)| input)
}

/// Whether a text is an archive, a compressed file, or another file that is no text.
pub fn is_binary(text: &str) -> bool {
    let begin = text.chars().take(512);
    let unreadable = begin.filter(|letter| matches!(*letter, '\0' | char::REPLACEMENT_CHARACTER));
    unreadable.count() > 8
}

/// Hint for an error message about a text that is unrecognized by `tried`, the readers that were used.
pub fn hint(text: &str, tried: &[Reader]) -> String {
    if is_binary(text) {
        return "an archive or compressed file; unpack it and name its files".to_owned();
    }
    match nearest(text) {
        Some(Input { form, reader, .. }) if tried.contains(reader) => {
            let form = plain(form);
            format!(
                "this resembles {form}, but lacks their data: it is truncated, damaged or a summary; {DOCUMENT} lists all formats"
            )
        }
        Some(Input {
            form,
            reader: Unsupported,
            content,
            ..
        }) => {
            let (form, content) = (plain(form), plain(content));
            format!(
                "this looks like {form}, which is not supported: {content}; {DOCUMENT} lists the supported formats"
            )
        }
        Some(Input { form, reader, .. }) => {
            let form = plain(form);
            format!(
                "this looks like {form}; use \"{}\"; {DOCUMENT} lists all formats",
                reader.command()
            )
        }
        None => format!("{DOCUMENT} lists the supported formats with their commands"),
    }
}

/// Text of the document for a terminal: links as text with their file.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('[') {
        let link = behind
            .split_once("](")
            .and_then(|(words, behind)| Some((words, behind.split_once(')')?)));
        let Some((words, (file, behind))) = link else {
            break;
        };
        plain += &format!("{before}{words} (docs/{file})");
        rest = behind;
    }
    plain + rest
}
