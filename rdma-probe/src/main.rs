//! `railscope-rdma-probe`: started by `railscope exporter --probe.rdma`; reads plans and writes reports, one JSON object a line.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use railscope_model::rdma_probe::{Plan, Problem, REPORT_INTERVAL, Report};
use railscope_rdma_probe::verbs;
use railscope_rdma_probe::worker::{Device, Shared, now_nanos, run};

/// How often to look for devices.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A thread that was not seen for so long hangs in its driver.
const HANGS_AFTER_NANOS: u64 = 5_000_000_000;
/// Longest line that is read: a plan of 256 flows has 50 kB.
const LONGEST_LINE: u64 = 4 * 1024 * 1024;

/// A device, and the thread that has it.
struct Running {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

fn main() -> ExitCode {
    if let Some(argument) = std::env::args().nth(1) {
        if argument == "--version" {
            println!("railscope-rdma-probe {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        eprintln!(
            "railscope-rdma-probe takes no arguments but --version: it is started by `railscope exporter --probe.rdma PROGRAM`, \
             which sends it the flows to probe on standard input"
        );
        return ExitCode::from(2);
    }
    match serve(&plans()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("railscope-rdma-probe: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Plans from standard input. The channel ends with it.
fn plans() -> Receiver<Plan> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        let mut line = String::new();
        loop {
            line.clear();
            match io::Read::take(&mut input, LONGEST_LINE).read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            match serde_json::from_str(&line) {
                Ok(plan) => {
                    if sender.send(plan).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    eprintln!("railscope-rdma-probe: a plan that cannot be read: {error}");
                }
            }
        }
    });
    receiver
}

/// Probes by all devices and reports, until standard input or output is closed.
fn serve(plans: &Receiver<Plan>) -> io::Result<()> {
    let mut plan = Arc::new(Plan::default());
    let mut running: BTreeMap<String, Running> = BTreeMap::new();
    let mut look_at = Instant::now();
    let mut devices_problem = None;
    loop {
        loop {
            match plans.try_recv() {
                Ok(newer) => {
                    plan = Arc::new(newer);
                    for one in running.values() {
                        one.shared.follow(Arc::clone(&plan));
                    }
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        if Instant::now() >= look_at {
            running.retain(|_, one| !one.thread.is_finished());
            devices_problem = look(&mut running, &plan).err();
            look_at = Instant::now() + LOOK_EVERY;
        }
        if let Some(error) = devices_problem.take() {
            eprintln!("railscope-rdma-probe: cannot list RDMA devices: {error}");
        }
        let line = serde_json::to_string(&report(&running, &plan))?;
        let mut output = io::stdout().lock();
        writeln!(output, "{line}")?;
        output.flush()?;
        drop(output);
        thread::sleep(REPORT_INTERVAL);
    }
}

/// Starts a thread for each device that has none.
fn look(running: &mut BTreeMap<String, Running>, plan: &Arc<Plan>) -> io::Result<()> {
    for (name, node) in listed()? {
        if running.contains_key(&name) {
            continue;
        }
        let shared = Arc::new(Shared::default());
        shared.follow(Arc::clone(plan));
        let device = Device {
            name: name.clone(),
            node,
            secrets: [(); 3].map(|()| secret()),
        };
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name(format!("rdma-{name}"));
        let thread = thread.spawn(move || run(&device, &of_thread))?;
        running.insert(name, Running { shared, thread });
    }
    Ok(())
}

/// The devices that there are: none where the kernel has no RDMA.
fn listed() -> io::Result<Vec<(String, String)>> {
    // libibverbs reads sysfs again each time; one thread calls it at a time.
    static ASKING: Mutex<()> = Mutex::new(());
    let _asking = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    match verbs::devices() {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(Vec::new()),
        devices => devices,
    }
}

/// What all devices have to say.
fn report(running: &BTreeMap<String, Running>, plan: &Plan) -> Report {
    let mut report = Report::default();
    for flow in &plan.flows {
        if !running.contains_key(&flow.device) {
            report.problems.insert(flow.device.clone(), Problem::Absent);
        }
    }
    for (name, one) in running {
        let said = one.shared.take();
        let hangs = now_nanos().saturating_sub(one.shared.beat_nanos()) > HANGS_AFTER_NANOS;
        let problem = if hangs {
            Some(Problem::Failed)
        } else {
            said.problem
        };
        if let Some(problem) = problem {
            report.problems.insert(name.clone(), problem);
        } else if let Some(endpoint) = said.endpoint {
            report.endpoints.insert(name.clone(), endpoint);
        }
        report.answered.extend(said.outcomes.answered);
        report.lost.extend(said.outcomes.lost);
        if !said.counts.responded.is_empty() {
            report.responded.insert(name.clone(), said.counts.responded);
        }
        report.unparsed += said.outcomes.unexpected + said.counts.unparsed;
        report.limited += said.outcomes.limited + said.counts.limited;
        report.hardware_timestamps |= said.hardware_timestamps;
    }
    report
}

/// A random number: the standard library has no other source.
fn secret() -> u64 {
    RandomState::new().build_hasher().finish()
}
