//! A simulated InfiniBand subnet: ibsim, opensm on it, and a collector that reads it.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use railscope_collector::fabric::subnet::forwarding::{Tables, parse_forwarding};
use railscope_collector::sources::mad_sweep::Swept;
use railscope_simulator::show::ibnetdiscover::ibsim_net;
use railscope_simulator::wiring::Wiring;
use serde_json::Value;

use super::{Http, Process, RAILSCOPE, free_port, run, wait_for, which};

/// A sweep of 32 nodes takes 0.1 s; the collector opens an incident after two ticks and closes it after twelve.
const CONFIG_INTERVAL: &str = "1s";
/// How long an incident may take to open.
pub(crate) const OPENS_WITHIN: Duration = Duration::from_secs(30);

/// One subnet at a time: ibsim replies late on a busy machine, and a sweep that times out is a partial one.
static TURN: Mutex<()> = Mutex::new(());

/// ibsim with its console, and opensm on it. The simulator ends last.
pub(crate) struct Subnet {
    pub(crate) opensm: Process,
    pub(crate) ibsim: Process,
    console: File,
    pub(crate) folder: tempfile::TempDir,
    preload: PathBuf,
    socket: String,
    _turn: MutexGuard<'static, ()>,
}

impl Subnet {
    /// Starts both and waits until the subnet manager has given out the LIDs.
    pub(crate) fn start(wiring: &Wiring, preload: PathBuf) -> Self {
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
        // Its own limits are 256 switches and 2048 hosts.
        let switches = wiring.switches.len();
        let limits = [("-N", nics + switches), ("-S", switches)];
        for (option, number) in limits {
            ibsim.arg(option).arg((number + 64).to_string());
        }
        ibsim
            .args(["-P", &(switches * 129 + 2 * nics + 64).to_string()])
            .arg("-s")
            .arg(&net)
            .env("IBSIM_SOCKNAME", &socket)
            .stdin(Stdio::from(open()));
        let mut ibsim = Process::start("ibsim", folder.path(), &mut ibsim);
        ibsim.wait_for_output("Network simulator ready", Duration::from_secs(20));

        let opensm = manage(folder.path(), &preload, &socket);
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
    pub(crate) fn command(&mut self, line: &str) {
        self.console
            .write_all(format!("{line}\n").as_bytes())
            .expect("the console");
    }

    /// `ibnetdiscover` as an argv for the collector's configuration.
    pub(crate) fn ibnetdiscover(&self) -> Vec<String> {
        self.tool("ibnetdiscover")
    }

    /// An own sweep's device that is a host of this subnet.
    pub(crate) fn device(&self) -> String {
        format!("ibsim:{}:gpu-node-01-mlx5_0", self.socket)
    }

    /// A tool as an argv that talks to the simulator. The preloaded library puts a fake /sys into the working directory.
    pub(crate) fn tool(&self, name: &str) -> Vec<String> {
        let folder = self.folder.path().display().to_string();
        let program = which(name).expect(name).display().to_string();
        let mut argv = vec!["env".to_owned(), "-C".to_owned(), folder];
        let environment = environment(&self.preload, &self.socket, "gpu-node-01-mlx5_0");
        argv.extend(environment.map(|(name, value)| format!("{name}={value}")));
        argv.push(program);
        argv
    }

    /// What a tool prints.
    pub(crate) fn printed(&self, name: &str) -> String {
        let argv = self.tool(name);
        let limit = Duration::from_secs(60);
        let (well, said) = run(Command::new(&argv[0]).args(&argv[1..]), limit);
        assert!(well, "{said}");
        said
    }

    /// Fails unless an own sweep has read the forwarding tables that `dump_fts` prints, the blocks that it requests: those
    /// of 64 that hold LIDs of adapters.
    pub(crate) fn forwards_as(&self, swept: &Swept) {
        let printed = parse_forwarding(&self.printed("dump_fts"));
        assert_eq!(printed.problems, []);
        let (own, _) = swept.forwarding.as_ref().expect("tables");
        let switches = |tables: &Tables| tables.keys().copied().collect::<Vec<_>>();
        assert_eq!(switches(own), switches(&printed.tables));
        let asked: BTreeSet<u16> = swept.subnet.lids.iter().map(|(_, lid)| lid / 64).collect();
        let mut compared = 0;
        for (guid, table) in &printed.tables {
            let is_asked = |(lid, _): &(u16, u8)| asked.contains(&(lid / 64));
            let theirs: Vec<_> = table.entries().filter(is_asked).collect();
            assert_eq!(own[guid].entries().collect::<Vec<_>>(), theirs, "{guid}");
            compared += theirs.len();
        }
        let least = swept.subnet.lids.len() * own.len();
        assert!(compared >= least, "{compared} entries, at least {least}");
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
pub(crate) fn umad2sim() -> Option<PathBuf> {
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
pub(crate) struct Collector {
    process: Process,
    url: String,
    http: Http,
}

impl Collector {
    pub(crate) fn start(subnet: &Subnet) -> Self {
        let argv: Vec<_> = subnet
            .ibnetdiscover()
            .iter()
            .map(|word| format!("{word:?}"))
            .collect();
        Self::start_from(subnet, &format!("command = [{}]", argv.join(", ")))
    }

    /// A collector that reads the subnet from there: a line of its configuration.
    pub(crate) fn start_from(subnet: &Subnet, source: &str) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let config = format!(
            "[cluster]\nname = \"ibsim\"\n\n[web]\nlisten = \"{address}\"\n\n[scrape]\ninterval = \"{CONFIG_INTERVAL}\"\n\n\
             [subnet]\n{source}\ninterval = \"{CONFIG_INTERVAL}\"\n\n[analysis]\ninterval = \"{CONFIG_INTERVAL}\"\n"
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

    pub(crate) fn json(&self, path: &str) -> Result<Value, String> {
        self.http
            .json(&format!("{}{path}", self.url))
            .map_err(|error| format!("{error}\n{}", self.process.tail()))
    }

    /// Fault domain and class of each open incident, by the API.
    pub(crate) fn incidents(&self) -> Result<Vec<(String, String)>, String> {
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
    pub(crate) fn series(&self, name: &str) -> Result<Vec<String>, String> {
        let page = self.http.get(&format!("{}/metrics", self.url))?;
        Ok(page
            .lines()
            .filter(|line| line.starts_with(name))
            .map(str::to_owned)
            .collect())
    }

    /// How many sweeps ended so.
    pub(crate) fn sweeps(&self, result: &str) -> Result<u64, String> {
        let name = format!(r#"railscope_collector_subnet_sweeps_total{{result="{result}"}} "#);
        let lines = self.series(&name)?;
        let value = lines.first().and_then(|line| line.strip_prefix(&name));
        let value = value.ok_or_else(|| format!("no {name}"))?;
        value
            .parse()
            .map_err(|error| format!("{name}{value}: {error}"))
    }

    /// Waits for so many more sweeps that end so.
    pub(crate) fn wait_for_sweeps(&self, result: &str, more: u64) {
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
    pub(crate) fn wait_for_cables(&self, count: usize) {
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

    /// The classification once a sweep has completed in which every device replied.
    pub(crate) fn verdict(&self) -> String {
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

    pub(crate) fn wait_for_incidents(
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

/// Starts opensm on a simulated subnet and waits until it has given out the LIDs.
fn manage(folder: &Path, preload: &Path, socket: &str) -> Process {
    let settings = folder.join("opensm.conf");
    std::fs::write(
        &settings,
        "force_log_flush TRUE\nmax_wire_smps 32\nsweep_interval 10\n",
    )
    .expect("settings");
    let log = folder.join("opensm-messages");
    let mut opensm = Command::new(which("opensm").expect("opensm"));
    opensm
        .arg("-F")
        .arg(settings)
        .arg("-f")
        .arg(&log)
        .args(["-s", "0"])
        .stdin(Stdio::null());
    for (name, value) in environment(preload, socket, "gpu-node-00-mlx5_0") {
        opensm.env(name, value);
    }
    opensm
        .env("OSM_TMP_DIR", folder)
        .env("OSM_CACHE_DIR", folder);
    let opensm = Process::start("opensm", folder, &mut opensm);
    wait_for("SUBNET UP", Duration::from_secs(30), || {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        if said.contains("SUBNET UP") {
            Ok(())
        } else {
            Err(opensm.tail())
        }
    });
    opensm
}
