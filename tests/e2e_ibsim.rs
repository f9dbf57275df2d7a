//! A simulated InfiniBand subnet under a real subnet manager, read by the collector through the real
//! `ibnetdiscover`: the right verdict, and a cable that is cut is named, that one alone, until it is back.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

mod support;

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use railscope_collector::subnet::parse_ibnetdiscover;
use railscope_collector::topology::merge_subnet;
use railscope_model::fabric::{Fabric, LinkKind, Timestamp};
use railscope_simulator::ibnetdiscover::ibsim_net;
use railscope_simulator::spec::{ClusterSpec, Speed};
use railscope_simulator::wiring::Wiring;
use serde_json::Value;
use support::{Http, Process, RAILSCOPE, free_port, need, root, run, skip, wait_for, which};

const NODES: u16 = 32;
const NOW: Timestamp = Timestamp(1_754_493_083_000);
/// A sweep of this subnet takes 0.1 s; the collector opens an incident after two ticks and closes it after twelve.
const CONFIG_INTERVAL: &str = "1s";
const OPENS_WITHIN: Duration = Duration::from_secs(30);
const CLOSES_WITHIN: Duration = Duration::from_secs(60);

/// One subnet at a time: ibsim answers late on a busy machine, and a sweep that times out is a partial one.
static TURN: Mutex<()> = Mutex::new(());

/// ibsim with its console, and opensm on it. The simulator ends last.
struct Subnet {
    opensm: Process,
    ibsim: Process,
    console: File,
    folder: tempfile::TempDir,
    preload: PathBuf,
    socket: String,
    _turn: MutexGuard<'static, ()>,
}

impl Subnet {
    /// Starts both and waits until the subnet manager has given out the LIDs.
    fn start(wiring: &Wiring, preload: PathBuf) -> Self {
        // A test that failed has left its turn as it was.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().expect("a folder");
        let net = folder.path().join("fabric.net");
        std::fs::write(&net, ibsim_net(wiring)).expect("a net file");
        // Both ends of the console stay open: at the end of its input ibsim would spin.
        let fifo = folder.path().join("console");
        assert!(
            Command::new("mkfifo")
                .arg(&fifo)
                .status()
                .is_ok_and(|status| status.success()),
            "mkfifo"
        );
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(&fifo)
                .expect("a console")
        };
        let console = open();
        // Sockets of ibsim live in one name space for the whole machine.
        let nics = wiring.nics.len();
        let socket = format!("railscope-{}-{nics}", std::process::id());
        let mut ibsim = Command::new(which("ibsim").expect("ibsim"));
        ibsim
            .arg("-s")
            .arg(&net)
            .env("IBSIM_SOCKNAME", &socket)
            .stdin(Stdio::from(open()));
        let mut ibsim = Process::start("ibsim", folder.path(), &mut ibsim);
        ibsim.wait_for_output("Network simulator ready", Duration::from_secs(20));

        let settings = folder.path().join("opensm.conf");
        std::fs::write(
            &settings,
            "force_log_flush TRUE\nmax_wire_smps 32\nsweep_interval 10\n",
        )
        .expect("settings");
        let log = folder.path().join("opensm-messages");
        let mut opensm = Command::new(which("opensm").expect("opensm"));
        opensm
            .arg("-F")
            .arg(settings)
            .arg("-f")
            .arg(&log)
            .args(["-s", "0"])
            .stdin(Stdio::null());
        for (name, value) in environment(&preload, &socket, "gpu-node-00-mlx5_0") {
            opensm.env(name, value);
        }
        opensm
            .env("OSM_TMP_DIR", folder.path())
            .env("OSM_CACHE_DIR", folder.path());
        let opensm = Process::start("opensm", folder.path(), &mut opensm);
        wait_for("SUBNET UP", Duration::from_secs(30), || {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            if said.contains("SUBNET UP") {
                Ok(())
            } else {
                Err(opensm.tail())
            }
        });
        Self {
            opensm,
            ibsim,
            console,
            folder,
            preload,
            socket,
            _turn: turn,
        }
    }

    /// A line for ibsim's console: `Unlink "leaf-su0-r3"[5]`.
    fn command(&mut self, line: &str) {
        self.console
            .write_all(format!("{line}\n").as_bytes())
            .expect("the console");
    }

    /// `ibnetdiscover` as an argv for the collector's configuration. The preloaded library puts a fake /sys into the
    /// working directory.
    fn ibnetdiscover(&self) -> Vec<String> {
        let folder = self.folder.path().display().to_string();
        let program = which("ibnetdiscover")
            .expect("ibnetdiscover")
            .display()
            .to_string();
        let mut argv = vec!["env".to_owned(), "-C".to_owned(), folder];
        let environment = environment(&self.preload, &self.socket, "gpu-node-01-mlx5_0");
        argv.extend(environment.map(|(name, value)| format!("{name}={value}")));
        argv.push(program);
        argv
    }
}

/// What makes a program talk to the simulator, as the host that it then is.
fn environment(preload: &Path, socket: &str, host: &str) -> [(&'static str, String); 3] {
    [
        ("LD_PRELOAD", preload.display().to_string()),
        ("IBSIM_SOCKNAME", socket.to_owned()),
        ("SIM_HOST", host.to_owned()),
    ]
}

/// The library of ibsim-utils that stands in for /dev/infiniband.
fn umad2sim() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib")
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    let folders = folders.chain([PathBuf::from("/usr/lib"), PathBuf::from("/usr/lib64")]);
    folders
        .map(|folder| folder.join("umad2sim/libumad2sim.so"))
        .find(|path| path.is_file())
}

/// The collector on that subnet.
struct Collector {
    process: Process,
    url: String,
    http: Http,
}

impl Collector {
    fn start(subnet: &Subnet) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let argv: Vec<_> = subnet
            .ibnetdiscover()
            .iter()
            .map(|word| format!("{word:?}"))
            .collect();
        let config = format!(
            "[cluster]\nname = \"ibsim\"\n\n[web]\nlisten = \"{address}\"\n\n[scrape]\ninterval = \"{CONFIG_INTERVAL}\"\n\n\
             [subnet]\ncommand = [{}]\ninterval = \"{CONFIG_INTERVAL}\"\n\n[analysis]\ninterval = \"{CONFIG_INTERVAL}\"\n",
            argv.join(", ")
        );
        let file = subnet.folder.path().join("collector.toml");
        std::fs::write(&file, config).expect("a configuration");
        let mut command = Command::new(RAILSCOPE);
        command
            .arg("collector")
            .arg("--config")
            .arg(file)
            .stdin(Stdio::null());
        let process = Process::start("collector", subnet.folder.path(), &mut command);
        Self {
            process,
            url: format!("http://{address}"),
            http: Http::new(),
        }
    }

    fn json(&self, path: &str) -> Result<Value, String> {
        self.http
            .json(&format!("{}{path}", self.url))
            .map_err(|error| format!("{error}\n{}", self.process.tail()))
    }

    /// Fault domain and class of each open incident, by the API.
    fn incidents(&self) -> Result<Vec<(String, String)>, String> {
        let answer = self.json("/api/v1/incidents")?;
        let list = answer
            .as_array()
            .or_else(|| answer["incidents"].as_array())
            .ok_or(format!("no list: {answer}"))?;
        let text =
            |incident: &Value, key: &str| incident[key].as_str().unwrap_or_default().to_owned();
        Ok(list
            .iter()
            .map(|incident| (text(incident, "fault_domain"), text(incident, "class")))
            .collect())
    }

    /// Lines of `/metrics` that begin so.
    fn series(&self, name: &str) -> Result<Vec<String>, String> {
        let page = self.http.get(&format!("{}/metrics", self.url))?;
        Ok(page
            .lines()
            .filter(|line| line.starts_with(name))
            .map(str::to_owned)
            .collect())
    }

    /// How many sweeps ended so.
    fn sweeps(&self, result: &str) -> Result<u64, String> {
        let name = format!(r#"railscope_collector_subnet_sweeps_total{{result="{result}"}} "#);
        let lines = self.series(&name)?;
        let value = lines.first().and_then(|line| line.strip_prefix(&name));
        let value = value.ok_or_else(|| format!("no {name}"))?;
        value
            .parse()
            .map_err(|error| format!("{name}{value}: {error}"))
    }

    /// Waits for so many more sweeps that end so.
    fn wait_for_sweeps(&self, result: &str, more: u64) {
        let before = self.sweeps(result).expect("metrics");
        wait_for("sweeps", OPENS_WITHIN, || {
            let now = self.sweeps(result)?;
            if now >= before + more {
                Ok(())
            } else {
                Err(format!("{now} {result} sweeps, {before} before"))
            }
        });
    }

    /// Waits until the fabric has so many cables.
    fn wait_for_cables(&self, count: usize) {
        const CABLES: &str = r#"railscope_fabric_links{kind="cable"}"#;
        let expected = format!("{CABLES} {count}");
        wait_for("all cables", OPENS_WITHIN, || {
            let found = self.series(CABLES)?;
            if found == [expected.as_str()] {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        });
    }

    /// The verdict once a sweep has come to its end in which everybody answered.
    fn verdict(&self) -> String {
        wait_for("verdict", Duration::from_secs(30), || {
            if self.sweeps("complete")? == 0 {
                return Err(format!("no complete sweep\n{}", self.process.tail()));
            }
            let series = self.series("railscope_fabric_verdict_info{")?;
            let known = series
                .first()
                .filter(|series| !series.contains(r#"kind="unknown""#));
            known
                .cloned()
                .ok_or_else(|| format!("{series:?}\n{}", self.process.tail()))
        })
    }

    fn wait_for_incidents(
        &self,
        what: &str,
        limit: Duration,
        expected: &[(&str, &str)],
    ) -> Duration {
        let began = Instant::now();
        wait_for(what, limit, || {
            let found = self.incidents()?;
            let found: Vec<_> = found
                .iter()
                .map(|(domain, class)| (domain.as_str(), class.as_str()))
                .collect();
            if found == expected {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        });
        began.elapsed()
    }
}

#[test]
fn a_cable_cut_on_a_real_subnet_is_named_that_one_alone_until_it_is_back() {
    need!("ibsim", "opensm", "ibnetdiscover", "env", "mkfifo");
    let Some(preload) = umad2sim() else {
        skip!("not installed: umad2sim/libumad2sim.so of ibsim-utils")
    };
    let spec = ClusterSpec {
        speed: Some(Speed::Hdr),
        ..ClusterSpec::demo(NODES).expect("a cluster")
    };
    let wiring = Wiring::plan(&spec).expect("a wiring");
    let mut subnet = Subnet::start(&wiring, preload);
    let collector = Collector::start(&subnet);

    let verdict = collector.verdict();
    assert!(
        verdict.contains(r#"kind="rail-optimised""#) && verdict.contains(r#"levels="2""#),
        "{verdict}"
    );
    // 256 to hosts and as many uplinks.
    collector.wait_for_cables(512);
    assert_eq!(
        collector.incidents(),
        Ok(Vec::new()),
        "a healthy subnet is silent"
    );

    // A host's cable, at its leaf's end: node 5 hangs on port 6 of its rails' leaves.
    let host_cable = ("link/gpu-node-05:mlx5_3/1", "port-down");
    subnet.command(r#"Unlink "leaf-su0-r3"[6]"#);
    let opened =
        collector.wait_for_incidents("incident for the host's cable", OPENS_WITHIN, &[host_cable]);
    let active = collector
        .series("railscope_incident_active{")
        .expect("metrics");
    assert_eq!(active.len(), 1, "{active:?}");
    assert!(
        active[0].contains(r#"fault_domain="link/gpu-node-05:mlx5_3/1""#),
        "{active:?}"
    );
    assert!(
        active[0].contains(r#"class="port-down""#) && active[0].ends_with(" 1"),
        "{active:?}"
    );

    // A second cut while the first lasts: a leaf's uplink. Rerouting must not drag others along.
    let uplink = ("link/leaf-su0-r2:33", "port-down");
    subnet.command(r#"Unlink "leaf-su0-r2"[33]"#);
    wait_for("second incident", OPENS_WITHIN, || {
        let found = collector.incidents()?;
        let mut found: Vec<_> = found
            .iter()
            .map(|(domain, class)| (domain.as_str(), class.as_str()))
            .collect();
        found.sort_unstable();
        if found == [host_cable, uplink] {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    });

    subnet.command(r#"ReLink "leaf-su0-r3"[6]"#);
    subnet.command(r#"ReLink "leaf-su0-r2"[33]"#);
    let closed = collector.wait_for_incidents("end of both incidents", CLOSES_WITHIN, &[]);
    assert_eq!(
        collector.series("railscope_incident_active{"),
        Ok(Vec::new())
    );
    println!(
        "opened after {opened:?}, closed after {closed:?}; ibsim {}, opensm {}",
        subnet.ibsim.id(),
        subnet.opensm.id()
    );
}

#[test]
fn a_dead_leaf_is_one_incident_and_not_one_for_each_cable() {
    need!("ibsim", "opensm", "ibnetdiscover", "env", "mkfifo");
    let Some(preload) = umad2sim() else {
        skip!("not installed: umad2sim/libumad2sim.so of ibsim-utils")
    };
    let spec = ClusterSpec {
        speed: Some(Speed::Hdr),
        ..ClusterSpec::demo(4).expect("a cluster")
    };
    let wiring = Wiring::plan(&spec).expect("a wiring");
    let mut subnet = Subnet::start(&wiring, preload);
    let collector = Collector::start(&subnet);
    collector.verdict();
    subnet.command(r#"Unlink "leaf-su0-r5""#);
    collector.wait_for_incidents(
        "incident for the leaf",
        OPENS_WITHIN,
        &[("switch/leaf-su0-r5", "switch-down")],
    );
}

#[test]
fn answers_that_never_come_make_a_sweep_partial_and_nothing_else() {
    need!("ibsim", "opensm", "ibnetdiscover", "env", "mkfifo");
    let Some(preload) = umad2sim() else {
        skip!("not installed: umad2sim/libumad2sim.so of ibsim-utils")
    };
    let spec = ClusterSpec {
        speed: Some(Speed::Hdr),
        ..ClusterSpec::demo(4).expect("a cluster")
    };
    let wiring = Wiring::plan(&spec).expect("a wiring");
    let mut subnet = Subnet::start(&wiring, preload);
    let collector = Collector::start(&subnet);
    collector.verdict();
    // NodeDescription, NodeInfo and PortInfo of a leaf and of a host's adapter.
    for attribute in [16, 17, 21] {
        for device in ["leaf-su0-r5", "gpu-node-02-mlx5_3"] {
            subnet.command(&format!(r#"Error "{device}" 100 {attribute}"#));
        }
        // An incident opens after two ticks.
        collector.wait_for_sweeps("partial", 3);
        assert_eq!(
            collector.incidents(),
            Ok(Vec::new()),
            "attribute {attribute}"
        );
        for device in ["leaf-su0-r5", "gpu-node-02-mlx5_3"] {
            subnet.command(&format!(r#"Error "{device}" 0 {attribute}"#));
        }
        collector.wait_for_sweeps("complete", 1);
    }
    assert_eq!(collector.incidents(), Ok(Vec::new()));
    // A cable that is cut while somebody else does not answer is found all the same.
    subnet.command(r#"Error "leaf-su0-r5" 100 17"#);
    subnet.command(r#"Unlink "leaf-su0-r3"[2]"#);
    let host_cable = ("link/gpu-node-01:mlx5_3/1", "port-down");
    collector.wait_for_incidents("incident for the host's cable", OPENS_WITHIN, &[host_cable]);
}

/// Both ends of every cable by part and port, the smaller first.
fn cables(fabric: &Fabric) -> BTreeSet<[(String, u16); 2]> {
    let name = |id| fabric.vertex(id).part.to_string();
    let links = fabric
        .links()
        .filter(|(.., link)| link.kind == LinkKind::Cable);
    links
        .map(|(_, a, b, link)| {
            let mut ends = [(name(a), link.ports.0), (name(b), link.ports.1)];
            ends.sort();
            ends
        })
        .collect()
}

#[test]
fn every_kind_of_fabric_comes_back_from_a_real_subnet_cable_by_cable() {
    need!("ibsim", "opensm", "ibnetdiscover", "env", "mkfifo");
    let Some(preload) = umad2sim() else {
        skip!("not installed: umad2sim/libumad2sim.so of ibsim-utils")
    };
    // All that are one subnet, and have no more than the 256 switches that ibsim takes.
    for name in [
        "dragonfly",
        "fat-tree-3tier",
        "fat-tree-oversubscribed",
        "host-grouped",
        "rail-optimised-3tier",
    ] {
        let path = root()
            .join("tests/fabrics")
            .join(name)
            .with_extension("toml");
        let text = std::fs::read_to_string(path).expect(name);
        let spec = ClusterSpec {
            speed: Some(Speed::Hdr),
            ..toml::from_str(&text).expect(name)
        };
        let wiring = Wiring::plan(&spec).expect("a wiring");
        let subnet = Subnet::start(&wiring, preload.clone());
        let argv = subnet.ibnetdiscover();
        let (well, said) = run(Command::new(&argv[0]).args(&argv[1..]), OPENS_WITHIN);
        assert!(well, "{name}: {said}");
        let mut seen = Fabric::default();
        merge_subnet(&mut seen, &parse_ibnetdiscover(&said), NOW);
        let (seen, built) = (cables(&seen), cables(&wiring.fabric(NOW)));
        assert_eq!(built.symmetric_difference(&seen).next(), None, "{name}");
        println!("{name}: {} cables", seen.len());
    }
}
