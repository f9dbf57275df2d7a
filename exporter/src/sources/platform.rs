//! What the node is: bare metal or a virtual machine, whose cloud, in which container, under which orchestrator.

use std::path::Path;

use super::sysfs::{Buffer, Dir, Root};

/// What the hardware below the kernel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Model {
    /// The kernel runs on the hardware itself.
    BareMetal,
    /// A hypervisor stands between.
    VirtualMachine,
    /// Nothing reports which: neither the CPU's flags nor DMI names.
    #[default]
    Unknown,
}

impl Model {
    /// The model as a label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BareMetal => "bare_metal",
            Self::VirtualMachine => "virtual_machine",
            Self::Unknown => "unknown",
        }
    }
}

/// What was found; a text is empty if nothing was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Platform {
    /// Bare metal or virtual machine.
    pub model: Model,
    /// `kvm`, `nitro`, `hyperv` …; `other` in a virtual machine whose hypervisor does not name itself.
    pub hypervisor: &'static str,
    /// `aws`, `azure`, `gcp`, `oci` …: bare-metal instances have one too.
    pub cloud: &'static str,
    /// What the exporter itself runs in: `docker`, `containerd`, `podman` …
    pub container: &'static str,
    /// `kubernetes`, `slurm`, or both as `kubernetes+slurm`.
    pub orchestrator: &'static str,
}

/// DMI string -> hypervisor and cloud.
struct Dmi {
    file: &'static str,
    begins_with: &'static str,
    hypervisor: &'static str,
    cloud: &'static str,
}

const fn dmi(
    file: &'static str,
    begins_with: &'static str,
    hypervisor: &'static str,
    cloud: &'static str,
) -> Dmi {
    Dmi {
        file,
        begins_with,
        hypervisor,
        cloud,
    }
}

/// The first row that names a hypervisor and the first that names a cloud count, so clouds come first.
/// The strings are those that cloud-init and systemd-detect-virt look for.
const DMI: &[Dmi] = &[
    dmi("sys_vendor", "Amazon EC2", "nitro", "aws"),
    // Every Azure machine has this tag; the vendor and product alone are any Hyper-V.
    dmi(
        "chassis_asset_tag",
        "7783-7084-3265-9085-8269-3286-77",
        "hyperv",
        "azure",
    ),
    dmi("product_name", "Google Compute Engine", "kvm", "gcp"),
    // On bare-metal shapes too: the hypervisor is that of the rows below.
    dmi("chassis_asset_tag", "OracleCloud.com", "", "oci"),
    dmi("product_name", "Alibaba Cloud", "kvm", "alibaba"),
    dmi("sys_vendor", "OpenStack", "kvm", "openstack"),
    dmi("product_name", "OpenStack", "kvm", "openstack"),
    dmi("product_name", "KubeVirt", "kvm", ""),
    dmi("product_name", "KVM", "kvm", ""),
    dmi("sys_vendor", "QEMU", "qemu", ""),
    dmi("sys_vendor", "VMware", "vmware", ""),
    dmi("product_name", "Virtual Machine", "hyperv", ""),
    dmi("sys_vendor", "Nutanix", "nutanix", ""),
    dmi("sys_vendor", "Xen", "xen", ""),
    dmi("sys_vendor", "innotek", "virtualbox", ""),
    dmi("sys_vendor", "Parallels", "parallels", ""),
];

/// A file that only a container has -> its runtime. Docker's and Podman's are empty.
const CONTAINER_FILES: &[(&str, &str)] = &[
    (".dockerenv", "docker"),
    ("run/.containerenv", "podman"),
    (".singularity.d", "apptainer"),
];

/// A piece of a control group's name, or of where the root file system comes from -> the runtime.
/// Kubernetes' runtimes name theirs beside `kubepods`, so they stand before the plain names.
const CONTAINER_WORDS: &[(&str, &str)] = &[
    ("cri-containerd", "containerd"),
    ("crio-", "cri-o"),
    ("libpod", "podman"),
    ("io.containerd", "containerd"),
    ("containers/storage", "podman"),
    ("docker", "docker"),
    ("/lxc", "lxc"),
    ("kubepods", "other"),
];

/// Control groups that a kubelet or a slurmd makes on its node, in either version of the hierarchy.
const KUBERNETES_CGROUPS: &[&str] = &[
    "fs/cgroup/kubepods.slice",
    "fs/cgroup/kubepods",
    "fs/cgroup/cpuset/kubepods.slice",
    "fs/cgroup/cpuset/kubepods",
];
const SLURM_CGROUPS: &[&str] = &[
    "fs/cgroup/system.slice/slurmstepd.scope",
    "fs/cgroup/cpuset/slurm",
    "fs/cgroup/memory/slurm",
];

/// Where each pod of Kubernetes finds its account, unless it asked for none.
const SERVICE_ACCOUNT: &[&str] = &[
    "run/secrets/kubernetes.io/serviceaccount",
    "var/run/secrets/kubernetes.io/serviceaccount",
];

impl Platform {
    /// Checks everything that identifies the platform. Nothing here fails: what cannot be read is
    /// ignored.
    pub fn read(sysfs: &Root, procfs: &Root, rootfs: &Root, kubelet_socket: &Path) -> Self {
        let (sysfs, procfs) = (sysfs.open().ok(), procfs.open().ok());
        let rootfs = rootfs.open().ok();
        let mut buffer = [0; 4096];
        let (model, hypervisor, cloud) = hardware(sysfs.as_ref(), procfs.as_ref(), &mut buffer);
        let own = Own::read(procfs.as_ref());
        let has = |dir: Option<&Dir>, names: &[&str]| {
            dir.is_some_and(|dir| names.iter().any(|name| dir.has(name)))
        };
        let kubernetes = own.in_pod()
            || kubelet_socket.symlink_metadata().is_ok()
            || has(sysfs.as_ref(), KUBERNETES_CGROUPS)
            || has(rootfs.as_ref(), SERVICE_ACCOUNT);
        let slurm = has(sysfs.as_ref(), SLURM_CGROUPS);
        Self {
            model,
            hypervisor,
            cloud,
            container: container(rootfs.as_ref(), &own),
            orchestrator: match (kubernetes, slurm) {
                (true, true) => "kubernetes+slurm",
                (true, false) => "kubernetes",
                (false, true) => "slurm",
                (false, false) => "",
            },
        }
    }
}

/// Model, hypervisor and cloud, from the CPU's flags, DMI and `/sys/hypervisor`.
fn hardware(
    sysfs: Option<&Dir>,
    procfs: Option<&Dir>,
    buffer: &mut Buffer,
) -> (Model, &'static str, &'static str) {
    let product = sysfs.and_then(|sysfs| sysfs.dir("class/dmi/id").ok());
    let mut text = |file: &str| {
        let dir = product.as_ref()?;
        dir.text(file, buffer).ok()
    };
    let rows: Vec<&Dmi> = DMI
        .iter()
        .filter(|row| text(row.file).is_some_and(|text| text.starts_with(row.begins_with)))
        .collect();
    let first = |word: fn(&Dmi) -> &'static str| {
        let mut words = rows.iter().map(|row| word(row));
        words.find(|word| !word.is_empty()).unwrap_or_default()
    };
    let (mut hypervisor, cloud) = (first(|row| row.hypervisor), first(|row| row.cloud));
    // AWS sells whole servers under the vendor name of its virtual machines.
    let whole_server = text("product_name").is_some_and(|product| product.ends_with(".metal"));
    let named = sysfs.and_then(|sysfs| {
        let dir = sysfs.dir("hypervisor").ok()?;
        dir.text("type", buffer).ok()
    });
    if hypervisor.is_empty() && named.as_deref() == Some("xen") {
        hypervisor = "xen";
    }
    // Only the first CPU: reading all of this file interrupts every CPU on kernels before 5.18.
    let cpu = procfs.and_then(|procfs| procfs.text("cpuinfo", buffer).ok());
    let model = match cpu.as_deref().and_then(hypervisor_flag) {
        Some(true) => Model::VirtualMachine,
        Some(false) if named.is_some() => Model::VirtualMachine,
        Some(false) => Model::BareMetal,
        // Arm CPUs have no such flag: there DMI has to report it.
        None if whole_server => Model::BareMetal,
        None if !hypervisor.is_empty() => Model::VirtualMachine,
        None if product.is_some() => Model::BareMetal,
        None => Model::Unknown,
    };
    match model {
        Model::VirtualMachine if hypervisor.is_empty() => (model, "other", cloud),
        Model::VirtualMachine => (model, hypervisor, cloud),
        _ => (model, "", cloud),
    }
}

/// Whether the first CPU of `/proc/cpuinfo` has the flag by which an x86 hypervisor reports that it is
/// there; none where the architecture has no flags line.
fn hypervisor_flag(cpuinfo: &str) -> Option<bool> {
    let flags = cpuinfo.lines().find_map(|line| {
        let (key, flags) = line.split_once(':')?;
        (key.trim() == "flags").then_some(flags)
    })?;
    Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// What the kernel reports about the exporter's own process. `/proc/1` is the host's where the host's
/// procfs is mounted into the container, so it would report nothing of it.
struct Own {
    cgroup: String,
    mounts: String,
}

impl Own {
    fn read(procfs: Option<&Dir>) -> Self {
        let text = |name| {
            let own = procfs?.dir("self").ok()?;
            own.long_text(name).ok()
        };
        Self {
            cgroup: text("cgroup").unwrap_or_default(),
            mounts: text("mountinfo").unwrap_or_default(),
        }
    }

    /// The line of the root file system: its options name the folder of an overlay's layers.
    fn root_mount(&self) -> &str {
        let is_root = |line: &&str| line.split(' ').nth(4) == Some("/");
        let overlay = |line: &&str| is_root(line) && line.contains(" - overlay ");
        self.mounts.lines().find(overlay).unwrap_or_default()
    }

    /// The kubelet makes the control groups of pods and mounts `/etc/hosts` into each.
    fn in_pod(&self) -> bool {
        self.cgroup.contains("kubepods") || self.mounts.contains("/kubelet/pods/")
    }
}

fn container(rootfs: Option<&Dir>, own: &Own) -> &'static str {
    let by_word = |text: &str| {
        let mut words = CONTAINER_WORDS.iter();
        words.find(|(word, _)| text.contains(word))
    };
    let by_file = || {
        let mut files = CONTAINER_FILES.iter();
        files.find(|(file, _)| rootfs.is_some_and(|root| root.has(file)))
    };
    let found = by_file()
        .or_else(|| by_word(&own.cgroup))
        .or_else(|| by_word(own.root_mount()));
    match found {
        Some((_, runtime)) => runtime,
        None if own.in_pod() => "other",
        None => "",
    }
}

#[cfg(test)]
#[path = "platform_tests.rs"]
mod tests;
