//! NVML of simulated nodes: the mock library, embedded, and the typed state that its copies serve.
//!
//! One folder is one node: [`install`] puts a copy of the library and its state file there. The loader
//! distinguishes libraries by inode, so that copies in several folders are independent of each other
//! in one process.

#[path = "../../nvml-mock/src/state/mod.rs"]
mod state;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

pub use state::{
    Effect, Event, Fault, GpuState, HGX_LINKS, LineError, LinkState, MAX_GPUS, MAX_LINKS,
    MAX_MIG_DEVICES, MigDevice, NodeGpus, PciAddress, Process, ProcessKind, STATE_FILE, SWITCHES,
    Value, Vgpu,
};

/// The name under which the driver installs NVML, and so does [`install`].
pub const LIBRARY_FILE: &str = "libnvidia-ml.so.1";

/// The mock as a shared library. Empty where none can be loaded: other systems than Linux, and musl.
pub const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libnvidia-ml.so.1"));

/// The mock without the symbols that an old driver lacks: total energy, clock event reasons, the second version of
/// memory information, NUMA node, fabric information, performance monitoring, port registers, vGPU.
pub const OLD_DRIVER_LIBRARY: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/libnvidia-ml-old-driver.so.1"));

/// Why a simulated NVML could not be put in place.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// The state holds what its text cannot report: a line break, or blanks around a value.
    #[error("the GPU state cannot be written as text: {reason}")]
    NotText {
        /// The first difference.
        reason: String,
    },
    /// This build embeds no library; see [`LIBRARY`].
    #[error(
        "this build carries no NVML mock: it needs Linux with a C library that can load shared libraries"
    )]
    NoLibrary,
}

/// Writes the library and its state into `dir`, and returns the library's path for `Nvml::builder().lib_path(..)`.
///
/// # Errors
/// The folder cannot be written, the state is not text, or this build has no library.
pub fn install(dir: &Path, state: &NodeGpus) -> Result<PathBuf, InstallError> {
    install_library(dir, LIBRARY, state)
}

/// As [`install`], with the library of an old driver. The versions stay those of `state`.
///
/// # Errors
/// As [`install`].
pub fn install_old_driver(dir: &Path, state: &NodeGpus) -> Result<PathBuf, InstallError> {
    install_library(dir, OLD_DRIVER_LIBRARY, state)
}

fn install_library(dir: &Path, library: &[u8], state: &NodeGpus) -> Result<PathBuf, InstallError> {
    if library.is_empty() {
        return Err(InstallError::NoLibrary);
    }
    update_state(dir, state)?;
    let path = dir.join(LIBRARY_FILE);
    replace(&path, library)?;
    Ok(path)
}

/// Replaces the state file in `dir`; loaded copies of the library use it within 100 ms.
///
/// # Errors
/// The folder cannot be written, or the state is not text.
pub fn update_state(dir: &Path, state: &NodeGpus) -> Result<(), InstallError> {
    let text = state.render();
    let (back, errors) = NodeGpus::parse(&text);
    if let Some(error) = errors.first() {
        return Err(InstallError::NotText {
            reason: error.to_string(),
        });
    }
    if back != *state {
        let read_back = back.render();
        let lost = text
            .lines()
            .zip(read_back.lines())
            .find(|(wrote, read)| wrote != read);
        let reason = lost.map_or_else(
            || "a line is lost".into(),
            |(wrote, read)| format!("`{wrote}` becomes `{read}`"),
        );
        return Err(InstallError::NotText { reason });
    }
    replace(&dir.join(STATE_FILE), text.as_bytes())
}

/// As [`update_state`], for a state in which only numbers differ from one that it took: they are always text, so
/// that nothing is read back.
///
/// # Errors
/// The folder cannot be written.
pub fn update_numbers(dir: &Path, state: &NodeGpus) -> Result<(), InstallError> {
    replace(&dir.join(STATE_FILE), state.render().as_bytes())
}

/// Removes the state file, as if the driver were unloaded: every call then reports "driver not
/// loaded".
///
/// # Errors
/// The file cannot be removed.
pub fn unload_driver(dir: &Path) -> Result<(), InstallError> {
    let path = dir.join(STATE_FILE);
    fs::remove_file(&path).map_err(|source| InstallError::Write { path, source })
}

/// Writes beside and renames, so that no reader sees half a state or half a library.
fn replace(path: &Path, content: &[u8]) -> Result<(), InstallError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("{}-{count}.tmp", std::process::id()));
    let written = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|source| InstallError::Write {
        path: path.into(),
        source,
    })
}
