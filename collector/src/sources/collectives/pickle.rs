//! Python's pickle format, as far as PyTorch's C++ code writes it: plain data.
//!
//! Opcodes: <https://github.com/python/cpython/blob/main/Lib/pickletools.py>. Those that import or call
//! something are refused, so that a file runs no code. Depth and size are limited, so that no file exhausts
//! the stack or the memory of its reader.

use std::collections::HashMap;

use serde_json::{Map, Number, Value};

/// First byte of every pickle of protocol 2 and later.
const PROTOCOL: u8 = 0x80;
/// Containers in containers; a flight recorder's dump has 4.
const DEEPEST: usize = 64;
/// Values, those that are referred to again included. A dump of 2,000 collectives with stacks of 30 frames
/// has 300,000. The smallest dictionary uses 600 bytes.
const MOST_VALUES: usize = 2_000_000;

/// Whether a file is a pickle.
pub(super) fn is_pickle(bytes: &[u8]) -> bool {
    matches!(bytes, [PROTOCOL, 2..=5, ..])
}

/// Where and why a pickle cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(super) struct PickleError {
    /// Offset of the byte in the file.
    pub(super) at: usize,
    /// What was found there.
    pub(super) what: String,
}

/// Reads a pickle.
///
/// # Errors
/// The file ends early, or holds more than plain data, keys that are no text, or more or deeper values than
/// a dump has.
pub(super) fn parse_pickle(bytes: &[u8]) -> Result<Value, PickleError> {
    let mut reader = Reader {
        bytes,
        at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        values: 0,
    };
    loop {
        let at = reader.at;
        match reader.step() {
            Ok(None) => {}
            Ok(Some(value)) => return Ok(value),
            Err(what) => return Err(PickleError { at, what }),
        }
    }
}

/// A value with its size.
#[derive(Clone)]
struct Node {
    value: Value,
    depth: usize,
    values: usize,
}

impl Node {
    fn plain(value: impl Into<Value>) -> Self {
        Self {
            value: value.into(),
            depth: 0,
            values: 1,
        }
    }

    /// Adds the sizes of the parts.
    fn contain(&mut self, parts: &[Self]) -> Result<(), String> {
        let deepest = parts.iter().map(|part| part.depth + 1).max();
        self.depth = self.depth.max(deepest.unwrap_or(0));
        self.values += parts.iter().map(|part| part.values).sum::<usize>();
        if self.depth > DEEPEST {
            return Err(format!("more than {DEEPEST} containers in each other"));
        }
        Ok(())
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Node>,
    /// Heights of the stack at the open marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Node>,
    values: usize,
}

impl Reader<'_> {
    /// Runs one opcode. Returns the value with the last.
    fn step(&mut self) -> Result<Option<Value>, String> {
        let [opcode] = self.take()?;
        match opcode {
            PROTOCOL => self.skip(1)?,
            // A frame's length.
            0x95 => self.skip(8)?,
            b'.' => return self.pop().map(|node| Some(node.value)),
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.push(Node::plain(Value::Null))?,
            0x88 => self.push(Node::plain(true))?,
            0x89 => self.push(Node::plain(false))?,
            b'J' => self.number(|bytes| i32::from_le_bytes(bytes).into())?,
            b'K' => self.number(|[byte]: [u8; 1]| byte.into())?,
            b'M' => self.number(|bytes| u16::from_le_bytes(bytes).into())?,
            0x8a => self.long()?,
            b'G' => {
                let number = Number::from_f64(f64::from_be_bytes(self.take()?));
                self.push(Node::plain(number.map_or(Value::Null, Value::Number)))?;
            }
            b'X' => {
                let length = u32::from_le_bytes(self.take()?);
                self.text(length)?;
            }
            0x8c => {
                let [length] = self.take()?;
                self.text(length.into())?;
            }
            b'}' => self.push(Node::plain(Map::new()))?,
            b']' | b')' => self.push(Node::plain(Vec::<Value>::new()))?,
            b's' => self.insert(2)?,
            b'u' => {
                let count = self.since_mark()?;
                self.insert(count)?;
            }
            b'a' => self.append(1)?,
            b'e' => {
                let count = self.since_mark()?;
                self.append(count)?;
            }
            b't' => {
                let count = self.since_mark()?;
                self.tuple(count)?;
            }
            0x85..=0x87 => self.tuple(usize::from(opcode - 0x84))?,
            b'q' | b'r' | 0x94 | b'h' | b'j' => self.remember(opcode)?,
            other => return Err(format!("opcode {other:#04x}, which is not plain data")),
        }
        Ok(None)
    }

    /// Stores the newest value in the memo, or reads one from it. PyTorch stores a container there after it
    /// has filled it; one that is stored empty stays empty.
    fn remember(&mut self, opcode: u8) -> Result<(), String> {
        let key = match opcode {
            b'q' | b'h' => {
                let [key] = self.take()?;
                key.into()
            }
            b'r' | b'j' => u32::from_le_bytes(self.take()?),
            _ => u32::try_from(self.memo.len()).map_err(|error| error.to_string())?,
        };
        if matches!(opcode, b'h' | b'j') {
            let node = self.memo.get(&key).cloned();
            return self.push(node.ok_or_else(|| format!("nothing is remembered as {key}"))?);
        }
        let node = self.stack.last().ok_or("a value is missing")?.clone();
        self.count(node.values)?;
        self.memo.insert(key, node);
        Ok(())
    }

    fn count(&mut self, values: usize) -> Result<(), String> {
        self.values += values;
        if self.values > MOST_VALUES {
            return Err(format!("more than {MOST_VALUES} values"));
        }
        Ok(())
    }

    fn push(&mut self, node: Node) -> Result<(), String> {
        self.count(node.values)?;
        self.stack.push(node);
        Ok(())
    }

    fn pop(&mut self) -> Result<Node, String> {
        self.stack.pop().ok_or_else(|| "a value is missing".into())
    }

    /// The number of values since the last mark, which is closed.
    fn since_mark(&mut self) -> Result<usize, String> {
        let mark = self.marks.pop().ok_or("a mark is missing")?;
        let count = self.stack.len().checked_sub(mark);
        count.ok_or_else(|| "a value is missing".into())
    }

    /// Pops the newest values off the stack.
    fn parts(&mut self, count: usize) -> Result<Vec<Node>, String> {
        let left = self.stack.len().checked_sub(count);
        Ok(self.stack.split_off(left.ok_or("a value is missing")?))
    }

    fn number<const N: usize>(&mut self, read: fn([u8; N]) -> i64) -> Result<(), String> {
        let number = read(self.take()?);
        self.push(Node::plain(number))
    }

    /// An integer of up to 8 bytes, the lowest first, in two's complement.
    fn long(&mut self) -> Result<(), String> {
        let [length] = self.take()?;
        let bytes = self.slice(length.into())?;
        let negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
        let mut whole = [if negative { 0xff } else { 0 }; 8];
        let low = whole.get_mut(..bytes.len());
        low.ok_or("an integer of more than 8 bytes")?
            .copy_from_slice(bytes);
        self.push(Node::plain(i64::from_le_bytes(whole)))
    }

    fn text(&mut self, length: u32) -> Result<(), String> {
        let bytes = self.slice(usize::try_from(length).map_err(|error| error.to_string())?)?;
        let text = String::from_utf8_lossy(bytes).into_owned();
        // A long text counts as many values.
        let values = 1 + text.len() / size_of::<Node>();
        self.push(Node {
            values,
            ..Node::plain(text)
        })
    }

    /// Pops the newest `count` values off the stack, for the container below them, which adds their sizes to its own.
    fn container(
        &mut self,
        count: usize,
        container: &str,
    ) -> Result<(&mut Value, impl Iterator<Item = Value> + use<>), String> {
        let parts = self.parts(count)?;
        let below = self.stack.last_mut();
        let below = below.ok_or_else(|| format!("{container} is missing"))?;
        below.contain(&parts)?;
        Ok((&mut below.value, parts.into_iter().map(|part| part.value)))
    }

    /// Adds the newest `count` values, keys and values in turn, to the dictionary below them.
    fn insert(&mut self, count: usize) -> Result<(), String> {
        let (below, mut parts) = self.container(count, "a dictionary")?;
        let Value::Object(map) = below else {
            return Err("keys for a value that is no dictionary".into());
        };
        while let Some(key) = parts.next() {
            let key = match key {
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                other => return Err(format!("the key {other}, which is neither text nor number")),
            };
            map.insert(key, parts.next().ok_or("a key without a value")?);
        }
        Ok(())
    }

    /// Adds the newest `count` values to the list below them.
    fn append(&mut self, count: usize) -> Result<(), String> {
        let (below, parts) = self.container(count, "a list")?;
        let Value::Array(list) = below else {
            return Err("items for a value that is no list".into());
        };
        list.extend(parts);
        Ok(())
    }

    fn tuple(&mut self, count: usize) -> Result<(), String> {
        let parts = self.parts(count)?;
        self.push(Node::plain(Vec::<Value>::new()))?;
        self.stack.extend(parts);
        self.append(count)
    }

    fn skip(&mut self, count: usize) -> Result<(), String> {
        self.slice(count).map(drop)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let bytes = self.slice(N)?;
        <[u8; N]>::try_from(bytes).map_err(|error| error.to_string())
    }

    fn slice(&mut self, count: usize) -> Result<&[u8], String> {
        let end = self.at.checked_add(count);
        let bytes = end.and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or("the end of the file within a value")?;
        self.at += count;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_data_of_python_is_read() {
        // pickle.dumps({"a": [1, 300, -2, 70000, 2**40, 1.5, None, True], 3: ("x", "x")}, protocol)
        let second: &[u8] = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01M,\x01J\xfe\xff\xff\xffJp\x11\x01\x00\
            \x8a\x06\x00\x00\x00\x00\x00\x01G?\xf8\x00\x00\x00\x00\x00\x00N\x88eK\x03X\x01\x00\x00\x00xq\x03h\x03\x86q\x04u.";
        let fourth: &[u8] = b"\x80\x04\x95;\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01M,\x01J\xfe\xff\xff\xff\
            Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01G?\xf8\x00\x00\x00\x00\x00\x00N\x88eK\x03\x8c\x01x\x94h\x03\x86\x94u.";
        let expected = serde_json::json!({
            "a": [1, 300, -2, 70_000, 1_i64 << 40, 1.5, null, true], "3": ["x", "x"]
        });
        for bytes in [second, fourth] {
            assert!(is_pickle(bytes));
            assert_eq!(parse_pickle(bytes).expect("plain data"), expected);
        }
    }

    #[test]
    fn what_is_no_plain_data_is_refused_where_it_stands() {
        let check = |bytes: &[u8], at: usize, expected: &str| {
            let error = parse_pickle(bytes).expect_err(expected);
            assert_eq!(
                (error.at, error.what.contains(expected)),
                (at, true),
                "{error}"
            );
        };
        // An import of os.system.
        check(b"\x80\x02cos\nsystem\n.", 2, "not plain data");
        check(b"\x80\x02X\xff\x00\x00\x00a", 2, "end of the file");
        check(b"\x80\x02N", 3, "end of the file");
        check(b"\x80\x02.", 2, "a value is missing");
        check(b"\x80\x02]K\x01K\x02s.", 7, "no dictionary");
        check(b"\x80\x02}}K\x02s.", 6, "neither text nor number");
        check(b"\x80\x02K\x01K\x02u.", 6, "a mark is missing");
        check(b"\x80\x02h\x07.", 2, "nothing is remembered");
    }

    #[test]
    fn no_file_takes_the_stack_or_the_memory() {
        let deep = [b"\x80\x02N", &[0x85; 1_000_000][..]].concat();
        let error = parse_pickle(&deep).expect_err("deep");
        assert!(error.what.contains("in each other"), "{error}");
        // Each list holds the one before twice.
        let mut laughs = b"\x80\x02]".to_vec();
        for _ in 0..60 {
            laughs.extend_from_slice(b"q\x00h\x00\x86");
        }
        let error = parse_pickle(&laughs).expect_err("large");
        assert!(error.what.contains("values"), "{error}");
    }
}
