//! Neighbors from a real lldpd in network namespaces: by its lldpctl, and by listening to its packets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::namespace::Namespace;
use railscope_exporter::NetworkAccess;
use railscope_exporter::sources::ethtool::Nic;
use railscope_exporter::sources::lldp::{Listener, Neighbor, NeighborSource, ask};
use railscope_exporter::sources::sysfs::Miss;

/// lldpd sends at once when a link comes up, then every second.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running lldpd; it and its helper end with it.
struct Lldpd<'a> {
    process: Child,
    namespace: &'a Namespace,
    socket: PathBuf,
}

impl<'a> Lldpd<'a> {
    /// Starts one; none, with the reason, where it is not installed.
    fn start(test: &str, namespace: &'a Namespace, directory: &Path, name: &str) -> Option<Self> {
        if Command::new("lldpd").arg("-v").output().is_err() {
            eprintln!("SKIPPED: {test}: no lldpd");
            return None;
        }
        fs::create_dir_all("/run/lldpd").expect("the directory that lldpd locks itself into");
        let configuration = directory.join(format!("{name}.conf"));
        fs::write(
            &configuration,
            format!(
                "configure system hostname {name}\nconfigure lldp tx-interval 1\n\
                 configure lldp tx-hold 2\nconfigure lldp portidsubtype ifname\n\
                 configure lldp portdescription \"to the \\\"rails\\\"\"\n"
            ),
        )
        .expect("write");
        let socket = directory.join(format!("{name}.socket"));
        let process = Command::new("ip")
            .args(["netns", "exec", &namespace.0, "lldpd", "-d", "-k", "-u"])
            .arg(&socket)
            .arg("-O")
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("lldpd");
        Some(Self {
            process,
            namespace,
            socket,
        })
    }

    /// A program that queries this lldpd.
    fn lldpctl(&self) -> PathBuf {
        let path = self.socket.with_extension("lldpctl");
        let socket = self.socket.display();
        fs::write(
            &path,
            format!("#!/bin/sh\nexec lldpctl -u {socket} \"$@\"\n"),
        )
        .expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
        path
    }
}

impl Drop for Lldpd<'_> {
    fn drop(&mut self) {
        // The processes of a namespace of our own.
        let pids = Command::new("ip")
            .args(["netns", "pids", &self.namespace.0])
            .output();
        let pids = pids.map(|run| String::from_utf8_lossy(&run.stdout).into_owned());
        for pid in pids.unwrap_or_default().split_whitespace() {
            Command::new("kill").arg(pid).status().ok();
        }
        self.process.wait().ok();
    }
}

/// `leaf` and `host`, joined by two cables of which the leaf's ends are `swp1` and `swp2`.
fn fabric(test: &str) -> Option<(Namespace, Namespace)> {
    let word = test.len();
    let leaf = Namespace::new(test, &format!("leaf{word}"))?;
    let host = Namespace::new(test, &format!("host{word}"))?;
    for rail in 0..2 {
        let port = rail + 1;
        leaf.ip(&format!(
            "link add swp{port} type veth peer name rail{rail} netns {}",
            host.0
        ));
        leaf.ip(&format!("link set swp{port} up"));
        host.ip(&format!("link set rail{rail} up"));
    }
    Some((leaf, host))
}

fn nic(namespace: &Namespace, name: &str) -> Nic {
    let index = namespace.output(&format!("cat /sys/class/net/{name}/ifindex"));
    Nic {
        name: name.to_owned(),
        index: index.trim().parse().ok(),
    }
}

/// Queries until the result is this one.
fn eventually<T: PartialEq + std::fmt::Debug>(expected: &T, mut ask: impl FnMut() -> T) {
    let begun = Instant::now();
    loop {
        let said = ask();
        if said == *expected {
            println!("after {:?}", begun.elapsed());
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{said:?}");
        thread::sleep(Duration::from_millis(100));
    }
}

fn summary(neighbors: &[Neighbor]) -> Vec<String> {
    let lines = neighbors.iter().map(|neighbor| {
        let Neighbor {
            netdev,
            port,
            system,
            description,
            ..
        } = neighbor;
        format!("{netdev} {system} {port} {description}")
    });
    lines.collect()
}

#[test]
fn a_listener_hears_lldpd_and_forgets_it_in_time() {
    let test = "a_listener_hears_lldpd_and_forgets_it_in_time";
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some((leaf, host)) = fabric(test) else {
        return;
    };
    let Some(lldpd) = Lldpd::start(test, &leaf, directory.path(), "leaf-0") else {
        return;
    };
    let nics = [nic(&host, "rail0"), nic(&host, "rail1")];
    let mut listener = Listener::default();
    // Sockets are opened in the namespace and stay there.
    host.inside(|| listener.hear(&nics, Instant::now()))
        .expect("sockets");
    let description = "to the \"rails\"";
    let expected = [
        format!("rail0 leaf-0 swp1 {description}"),
        format!("rail1 leaf-0 swp2 {description}"),
    ];
    let mut hear = || listener.hear(&nics, Instant::now()).expect("frames");
    eventually(&expected.to_vec(), || summary(&hear()));
    let chassis = leaf.output("cat /sys/class/net/swp1/address");
    let said = hear();
    assert_eq!(said[0].chassis, chassis.trim());
    assert_eq!(said[1].chassis, chassis.trim());

    leaf.ip("link set swp1 down");
    eventually(&vec![expected[1].clone()], || summary(&hear()));
    // Withdraws itself with a time to live of zero, or expires.
    drop(lldpd);
    eventually(&Vec::new(), || summary(&hear()));
    assert_eq!(listener.take_unparsed(), 0);
}

#[test]
fn lldpd_is_asked_where_it_runs_and_packets_where_it_does_not() {
    let test = "lldpd_is_asked_where_it_runs_and_packets_where_it_does_not";
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some((leaf, host)) = fabric(test) else {
        return;
    };
    let Some(_leaf) = Lldpd::start(test, &leaf, directory.path(), "leaf-0") else {
        return;
    };
    let own = Lldpd::start(test, &host, directory.path(), "host-0").expect("lldpd");
    let lldpctl = own.lldpctl();
    let expected = [
        "rail0 leaf-0 swp1 to the \"rails\"",
        "rail1 leaf-0 swp2 to the \"rails\"",
    ];
    eventually(&expected.map(str::to_owned).to_vec(), || {
        let answer = ask(&lldpctl);
        summary(&answer.map(|(found, _)| found).unwrap_or_default())
    });
    let begun = Instant::now();
    let asked = ask(&lldpctl).expect("an answer");
    println!("lldpctl took {:?}", begun.elapsed());

    // The same neighbors, literally, from the packets.
    let nics = [nic(&host, "rail0"), nic(&host, "rail1")];
    let mut listener = Listener::default();
    host.inside(|| listener.hear(&nics, Instant::now()))
        .expect("sockets");
    eventually(&asked.0, || {
        listener.hear(&nics, Instant::now()).expect("frames")
    });

    let mut source = NeighborSource::new(&NetworkAccess::Kernel {
        lldpctl: lldpctl.clone(),
    });
    let found = source.neighbors(&[]).expect("neighbors");
    assert_eq!((found.found, found.without_lldpd), (asked.0, None));
    drop(own);
    assert_eq!(ask(&lldpctl), Err(Miss::Absent));
}

#[test]
fn without_lldpd_the_source_listens_and_says_so() {
    let test = "without_lldpd_the_source_listens_and_says_so";
    let Some((_leaf, host)) = fabric(test) else {
        return;
    };
    let access = NetworkAccess::Kernel {
        lldpctl: "/nonexistent/lldpctl".into(),
    };
    let nics = [nic(&host, "rail0")];
    let found = host.inside(|| NeighborSource::new(&access).neighbors(&nics));
    let found = found.expect("sockets");
    assert_eq!(
        (found.found.len(), found.without_lldpd),
        (0, Some(Miss::Absent))
    );
    let none = host.inside(|| NeighborSource::new(&access).neighbors(&[]));
    assert_eq!(none.err(), Some(Miss::Absent));
}

#[test]
fn without_the_capability_listening_is_denied() {
    let test = "without_the_capability_listening_is_denied";
    let nobody = Command::new("setpriv")
        .args(["--reuid=65534", "--clear-groups", "true"])
        .status();
    if !nobody.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: {test}: cannot become another user");
        return;
    }
    let this = std::env::current_exe().expect("this test");
    let copied = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(copied.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let copy = copied.path().join("lldp-test");
    fs::copy(this, &copy).expect("copy");
    let run = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(["--exact", "lldp::as_nobody", "--ignored", "--nocapture"])
        .current_dir("/")
        .output()
        .expect("the test as another user");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "run as another user by without_the_capability_listening_is_denied"]
fn as_nobody() {
    let lo = Nic {
        name: "lo".to_owned(),
        index: Some(1),
    };
    let heard = Listener::default().hear(&[lo], Instant::now());
    assert_eq!(heard, Err(Miss::Denied));
}

#[test]
fn a_program_that_hangs_lies_or_fails_is_no_lldpd() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, script, expected) in [
        ("fails", "echo '{\"lldp\":[{}]}'; exit 1", Miss::Absent),
        ("lies", "echo '{\"lldp\":'", Miss::Unparsed),
        ("binary", "printf '\\377\\376'", Miss::Unparsed),
        ("hangs", "exec sleep 60", Miss::Failed),
    ] {
        let (path, text) = (
            directory.path().join(name),
            directory.path().join(format!("{name}.sh")),
        );
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).expect("write");
        // Not by this process: a child of another test may hold it open for writing, and then it cannot be executed.
        let copied = Command::new("install")
            .args(["-m", "755"])
            .args([&text, &path])
            .status();
        assert!(copied.expect("install").success());
        let begun = Instant::now();
        assert_eq!(ask(&path), Err(expected), "{name}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{name}");
    }
}
