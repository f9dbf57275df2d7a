//! PCI functions and the chain of bridges above them, from the shape of `/sys/devices`.

use railscope_model::identity::PciAddress;

use super::sysfs::{Buffer, Dir, Miss};

const DEVICES: &str = "bus/pci/devices";
const NVIDIA: &str = "0x10de";
/// PCI classes of a GPU: VGA controller and 3D controller. NVSwitches are NVIDIA's too, but bridges.
const GPU_CLASSES: [&str; 2] = ["0x0300", "0x0302"];

/// One PCI function and where it is connected.
#[derive(Debug, Clone)]
pub struct Function {
    /// Its address.
    pub address: PciAddress,
    /// The root complex above it, `pci0000:15`.
    pub host_bridge: String,
    /// Bridges from the root port down to the one right above the function; empty where it sits on
    /// the root bus, as in most virtual machines.
    pub bridges: Vec<PciAddress>,
    /// Its directory.
    pub dir: Dir,
}

impl Function {
    /// The function that a resolved directory is, or is inside of.
    pub fn of(dir: &Dir) -> Option<Self> {
        let components = dir.components();
        // Nested root complexes exist (Intel VMD): the innermost is the function's own.
        let host_bridge = components.iter().rposition(|name| is_host_bridge(name))?;
        let mut chain = Vec::new();
        let mut deepest = host_bridge;
        for (place, name) in components.iter().enumerate().skip(host_bridge + 1) {
            if let Some(address) = address(name) {
                chain.push(address);
                deepest = place;
            }
        }
        let address = chain.pop()?;
        Some(Self {
            address,
            host_bridge: components[host_bridge].to_owned(),
            bridges: chain,
            dir: dir.above(components.len() - 1 - deepest),
        })
    }

    /// The bridges above the function as functions, root port first.
    pub fn hops(&self) -> impl Iterator<Item = Self> {
        let count = self.bridges.len();
        (0..count).map(move |hop| Self {
            address: self.bridges[hop],
            host_bridge: self.host_bridge.clone(),
            bridges: self.bridges[..hop].to_vec(),
            dir: self.dir.above(count - hop),
        })
    }

    /// The NUMA node that it is connected to; none where the kernel does not report it (`-1`).
    pub fn numa_node(&self, buffer: &mut Buffer) -> Option<u32> {
        self.dir.text("numa_node", buffer).ok()?.parse().ok()
    }

    /// Whether it is a virtual function of another one.
    pub fn is_virtual(&self) -> bool {
        self.dir.has("physfn")
    }
}

/// Addresses of all functions, sorted.
///
/// # Errors
/// As [`gpus`].
pub fn names(sysfs: &Dir) -> Result<Vec<String>, Miss> {
    sysfs.dir(DEVICES)?.names()
}

/// NVIDIA's GPUs in order of PCI address: a GPU's place here is its ordinal, as in `nvidia-smi`. Virtual
/// functions of a host, which vGPUs use, have none.
///
/// # Errors
/// The list of PCI devices cannot be read.
pub fn gpus(sysfs: &Dir, buffer: &mut Buffer) -> Result<Vec<Function>, Miss> {
    let devices = sysfs.dir(DEVICES)?;
    let mut gpus = Vec::new();
    for name in devices.names()? {
        let Ok(dir) = devices.dir(&name) else {
            continue;
        };
        let is = |text: Result<String, Miss>, words: &[&str]| {
            text.is_ok_and(|text| words.iter().any(|word| text.starts_with(word)))
        };
        if is(dir.text("vendor", buffer), &[NVIDIA]) && is(dir.text("class", buffer), &GPU_CLASSES)
        {
            gpus.extend(Function::of(&dir).filter(|gpu| !gpu.is_virtual()));
        }
    }
    gpus.sort_by_key(|gpu| gpu.address);
    Ok(gpus)
}

/// `0000:1a:00.0`, but not `0000:1a:00.0:pcie001`, a service of a port.
fn address(name: &str) -> Option<PciAddress> {
    let full = name.matches(':').count() == 2;
    full.then(|| name.parse().ok()).flatten()
}

/// `pci0000:15`.
fn is_host_bridge(name: &str) -> bool {
    let Some((domain, bus)) = name
        .strip_prefix("pci")
        .and_then(|name| name.split_once(':'))
    else {
        return false;
    };
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex(domain) && hex(bus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::sysfs::Root;

    #[test]
    fn a_virtual_function_of_a_gpu_is_no_gpu_of_the_host() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let sys = temp.path();
        std::fs::create_dir_all(sys.join(DEVICES)).expect("mkdir");
        for (address, vendor, class, is_virtual) in [
            ("0000:01:00.0", NVIDIA, "0x030200", false),
            ("0000:01:00.4", NVIDIA, "0x030200", true),
            ("0000:02:00.0", NVIDIA, "0x068000", false),
            ("0000:03:00.0", "0x1a03", "0x030000", false),
            ("0000:04:00.0", NVIDIA, "0x030000", false),
        ] {
            let dir = sys.join("devices/pci0000:00").join(address);
            std::fs::create_dir_all(&dir).expect("mkdir");
            std::fs::write(dir.join("vendor"), vendor).expect("write");
            std::fs::write(dir.join("class"), class).expect("write");
            let link = std::os::unix::fs::symlink::<&std::path::Path, _>;
            if is_virtual {
                link("../0000:01:00.0".as_ref(), dir.join("physfn")).expect("link");
            }
            link(&dir, sys.join(DEVICES).join(address)).expect("link");
        }
        let root = Root::new(sys).open().expect("the root");
        let gpus = gpus(&root, &mut [0; 4096]).expect("a list");
        let addresses: Vec<_> = gpus.iter().map(|gpu| gpu.address.to_string()).collect();
        assert_eq!(addresses, ["0000:01:00.0", "0000:04:00.0"]);
    }

    #[test]
    fn the_chain_of_bridges_is_the_shape_of_the_path() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        for (path, expected) in [
            (
                "devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1a:00.0/infiniband",
                Some("0000:1a:00.0 pci0000:15 0000:15:01.0 0000:16:00.0 0000:17:02.0"),
            ),
            (
                "devices/pci0000:00/0000:00:05.0",
                Some("0000:00:05.0 pci0000:00"),
            ),
            (
                "devices/pci0000:e0/0000:e0:05.5/pci10000:e0/10000:e0:02.0/10000:e1:00.0",
                Some("10000:e1:00.0 pci10000:e0 10000:e0:02.0"),
            ),
            (
                "devices/pci0000:00/0000:00:02.1/0000:00:02.1:pcie010",
                Some("0000:00:02.1 pci0000:00"),
            ),
            ("devices/virtual/net/lo", None),
            ("devices/pci0000:00", None),
        ] {
            std::fs::create_dir_all(temp.path().join(path)).expect("mkdir");
            let dir = Root::new(temp.path())
                .open()
                .and_then(|root| root.dir(path))
                .expect("resolve");
            let read = Function::of(&dir).map(|function| {
                assert_eq!(
                    function.dir.components().last().copied().map(str::to_owned),
                    Some(function.address.to_string())
                );
                let mut words = vec![function.address.to_string(), function.host_bridge.clone()];
                words.extend(function.hops().map(|hop| hop.address.to_string()));
                words.join(" ")
            });
            assert_eq!(read.as_deref(), expected, "{path}");
        }
    }
}
