//! A leaf-spine of network namespaces with ECMP: two leaves, two spines, hosts below them, and exporters that probe across it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::cable::Cable;
use super::namespace::Namespace;

const RAILSCOPE: &str = env!("CARGO_BIN_EXE_railscope");
pub(crate) const SPINES: usize = 2;
/// The interface of each host, called as an RDMA device, so that a description of the subnet can list it, too.
pub(crate) const NIC: &str = "mlx5_0";

/// Hosts on both leaves, those of the first leaf first, each with one interface [`NIC`]; the cables between leaves and
/// spines that a test changes are carried by a thread.
pub(crate) struct Site {
    pub(crate) hosts: Vec<Namespace>,
    pub(crate) leaves: Vec<Namespace>,
    pub(crate) spines: [Namespace; SPINES],
    /// By leaf and spine; the first end is the leaf's.
    pub(crate) carried: BTreeMap<(usize, usize), Cable>,
}

pub(crate) fn host_address(host: usize) -> String {
    format!("10.{}.0.2", host + 1)
}

/// The leaf's end of the cable to a host.
pub(crate) fn gateway_address(host: usize) -> String {
    format!("10.{}.0.1", host + 1)
}

/// The leaf's end of a cable between a leaf and a spine, then the spine's.
pub(crate) fn trunk_addresses(leaf: usize, spine: usize) -> [String; 2] {
    [1, 2].map(|end| format!("10.{}.{spine}.{end}", 100 + leaf))
}

impl Site {
    /// Hosts by leaf, in order, and the cables (leaf, spine) that are carried by a thread; none, with the reason, where this
    /// machine cannot.
    pub(crate) fn build(test: &str, below: &[usize], carried: &[(usize, usize)]) -> Option<Self> {
        let space = |name: &str| Namespace::new(test, &format!("p{name}"));
        let count: usize = below.iter().sum();
        let hosts: Vec<_> = (0..count)
            .map(|host| space(&format!("host{host}")))
            .collect::<Option<_>>()?;
        let leaves: Vec<_> = (0..below.len())
            .map(|leaf| space(&format!("leaf{leaf}")))
            .collect::<Option<_>>()?;
        let spines = [space("spine0")?, space("spine1")?];
        let of_leaves = below.iter().enumerate();
        let leaf_of: Vec<usize> = of_leaves
            .flat_map(|(leaf, hosts)| std::iter::repeat_n(leaf, *hosts))
            .collect();
        for (host, space) in hosts.iter().enumerate() {
            let (leaf, port) = (&leaves[leaf_of[host]], format!("down{host}"));
            veth((space, NIC), (leaf, &port));
            let gateway = gateway_address(host);
            space.ip(&format!("addr add {}/24 dev {NIC}", host_address(host)));
            leaf.ip(&format!("addr add {gateway}/24 dev {port}"));
            space.ip(&format!("route add default via {gateway}"));
        }
        let mut cables = BTreeMap::new();
        for (leaf, spine) in
            (0..leaves.len()).flat_map(|leaf| (0..SPINES).map(move |spine| (leaf, spine)))
        {
            let (up, down) = (format!("up{spine}"), format!("down{leaf}"));
            let ends = ((&leaves[leaf], &*up), (&spines[spine], &*down));
            if carried.contains(&(leaf, spine)) {
                cables.insert((leaf, spine), Cable::join(test, ends.0, ends.1)?);
            } else {
                veth(ends.0, ends.1);
            }
        }
        for switch in leaves.iter().chain(&spines) {
            switch.output(
                "cd /proc/sys/net/ipv4; echo 1 >ip_forward; echo 1 >fib_multipath_hash_policy; \
                 echo 0 >icmp_ratelimit; echo 0 >../ipv6/icmp/ratelimit; echo 1 >../ipv6/conf/all/forwarding; \
                 for file in conf/*/rp_filter; do echo 0 >$file; done",
            );
        }
        let leaf_of = &leaf_of;
        let hosts_of = |leaf| (0..count).filter(move |host| leaf_of[*host] == leaf);
        for (leaf, near) in leaves.iter().enumerate() {
            let mut paths = String::new();
            for (spine, far) in spines.iter().enumerate() {
                let [own, beyond] = trunk_addresses(leaf, spine);
                near.ip(&format!("addr add {own}/30 dev up{spine}"));
                far.ip(&format!("addr add {beyond}/30 dev down{leaf}"));
                for host in hosts_of(leaf) {
                    far.ip(&format!("route add {} via {own}", net_of(host)));
                }
                paths += &format!(" nexthop via {beyond}");
            }
            for host in (0..count).filter(|host| leaf_of[*host] != leaf) {
                near.ip(&format!("route add {}{paths}", net_of(host)));
            }
        }
        Some(Self {
            hosts,
            leaves,
            spines,
            carried: cables,
        })
    }
}

fn net_of(host: usize) -> String {
    format!("10.{}.0.0/24", host + 1)
}

/// A cable between two interfaces, which it makes.
pub(crate) fn veth(a: (&Namespace, &str), b: (&Namespace, &str)) {
    a.0.ip(&format!(
        "link add {} type veth peer name {} netns {}",
        a.1, b.1, b.0.0
    ));
    a.0.ip(&format!("link set {} up", a.1));
    b.0.ip(&format!("link set {} up", b.1));
}

/// Runs what follows as user nobody and without capabilities: an exporter needs no more.
const AS_NOBODY: &[&str] = &[
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all",
    "--bounding-set=-all",
    "--no-new-privs",
];

/// As user nobody, if that user may read the program.
fn as_nobody() -> &'static [&'static str] {
    let mut version = Command::new(AS_NOBODY[0]);
    version.args(&AS_NOBODY[1..]).args([RAILSCOPE, "--version"]);
    if version.output().is_ok_and(|run| run.status.success()) {
        return AS_NOBODY;
    }
    println!("as root: {RAILSCOPE} is not for everybody");
    &[]
}

/// A process in a namespace; killed with it.
pub(crate) struct Running<'a> {
    pub(crate) process: Child,
    pub(crate) namespace: &'a Namespace,
}

impl<'a> Running<'a> {
    /// Starts Railscope with these arguments; its log is in the folder.
    pub(crate) fn start(namespace: &'a Namespace, folder: &Path, arguments: &[&str]) -> Self {
        namespace.ip("link set lo up");
        let log = fs::File::create(folder.join(format!("{}.log", namespace.0))).expect("a log");
        let process = Command::new("ip")
            .args(["netns", "exec", &namespace.0])
            .args(as_nobody())
            .arg(RAILSCOPE)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Self {
            process: process.expect("ip netns exec"),
            namespace,
        }
    }

    /// An exporter with a responder for probes, and these arguments.
    pub(crate) fn exporter(namespace: &'a Namespace, folder: &Path, arguments: &[&str]) -> Self {
        let own = [
            "exporter",
            "--no-nvml",
            "--no-jitter-probe",
            "--probe.listen",
            ":10661",
        ];
        Self::start(namespace, folder, &[&own, arguments].concat())
    }

    /// The body of a response of a server on loopback; none while it is not up yet.
    pub(crate) fn get(&self, port: u16, path: &str) -> Option<String> {
        let answer = self.namespace.inside(|| {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            let question = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            stream.write_all(question.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        });
        let answer = answer.ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        Some(body.to_owned())
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
