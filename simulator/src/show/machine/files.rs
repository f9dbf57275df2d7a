//! Files of a simulated machine: constant ones, links, and live ones that change under an open reader.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};

/// A file that could not be made or changed.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub struct TreeError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub cause: io::Error,
}

/// Puts the path to an error of the system.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> TreeError + '_ {
    move |cause| TreeError {
        path: path.to_owned(),
        cause,
    }
}

/// A tree below one root.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    pub(crate) const fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// A file with one line of text, as the kernel prints attributes.
    pub(crate) fn line(&self, path: &str, text: &str) -> Result<(), TreeError> {
        self.file(path, &format!("{text}\n"))
    }

    /// A file with this text.
    pub(crate) fn file(&self, path: &str, text: &str) -> Result<(), TreeError> {
        let path = self.parent_of(path)?;
        fs::write(&path, text).map_err(at(&path))
    }

    /// A file of bytes of which some will change.
    pub(crate) fn binary(&self, path: &str, bytes: &[u8]) -> Result<BinaryFile, TreeError> {
        let path = self.parent_of(path)?;
        fs::write(&path, bytes).map_err(at(&path))?;
        let bytes = bytes.to_vec();
        Ok(BinaryFile { path, bytes })
    }

    /// A file with one line that will change.
    pub(crate) fn live(&self, path: &str, text: &str) -> Result<LiveFile, TreeError> {
        self.line(path, text)?;
        Ok(LiveFile {
            path: self.root.join(path),
            text: text.to_owned(),
        })
    }

    /// A symbolic link, relative as in sysfs. Both paths are below the root.
    pub(crate) fn link(&self, path: &str, target: &str) -> Result<(), TreeError> {
        let up = "../".repeat(path.matches('/').count());
        let path = self.parent_of(path)?;
        symlink(format!("{up}{target}"), &path).map_err(at(&path))
    }

    pub(crate) fn folder(&self, path: &str) -> Result<(), TreeError> {
        let path = self.root.join(path);
        fs::create_dir_all(&path).map_err(at(&path))
    }

    fn parent_of(&self, path: &str) -> Result<PathBuf, TreeError> {
        let path = self.root.join(path);
        if let Some(parent) = path.parent()
            && !parent.is_dir()
        {
            fs::create_dir_all(parent).map_err(at(parent))?;
        }
        Ok(path)
    }
}

/// A one-line file that changes as kernel attributes do: readers keep it open and read it again, so it
/// keeps its inode, and each new text comes in one write.
#[derive(Debug, Clone)]
pub(crate) struct LiveFile {
    path: PathBuf,
    text: String,
}

impl LiveFile {
    /// Writes a new line to the file, if it differs from the current one.
    pub(crate) fn set(&mut self, text: &str) -> Result<(), TreeError> {
        if self.text == text {
            return Ok(());
        }
        let file = OpenOptions::new()
            .write(true)
            .open(&self.path)
            .map_err(at(&self.path))?;
        // A shorter line is filled up with line ends, so that a reader between the write and
        // the cut sees white space behind it and not the tail of the old line.
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(bytes.len().max(self.text.len()) + 1, b'\n');
        file.write_all_at(&bytes, 0).map_err(at(&self.path))?;
        if text.len() < self.text.len() {
            file.set_len(text.len() as u64 + 1)
                .map_err(at(&self.path))?;
        }
        text.clone_into(&mut self.text);
        Ok(())
    }
}

/// A file of bytes that change in place, as registers do.
#[derive(Debug, Clone)]
pub(crate) struct BinaryFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl BinaryFile {
    /// Writes the bytes at a position, if they differ from the current ones.
    pub(crate) fn set(&mut self, place: usize, values: &[u8]) -> Result<(), TreeError> {
        let known = &mut self.bytes[place..place + values.len()];
        if known == values {
            return Ok(());
        }
        known.copy_from_slice(values);
        let file = OpenOptions::new()
            .write(true)
            .open(&self.path)
            .map_err(at(&self.path))?;
        let written = file.write_all_at(values, place as u64);
        written.map_err(at(&self.path))
    }
}
