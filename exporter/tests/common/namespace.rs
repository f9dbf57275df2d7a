//! Network namespaces for tests: a thread that enters one, and the commands that build it.

use std::fs::File;
use std::path::Path;
use std::process::Command;

/// A network namespace with a unique name; deleted when dropped.
pub(crate) struct Namespace(pub(crate) String);

impl Namespace {
    /// Makes one; none, with the reason, where this machine or user cannot.
    pub(crate) fn new(test: &str, word: &str) -> Option<Self> {
        let name = format!("rs-{word}-{}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).output();
        match made {
            Ok(made) if made.status.success() => Some(Self(name)),
            Ok(made) => {
                let said = String::from_utf8_lossy(&made.stderr).trim().to_owned();
                eprintln!("SKIPPED: {test}: no network namespace: {said}");
                None
            }
            Err(error) => {
                eprintln!("SKIPPED: {test}: no ip command: {error}");
                None
            }
        }
    }

    /// Runs `ip` in the namespace.
    pub(crate) fn ip(&self, arguments: &str) {
        let run = Command::new("ip")
            .args(["-n", &self.0])
            .args(arguments.split_whitespace())
            .output();
        let run = run.expect("ip");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "ip {arguments}: {said}");
    }

    /// What a command prints that runs in the namespace.
    pub(crate) fn output(&self, command: &str) -> String {
        let run = Command::new("ip")
            .args(["netns", "exec", &self.0, "sh", "-c", command])
            .output();
        let run = run.expect("ip netns exec");
        String::from_utf8_lossy(&run.stdout).into_owned()
    }

    /// Runs a closure on a thread inside the namespace; sockets that it opens stay there.
    pub(crate) fn inside<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let file = File::open(Path::new("/run/netns").join(&self.0)).expect("a namespace");
                let kind = rustix::thread::LinkNameSpaceType::Network;
                rustix::thread::move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&file),
                    Some(kind),
                )
                .expect("enter the namespace");
                act()
            });
            thread.join().expect("the thread in the namespace")
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let deleted = Command::new("ip").args(["netns", "del", &self.0]).output();
        assert!(deleted.is_ok_and(|run| run.status.success()), "{}", self.0);
    }
}
