//! What the end-to-end tests share: child processes, waiting, loopback ports, HTTP, skipping.

#![allow(dead_code, unused_imports, unused_macros)] // every test uses some of it

pub(crate) mod browser;
pub(crate) mod ibsim;
pub(crate) mod node;
pub(crate) mod site;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The binary under test.
pub(crate) const RAILSCOPE: &str = env!("CARGO_BIN_EXE_railscope");

/// Time that a child gets to end by itself before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// Polling interval.
const POLL: Duration = Duration::from_millis(100);

/// Skips the test, with the message that `tests/run` counts.
macro_rules! skip {
    ($($why:tt)*) => {{
        $crate::support::say_skipped(&format!($($why)*));
        return;
    }};
}
pub(crate) use skip;

/// Prints `SKIPPED: test: why` past the test harness, which would swallow it.
pub(crate) fn say_skipped(why: &str) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    writeln!(std::io::stderr(), "SKIPPED: {test}: {why}").expect("stderr");
}

/// Leaves the test unless all these commands are installed.
macro_rules! need {
    ($($command:expr),+) => {
        let missing: Vec<_> = [$($command),+].into_iter().filter(|name| $crate::support::which(name).is_none()).collect();
        if !missing.is_empty() {
            $crate::support::skip!("not installed: {}", missing.join(", "));
        }
    };
}
pub(crate) use need;

/// Path of a command. Debian keeps some of them out of an ordinary user's path.
pub(crate) fn which(command: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders
        .map(|folder| folder.join(command))
        .find(|path| path.is_file())
}

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the package lies in the repository")
        .to_owned()
}

/// A free port of the loopback address, for a program that takes none itself. It is below the range that Linux gives to
/// outgoing connections (32768 and up), so that none of those takes it before the program does; processes that run
/// beside each other begin in different places, and no process gives out a port twice.
pub(crate) fn free_port() -> u16 {
    const PORTS: std::ops::Range<u32> = 11_000..32_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let count = PORTS.len() as u32;
    (0..count)
        .map(|_| {
            std::process::id()
                .wrapping_mul(101)
                .wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed))
        })
        .map(|place| (PORTS.start + place % count) as u16)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("a free loopback port")
}

/// A child process with its output in a file; ended when dropped.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it with `NAME.log` in the folder as its output.
    pub(crate) fn start(name: &str, folder: &Path, command: &mut Command) -> Self {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).expect("a log file");
        let output = file.try_clone().expect("a second handle");
        if command.get_current_dir().is_none() {
            command.current_dir(folder);
        }
        let child = command.stdout(output).stderr(file).spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Self {
            name: name.to_owned(),
            child,
            log,
        }
    }

    /// Process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    pub(crate) fn output(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Waits until its output holds the text, and fails if it ends before.
    pub(crate) fn wait_for_output(&mut self, text: &str, limit: Duration) {
        let began = Instant::now();
        while !self.output().contains(text) {
            let ended = self.child.try_wait().expect("a child");
            let (late, tail) = (began.elapsed() > limit, self.tail());
            assert!(
                ended.is_none(),
                "{} ended with {ended:?} and never said {text:?}:\n{tail}",
                self.name
            );
            assert!(
                !late,
                "{} did not say {text:?} within {limit:?}:\n{tail}",
                self.name
            );
            thread::sleep(POLL);
        }
    }

    /// The end of its output, for a message.
    pub(crate) fn tail(&self) -> String {
        let output = self.output();
        let lines: Vec<_> = output.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Requests it to end (SIGTERM) and waits; none if it had to be killed.
    pub(crate) fn stop(&mut self) -> Option<ExitStatus> {
        if let Ok(Some(ended)) = self.child.try_wait() {
            return Some(ended);
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It fails if the process has just ended, which is what is wanted.
            kill_process(pid, Signal::TERM).ok();
        }
        let began = Instant::now();
        while began.elapsed() < GRACE {
            if let Ok(Some(ended)) = self.child.try_wait() {
                return Some(ended);
            }
            thread::sleep(POLL / 4);
        }
        self.child.kill().ok();
        self.child.wait().ok();
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
        if thread::panicking() {
            eprintln!("--- last words of {}\n{}", self.name, self.tail());
        }
    }
}

/// A running `railscope demo`.
pub(crate) struct Demo {
    /// The process.
    pub(crate) process: Process,
    /// Address of its web page, without a trailing slash.
    pub(crate) url: String,
}

impl Demo {
    /// Starts it on a port of its own choice and waits until it serves.
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::start_as(Command::new(RAILSCOPE), folder, arguments)
    }

    /// Starts it by a command of the test, for example with a changed environment.
    pub(crate) fn start_as(mut command: Command, folder: &Path, arguments: &[&str]) -> Self {
        command
            .args(["demo", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdin(Stdio::null());
        let mut process = Process::start("demo", folder, &mut command);
        process.wait_for_output("Ctrl-C stops.", Duration::from_secs(60));
        let output = process.output();
        let address = output
            .lines()
            .find_map(|line| line.trim().strip_prefix("page "));
        let url = address
            .unwrap_or_else(|| panic!("no page: {output}"))
            .trim()
            .trim_end_matches('/')
            .to_owned();
        Self { process, url }
    }

    /// Its open incidents.
    pub(crate) fn incidents(&self, http: &Http) -> Result<Vec<Value>, String> {
        let answer = http
            .json(&format!("{}/api/v1/incidents", self.url))
            .map_err(|e| e + &self.process.tail())?;
        answer["incidents"]
            .as_array()
            .cloned()
            .ok_or_else(|| format!("no list: {answer}"))
    }

    /// Its incident, once it is the only one: of two exchanged cables each shows a lost link until a sweep shows why.
    pub(crate) fn wait_for_incident(&self, http: &Http, limit: Duration) -> Value {
        wait_for("incident", limit, || {
            match self.incidents(http)?.as_slice() {
                [] => Err(self.process.tail()),
                [incident] => Ok(incident.clone()),
                more => Err(format!("one fault, several incidents: {more:?}")),
            }
        })
    }

    /// Waits until its only incident is about this part and of this class.
    pub(crate) fn wait_until_only(
        &self,
        http: &Http,
        (part, class): (&str, &str),
        limit: Duration,
    ) {
        wait_for(&format!("only {class} {part}"), limit, || {
            match self.incidents(http)?.as_slice() {
                [] => Err(self.process.tail()),
                [only] if only["fault_domain"] == part && only["class"] == class => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    }

    /// Ends it as Ctrl-C does, and fails if it does not end successfully.
    pub(crate) fn stop(&mut self) {
        let ended = self.process.stop();
        assert!(
            ended.is_some_and(|status| status.success()),
            "{ended:?}: {}",
            self.process.tail()
        );
    }
}

/// Polls until there is a value; fails after the limit with the last obstacle.
pub(crate) fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut poll: impl FnMut() -> Result<T, String>,
) -> T {
    let began = Instant::now();
    loop {
        match poll() {
            Ok(value) => return value,
            Err(state) => assert!(
                began.elapsed() < limit,
                "no {what} within {limit:?}: {state}"
            ),
        }
        thread::sleep(POLL);
    }
}

/// Runs a command to its end within the limit: returns whether it succeeded, and its output.
pub(crate) fn run(command: &mut Command, limit: Duration) -> (bool, String) {
    let shown = format!("{command:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let mut process = Process::start("command", folder.path(), command.stdin(Stdio::null()));
    let began = Instant::now();
    loop {
        if let Some(ended) = process.child.try_wait().expect("a child") {
            return (ended.success(), process.output());
        }
        assert!(
            began.elapsed() < limit,
            "{shown} took longer than {limit:?}:\n{}",
            process.tail()
        );
        thread::sleep(POLL / 4);
    }
}

/// Runs a command that reads `input`, with its output joined.
pub(crate) fn run_with_input(command: &mut Command, input: &str) -> (bool, String) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    child
        .stdin
        .take()
        .expect("stdin")
        .write_all(input.as_bytes())
        .expect("takes its input");
    let output = child.wait_with_output().expect("ends");
    let text = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .concat();
    (output.status.success(), text)
}

/// An HTTP client for loopback addresses.
pub(crate) struct Http {
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
}

impl Http {
    /// One that goes through no proxy and gives up after a while.
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(20))
            .build()
            .expect("a client");
        Self { runtime, client }
    }

    /// Body of a response, or the error: no response, or a status other than 200.
    pub(crate) fn get(&self, url: &str) -> Result<String, String> {
        self.send(self.client.get(url), url)
    }

    /// Body of a response in the plain text format.
    pub(crate) fn get_as(&self, url: &str, accept: &str) -> Result<String, String> {
        self.send(self.client.get(url).header("accept", accept), url)
    }

    /// A response as JSON.
    pub(crate) fn json(&self, url: &str) -> Result<Value, String> {
        let body = self.get(url)?;
        serde_json::from_str(&body).map_err(|error| format!("{url}: {error}: {body}"))
    }

    /// Waits for anything else on its runtime.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn send(&self, request: reqwest::RequestBuilder, url: &str) -> Result<String, String> {
        self.runtime.block_on(async {
            let answer = request
                .send()
                .await
                .map_err(|error| format!("{url}: {error:?}"))?;
            let status = answer.status();
            let body = answer
                .text()
                .await
                .map_err(|error| format!("{url}: {error}"))?;
            if status.as_u16() == 200 {
                Ok(body)
            } else {
                Err(format!("{url}: {status}: {body}"))
            }
        })
    }
}

/// Percent-encodes a query parameter.
pub(crate) fn encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// Responds to every POST with 200 and passes on its body.
pub(crate) struct Sink {
    /// Port of the loopback address.
    pub(crate) port: u16,
    received: std::sync::mpsc::Receiver<(String, Value)>,
}

impl Sink {
    /// Listens until the test ends.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let port = listener.local_addr().expect("its address").port();
        let (sender, received) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Ignore the watchdog, which always fires.
                if let Some(request) = answer(stream).filter(|(path, _)| path != "/watchdog")
                    && sender.send(request).is_err()
                {
                    return;
                }
            }
        });
        Self { port, received }
    }

    /// Path and body of the next request, if one comes in time.
    pub(crate) fn next(&self, limit: Duration) -> Option<(String, Value)> {
        self.received.recv_timeout(limit).ok()
    }
}

/// Reads one request with a JSON body, and responds to it.
fn answer(mut stream: std::net::TcpStream) -> Option<(String, Value)> {
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.trim().parse().ok())?
            });
            if body.len() >= length.unwrap_or(0) {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    .ok()?;
                let path = head.split(' ').nth(1)?.to_owned();
                return Some((path, serde_json::from_str(body).ok()?));
            }
        }
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&buffer[..read]);
    }
}
