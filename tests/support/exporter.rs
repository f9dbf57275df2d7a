//! A running `railscope exporter`, queried over HTTP.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

pub(crate) const RAILSCOPE: &str = env!("CARGO_BIN_EXE_railscope");

/// A started exporter; killed if a test fails in between.
pub(crate) struct Exporter {
    pub(crate) process: Child,
    pub(crate) address: String,
}

impl Exporter {
    pub(crate) fn start(library: &Path) -> Self {
        Self::start_with(library, &["--node.name=rack7-n3".to_owned()])
    }

    pub(crate) fn start_with(library: &Path, arguments: &[String]) -> Self {
        let mut process = Command::new(RAILSCOPE)
            .args(["exporter", "--web.listen-address", "127.0.0.1:0"])
            .args(arguments)
            .arg("--nvml.library")
            .arg(library)
            .env("RAILSCOPE_NVML_PERIOD", "1s")
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut log = BufReader::new(process.stderr.take().expect("a pipe"));
        let mut address = None;
        while address.is_none() {
            let mut line = String::new();
            assert!(
                log.read_line(&mut line).expect("a log") > 0,
                "ended before it listened"
            );
            let said = line.split_once("listening on http://");
            address = said.and_then(|(_, rest)| Some(rest.split_once('/')?.0.to_owned()));
        }
        // The rest must be read, or the exporter blocks on a full pipe.
        thread::spawn(move || log.read_to_end(&mut Vec::new()));
        Self {
            process,
            address: address.unwrap_or_default(),
        }
    }

    pub(crate) fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n\r\n"
        )
        .expect("sends");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answers");
        answer
    }

    /// The exposition, in OpenMetrics.
    pub(crate) fn page(&self, profile: &str) -> String {
        let answer = self.get(&format!("/metrics?profile={profile}"));
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        body.to_owned()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status();
        assert!(sent.expect("kill runs").success());
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
