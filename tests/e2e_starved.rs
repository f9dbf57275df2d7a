//! A demo that is short of CPU accuses no healthy component, and still names the fault that is injected meanwhile.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

mod support;

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use support::{Demo, Http, RAILSCOPE};

/// Pulses of load: their number, the time between them, and their length.
const PULSES: u32 = 3;
const PULSE_EVERY: Duration = Duration::from_secs(15);
const PULSE: Duration = Duration::from_secs(4);
/// Time from the fault, in the third pulse, to its incident: what README promises, and the rest of the pulse.
const NAMED_WITHIN: Duration = Duration::from_secs(34);
const FAULT: &str = "pcie-degraded";
const COMPONENT: &str = "pcie/gpu-node-04:0000:19:00.0";

/// Busy loops that take the CPUs from everything else where the test may give them priority (root).
struct Load(Vec<Child>);

impl Load {
    fn start() -> Self {
        let start = |_| {
            let mut command = Command::new("nice");
            command.args(["-n", "-20", "sh", "-c", "while :; do :; done"]);
            command.stdin(Stdio::null()).stderr(Stdio::null());
            command.spawn().expect("nice")
        };
        Self((0..4).map(start).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().expect("its own child");
            child.wait().expect("its own child");
        }
    }
}

/// Waits, and adds the components of all open incidents.
fn watch(demo: &Demo, http: &Http, until: Instant, seen: &mut BTreeSet<String>) {
    while Instant::now() < until {
        // Under load a response may take longer than the client waits.
        for incident in demo.incidents(http).unwrap_or_default() {
            let component = incident["fault_domain"].as_str().expect("a component");
            seen.insert(component.to_owned());
        }
        thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn pulses_of_load_accuse_no_component_and_hide_no_fault() {
    let (http, folder) = (Http::new(), tempfile::tempdir().expect("a folder"));
    let mut demo = Demo::start(folder.path(), &["--fault", "none", "--nodes", "16"]);
    let mut seen = BTreeSet::new();
    let begun = Instant::now();
    for pulse in 1..=PULSES {
        watch(&demo, &http, begun + PULSE_EVERY * pulse, &mut seen);
        let load = Load::start();
        thread::sleep(PULSE / 2);
        if pulse == PULSES {
            let address = demo.url.trim_start_matches("http://");
            let mut inject = Command::new(RAILSCOPE);
            inject.args([
                "demo", "inject", FAULT, "--part", COMPONENT, "--demo", address,
            ]);
            let (succeeded, output) = support::run(&mut inject, Duration::from_secs(60));
            assert!(succeeded, "{output}");
        }
        thread::sleep(PULSE / 2);
        drop(load);
    }
    assert_eq!(seen, BTreeSet::new(), "incidents without a fault");
    demo.wait_until_only(&http, (COMPONENT, FAULT), NAMED_WITHIN);
    watch(&demo, &http, Instant::now() + PULSE_EVERY, &mut seen);
    assert_eq!(seen, BTreeSet::from([COMPONENT.to_owned()]));
    demo.stop();
}
