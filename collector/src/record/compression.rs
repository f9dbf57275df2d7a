//! Compresses a batch as one zstd frame: matches between the scrapes of equal nodes are found within 8 MiB.
//!
//! The matcher of `ruzstd` looks back 128 KiB, less than one exposition. With this one a batch of eight full expositions takes a sixth
//! of the bytes and a quarter of the time (docs/recording.md).

use ruzstd::encoding::{CompressionLevel, FrameCompressor, Matcher, Sequence};

/// The largest block of the format.
const BLOCK_BYTES: usize = 128 << 10;
/// How far back a match may be; what a reader needs as memory.
const WINDOW_BYTES: usize = 8 << 20;
/// The shortest match.
const WIDTH: usize = 8;
/// Entries of the table of places, as a power of two: it stays in the cache of a core.
const PLACES_LOG: u32 = 15;
/// After so many misses (a power of two) the search becomes coarser.
const MISSES_LOG: usize = 8;

/// The text as a zstd frame.
pub(super) fn compress(text: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(text.len() / 8);
    let matcher = WideMatcher::default();
    let mut compressor = FrameCompressor::new_with_matcher(matcher, CompressionLevel::Fastest);
    compressor.set_source(text);
    compressor.set_drain(&mut frame);
    compressor.compress();
    drop(compressor);
    frame
}

/// A repetition in a block.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Found {
    /// Literals before it begin here.
    begin: usize,
    at: usize,
    end: usize,
    offset: usize,
}

/// Finds repetitions by a table of the last place of every eight bytes.
struct WideMatcher {
    /// Everything so far: a batch is at most 64 MiB and one line.
    data: Vec<u8>,
    /// Where the last block begins.
    block: usize,
    /// The buffer of the next block.
    spare: Vec<u8>,
    /// By hash: the place plus one.
    places: Vec<u32>,
}

impl Default for WideMatcher {
    fn default() -> Self {
        Self {
            data: Vec::new(),
            block: 0,
            spare: Vec::new(),
            places: vec![0; 1 << PLACES_LOG],
        }
    }
}

/// Eight bytes from this place on.
fn word(data: &[u8], at: usize) -> Option<u64> {
    let bytes = data.get(at..)?.first_chunk::<WIDTH>()?;
    Some(u64::from_le_bytes(*bytes))
}

fn hash(word: u64) -> usize {
    // Fibonacci hashing: the high bits of a product depend on all bits of the word.
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES_LOG)) as usize
}

/// Number of equal bytes at the beginning.
fn common(one: &[u8], other: &[u8]) -> usize {
    let words = one.as_chunks::<WIDTH>().0.iter();
    let words = words.zip(other.as_chunks::<WIDTH>().0);
    let equal = WIDTH * words.take_while(|(one, other)| one == other).count();
    let rest = one[equal..].iter().zip(&other[equal..]);
    equal + rest.take_while(|(one, other)| one == other).count()
}

/// A match: its length and where its text was before.
#[derive(Clone, Copy)]
struct Match {
    bytes: usize,
    from: usize,
}

impl WideMatcher {
    /// Notes the place; returns the longest match there.
    fn find(data: &[u8], places: &mut [u32], at: usize, last_offset: usize) -> Option<Match> {
        let here = word(data, at)?;
        let place = &mut places[hash(here)];
        let before = std::mem::replace(place, u32::try_from(at + 1).ok()?);
        // The next line of an equal node is where the last one was.
        let candidates = [
            at.checked_sub(last_offset),
            (before as usize).checked_sub(1),
        ];
        let matches = candidates.into_iter().flatten().filter_map(|from| {
            let is_near = from < at && at - from <= WINDOW_BYTES;
            (is_near && word(data, from) == Some(here)).then(|| Match {
                bytes: common(&data[at..], &data[from..]),
                from,
            })
        });
        matches.max_by_key(|found| found.bytes)
    }

    fn note(data: &[u8], places: &mut [u32], at: usize) {
        if let (Some(word), Ok(place)) = (word(data, at), u32::try_from(at + 1)) {
            places[hash(word)] = place;
        }
    }
}

/// Changes sequences that `ruzstd` 0.9.1 cannot encode: its tables need two symbols.
fn make_encodable(data: &[u8], block: usize, all: &mut Vec<Found>) {
    // All literals are the same byte: the first match with another one becomes literals.
    if let Some(only) = only_literal(data, block, all) {
        let is_other = |found: &Found| data[found.at..found.end].iter().any(|byte| *byte != only);
        if let Some(index) = all.iter().position(is_other) {
            let removed = all.remove(index);
            if let Some(next) = all.get_mut(index) {
                next.begin = removed.begin;
            }
        }
    }
    // No match has a literal before it: the first one begins a byte later.
    if all.iter().all(|found| found.begin == found.at)
        && let Some(first) = all.first_mut()
    {
        first.at += 1;
    }
}

/// The byte that all bytes outside of matches are, if they are the same.
fn only_literal(data: &[u8], block: usize, all: &[Found]) -> Option<u8> {
    let rest = all.last().map_or(block, |last| last.end);
    let before = all.iter().flat_map(|found| &data[found.begin..found.at]);
    let mut literals = before.chain(&data[rest..]);
    let first = literals.next()?;
    literals.all(|byte| byte == first).then_some(*first)
}

impl Matcher for WideMatcher {
    fn get_next_space(&mut self) -> Vec<u8> {
        let mut space = std::mem::take(&mut self.spare);
        space.resize(BLOCK_BYTES, 0);
        space
    }

    fn get_last_space(&mut self) -> &[u8] {
        &self.data[self.block..]
    }

    fn commit_space(&mut self, space: Vec<u8>) {
        self.block = self.data.len();
        self.data.extend_from_slice(&space);
        self.spare = space;
    }

    fn skip_matching(&mut self) {}

    fn start_matching(&mut self, mut handle_sequence: impl for<'a> FnMut(Sequence<'a>)) {
        let (data, places) = (&self.data[..], &mut self.places[..]);
        let mut all = Vec::new();
        // Literals that belong to no match yet begin here.
        let mut begin = self.block;
        let (mut at, mut misses, mut last_offset) = (begin, 0_usize, 0);
        while at + WIDTH <= data.len() {
            let Some(found) = Self::find(data, places, at, last_offset) else {
                misses += 1;
                at += 1 + (misses >> MISSES_LOG);
                continue;
            };
            let offset = at - found.from;
            let before = data[begin..at].iter().rev();
            let before = before.zip(data[..found.from].iter().rev());
            let earlier = before.take_while(|(one, other)| one == other).count();
            let next = at + found.bytes;
            all.push(Found {
                begin,
                at: at - earlier,
                end: next,
                offset,
            });
            for place in [at + 2, next - 5, next - 2] {
                Self::note(data, places, place);
            }
            (at, begin, misses, last_offset) = (next, next, 0, offset);
        }
        make_encodable(data, self.block, &mut all);
        for one in &all {
            handle_sequence(Sequence::Triple {
                literals: &data[one.begin..one.at],
                offset: one.offset,
                match_len: one.end - one.at,
            });
        }
        let begin = all.last().map_or(self.block, |last| last.end);
        if begin < data.len() {
            handle_sequence(Sequence::Literals {
                literals: &data[begin..],
            });
        }
    }

    fn reset(&mut self, _level: CompressionLevel) {
        self.data.clear();
        self.places.fill(0);
    }

    fn window_size(&self) -> u64 {
        WINDOW_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use ruzstd::decoding::FrameDecoder;

    use super::*;

    fn decompressed(frame: &[u8], bytes: usize) -> Vec<u8> {
        let mut text = Vec::with_capacity(bytes);
        let mut decoder = FrameDecoder::new();
        decoder
            .decode_all_to_vec(frame, &mut text)
            .expect("a frame");
        text
    }

    /// Numbers without repetition.
    fn numbers(count: u64) -> String {
        let mut text = String::new();
        for number in 0..count {
            let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
            write!(text, "{number:016x}").expect("text");
        }
        text
    }

    #[test]
    fn a_frame_has_the_text_whatever_it_is() {
        let long = numbers(40_000);
        let mut texts = vec![
            String::new(),
            String::from("a"),
            String::from("abcdefgh"),
            "x".repeat(300_000),
            "line 1\n".repeat(40_000),
            // Blocks with one match alone, and with one literal in many places.
            long.repeat(2),
            (0..30_000)
                .map(|number| format!("{}{}\n", &long[number..number + 12], number % 2))
                .collect::<String>()
                .repeat(2)
                .replacen("0\n", "1\n", 40_000),
            long.clone(),
            // Beyond the window.
            format!("{long}{}{long}", "y z".repeat(2_900_000)),
        ];
        for cut in [1, 7, 8, 9, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1] {
            texts.push(long[..cut].to_owned() + &long[..cut]);
        }
        for text in texts {
            let frame = compress(text.as_bytes());
            let read = decompressed(&frame, text.len());
            assert!(read == text.as_bytes(), "{} bytes", text.len());
        }
    }

    #[test]
    fn an_exposition_like_an_earlier_one_is_small() {
        // 320 kB, more than the window of ruzstd's own matcher.
        let one = numbers(20_000);
        let alone = compress(one.as_bytes()).len();
        let twice = compress((one.clone() + &one).as_bytes()).len();
        assert!(
            twice < alone + alone / 50,
            "{twice} bytes, one alone {alone}"
        );
    }
}
