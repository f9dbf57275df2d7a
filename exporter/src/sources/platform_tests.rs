//! Platforms, each by the files that identify it.
#![allow(clippy::expect_used)] // helpers of tests; clippy lets only the tests themselves

use super::*;
use std::fs;

const FLAGS: &str = "processor\t: 0\nflags\t\t: fpu sse2 avx512f\n";
const GUEST_FLAGS: &str = "processor\t: 0\nflags\t\t: fpu sse2 hypervisor avx512f\n";
const ARM: &str = "processor\t: 0\nFeatures\t: fp asimd sve\n";

/// `model hypervisor cloud container orchestrator` of a tree of these files; `-` for an empty word.
fn platform(files: &[(&str, &str)]) -> String {
    let temp = tempfile::tempdir().expect("a temporary directory");
    for (path, text) in files {
        let path = temp.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
        fs::write(path, text).expect("write");
    }
    let root = |name: &str| Root::new(&temp.path().join(name));
    let socket = temp.path().join("kubelet.sock");
    let found = Platform::read(&root("sys"), &root("proc"), &root(""), &socket);
    let words = [
        found.model.as_str(),
        found.hypervisor,
        found.cloud,
        found.container,
        found.orchestrator,
    ];
    words
        .map(|word| if word.is_empty() { "-" } else { word })
        .join(" ")
}

const VENDOR: &str = "sys/class/dmi/id/sys_vendor";
const PRODUCT: &str = "sys/class/dmi/id/product_name";
const TAG: &str = "sys/class/dmi/id/chassis_asset_tag";
const CPU: &str = "proc/cpuinfo";
const CGROUP: &str = "proc/self/cgroup";
const MOUNTS: &str = "proc/self/mountinfo";

/// Files with their text, and the platform that they identify.
type Case = (&'static [(&'static str, &'static str)], &'static str);

const HARDWARE: &[Case] = &[
    (&[], "unknown - - - -"),
    (
        &[(CPU, FLAGS), (VENDOR, "Supermicro")],
        "bare_metal - - - -",
    ),
    (
        &[
            (CPU, GUEST_FLAGS),
            (VENDOR, "QEMU"),
            (PRODUCT, "Standard PC"),
        ],
        "virtual_machine qemu - - -",
    ),
    (&[(CPU, GUEST_FLAGS)], "virtual_machine other - - -"),
    (
        &[
            (CPU, GUEST_FLAGS),
            (VENDOR, "Amazon EC2"),
            (PRODUCT, "p5.48xlarge"),
        ],
        "virtual_machine nitro aws - -",
    ),
    (
        &[(CPU, FLAGS), (VENDOR, "Amazon EC2"), (PRODUCT, "c6i.metal")],
        "bare_metal - aws - -",
    ),
    (
        &[(CPU, ARM), (VENDOR, "Amazon EC2"), (PRODUCT, "c7g.metal")],
        "bare_metal - aws - -",
    ),
    (
        &[(CPU, ARM), (VENDOR, "Amazon EC2"), (PRODUCT, "c7g.large")],
        "virtual_machine nitro aws - -",
    ),
    (
        &[
            (CPU, GUEST_FLAGS),
            (VENDOR, "Microsoft Corporation"),
            (PRODUCT, "Virtual Machine"),
            (TAG, "7783-7084-3265-9085-8269-3286-77"),
        ],
        "virtual_machine hyperv azure - -",
    ),
    (
        &[
            (CPU, GUEST_FLAGS),
            (VENDOR, "Microsoft Corporation"),
            (PRODUCT, "Virtual Machine"),
            (TAG, "0000-0000"),
        ],
        "virtual_machine hyperv - - -",
    ),
    (
        &[
            (CPU, GUEST_FLAGS),
            (VENDOR, "Google"),
            (PRODUCT, "Google Compute Engine"),
        ],
        "virtual_machine kvm gcp - -",
    ),
    (
        &[
            (CPU, FLAGS),
            (VENDOR, "Supermicro"),
            (TAG, "OracleCloud.com"),
        ],
        "bare_metal - oci - -",
    ),
    (
        &[
            (CPU, GUEST_FLAGS),
            (VENDOR, "QEMU"),
            (TAG, "OracleCloud.com"),
        ],
        "virtual_machine qemu oci - -",
    ),
    (
        &[(CPU, FLAGS), ("sys/hypervisor/type", "xen")],
        "virtual_machine xen - - -",
    ),
];

#[test]
fn hardware_is_told_by_cpu_flags_and_dmi() {
    for (files, expected) in HARDWARE {
        assert_eq!(platform(files), *expected, "{files:?}");
    }
}

const CONTAINERS: &[Case] = &[
    (
        &[
            (CGROUP, "0::/init.scope"),
            (MOUNTS, "1 0 8:1 / / rw - ext4 /dev/sda rw"),
        ],
        "- -",
    ),
    (&[(".dockerenv", "")], "docker -"),
    (&[("run/.containerenv", "")], "podman -"),
    (
        &[(CGROUP, "0::/system.slice/docker-3f2a.scope")],
        "docker -",
    ),
    (
        &[(
            CGROUP,
            "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-9a.scope",
        )],
        "containerd kubernetes",
    ),
    (
        &[(CGROUP, "0::/kubepods/besteffort/pod1/9a")],
        "other kubernetes",
    ),
    // A control group namespace hides the path: the mounts still report.
    (
        &[
            (CGROUP, "0::/"),
            (
                MOUNTS,
                concat!(
                    "600 500 0:90 / / rw - overlay overlay rw,upperdir=",
                    "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/9\n",
                    "601 600 8:1 /var/lib/kubelet/pods/1/etc-hosts /etc/hosts rw - ext4 /dev/sda rw"
                ),
            ),
        ],
        "containerd kubernetes",
    ),
    (
        &[(
            MOUNTS,
            "600 500 0:90 / / rw - overlay overlay rw,upperdir=/var/lib/containers/storage/overlay/9",
        )],
        "podman -",
    ),
    // Overlays of others on a host are not the exporter's own root.
    (
        &[(
            MOUNTS,
            "601 600 0:9 / /var/lib/docker/overlay2/1/merged rw - overlay overlay rw,upperdir=/var/lib/docker/1",
        )],
        "- -",
    ),
    (
        &[("run/secrets/kubernetes.io/serviceaccount/namespace", "x")],
        "- kubernetes",
    ),
    (&[("kubelet.sock", "")], "- kubernetes"),
    (
        &[("sys/fs/cgroup/kubepods.slice/cgroup.procs", "")],
        "- kubernetes",
    ),
    (
        &[
            (
                "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/cgroup.procs",
                "",
            ),
            ("kubelet.sock", ""),
        ],
        "- kubernetes+slurm",
    ),
];

#[test]
fn containers_and_orchestrators_are_told_by_files_control_groups_and_mounts() {
    for (files, expected) in CONTAINERS {
        let found = platform(files);
        let words: Vec<_> = found.split(' ').skip(3).collect();
        assert_eq!(words.join(" "), *expected, "{files:?}");
    }
}
