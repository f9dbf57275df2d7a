//! lldpd's neighbors, by the program that comes with it.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Neighbor, parse_json0};
use crate::sources::sysfs::Miss;

/// lldpd replies in milliseconds; a blocked one is abandoned after this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest reply: a thousand neighbors with all their details.
const LONGEST: u64 = 4 << 20;
/// Interval at which the end of the program is checked.
const LOOK: Duration = Duration::from_millis(5);

/// Queries lldpd for all its neighbors, and how many of them could not be read.
///
/// # Errors
/// [`Miss::Absent`] if the program or lldpd does not exist, [`Miss::Failed`] if it does not reply in time,
/// [`Miss::Unparsed`] if its output is invalid.
pub fn ask(program: &Path) -> Result<(Vec<Neighbor>, usize), Miss> {
    let text = run(program).map_err(|error| {
        tracing::debug!(program = %program.display(), %error, "no neighbors from lldpd");
        match error.kind() {
            io::ErrorKind::NotFound => Miss::Absent,
            io::ErrorKind::PermissionDenied => Miss::Denied,
            io::ErrorKind::InvalidData => Miss::Unparsed,
            _ => Miss::Failed,
        }
    })?;
    parse_json0(&text).ok_or(Miss::Unparsed)
}

fn run(program: &Path) -> io::Result<String> {
    let mut child = Command::new(program)
        .args(["-f", "json0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let end = Instant::now() + PATIENCE;
    let text = read(&mut child, end);
    let ended = wait(&mut child, end);
    let text = text?;
    if !ended? {
        // Seen of lldpctl: its status is 1 where lldpd does not run.
        return Err(io::Error::new(io::ErrorKind::NotFound, "it failed"));
    }
    Ok(text)
}

/// All that the program prints until it closes its output.
fn read(child: &mut Child, end: Instant) -> io::Result<String> {
    let output = child.stdout.take();
    let output = output.ok_or_else(|| io::Error::other("no output"))?;
    let (sender, receiver) = mpsc::channel();
    // Ends with the program, which is killed if it takes too long.
    thread::Builder::new()
        .name("lldpctl-output".to_owned())
        .spawn(move || {
            let mut text = String::new();
            let read = output.take(LONGEST).read_to_string(&mut text);
            // No receiver waits any more: then it is not needed.
            sender.send(read.map(|_| text)).ok();
        })?;
    let patience = end.saturating_duration_since(Instant::now());
    let received = receiver.recv_timeout(patience);
    received.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Waits for the program's end and kills it on a timeout; returns whether it succeeded.
fn wait(child: &mut Child, end: Instant) -> io::Result<bool> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(LOOK);
    }
}
