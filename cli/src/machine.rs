//! Arguments that locate the machine: the same for `railscope exporter` and `railscope check`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use railscope_exporter::{
    Machine, MigDevices, NetworkAccess, NvmlAccess, ProbeAccess, WorkloadAccess,
};

/// Name of the NVML worker's subcommand, which is in no help text.
pub(crate) const WORKER_SUBCOMMAND: &str = "nvml-worker";

#[derive(Debug, Args)]
pub(crate) struct MachineArgs {
    /// Where sysfs is mounted.
    #[arg(
        long = "path.sysfs",
        env = "RAILSCOPE_PATH_SYSFS",
        default_value = "/sys"
    )]
    sysfs: PathBuf,
    /// Where procfs is mounted.
    #[arg(
        long = "path.procfs",
        env = "RAILSCOPE_PATH_PROCFS",
        default_value = "/proc"
    )]
    procfs: PathBuf,
    /// The root file system of this process, to detect a container.
    #[arg(
        long = "path.rootfs",
        env = "RAILSCOPE_PATH_ROOTFS",
        default_value = "/"
    )]
    rootfs: PathBuf,
    /// The kernel log, or a file in a format of docs/kernel-log.md. /dev/kmsg needs CAP_SYSLOG or kernel.dmesg_restrict=0.
    #[arg(
        long = "path.kmsg",
        env = "RAILSCOPE_PATH_KMSG",
        default_value = "/dev/kmsg"
    )]
    kmsg: PathBuf,
    /// NVML library, by name or path.
    #[arg(
        long = "nvml.library",
        env = "RAILSCOPE_NVML_LIBRARY",
        default_value = "libnvidia-ml.so.1"
    )]
    nvml_library: PathBuf,
    /// Time between two NVML samples, such as 5s; at least 1s, because polling costs the jobs on the GPU.
    #[arg(long = "nvml.period", env = "RAILSCOPE_NVML_PERIOD", default_value = "5s", value_parser = period)]
    nvml_period: Duration,
    /// Do not read GPUs.
    #[arg(long = "no-nvml", env = "RAILSCOPE_NO_NVML")]
    no_nvml: bool,
    /// Program that lists LLDP neighbors, by name or path. Without an answer from it, the exporter listens
    /// itself, which needs the capability CAP_NET_RAW.
    #[arg(
        long = "lldp.lldpctl",
        env = "RAILSCOPE_LLDP_LLDPCTL",
        default_value = "lldpctl"
    )]
    lldpctl: PathBuf,
    /// Read recordings of ethtool, dcb and lldpctl below this directory instead of asking the kernel.
    #[arg(
        long = "path.network-recordings",
        env = "RAILSCOPE_PATH_NETWORK_RECORDINGS"
    )]
    network_recordings: Option<PathBuf>,
    /// Do not run the thread on each NUMA node that measures timer latency.
    #[arg(long = "no-jitter-probe", env = "RAILSCOPE_NO_JITTER_PROBE")]
    no_jitter_probe: bool,
    /// The kubelet's pod-resources socket; used if it exists.
    #[arg(
        long = "workload.kubelet-socket",
        env = "RAILSCOPE_WORKLOAD_KUBELET_SOCKET",
        default_value = "/var/lib/kubelet/pod-resources/kubelet.sock"
    )]
    kubelet_socket: PathBuf,
    /// Directory with one file per GPU (its ordinal, or ordinal.MIG-instance) that contains the IDs of its jobs,
    /// one per line, as the prolog of a batch system writes them.
    #[arg(
        long = "workload.job-mapping",
        env = "RAILSCOPE_WORKLOAD_JOB_MAPPING",
        value_name = "DIR"
    )]
    job_mapping: Option<PathBuf>,
    /// Directory in which jobs write their step times, one file JOB.RANK per rank; read if it exists.
    #[arg(
        long = "workload.step-times",
        env = "RAILSCOPE_WORKLOAD_STEP_TIMES",
        default_value = "/run/railscope/steps",
        value_name = "DIR"
    )]
    step_times: PathBuf,
}

impl MachineArgs {
    /// The machine of these arguments.
    pub(crate) fn machine(self) -> anyhow::Result<Machine> {
        let nvml = if self.no_nvml {
            None
        } else {
            let this_binary = std::env::current_exe().context("cannot find this very binary")?;
            Some(NvmlAccess {
                library: self.nvml_library,
                worker: vec![this_binary, WORKER_SUBCOMMAND.into()],
                period: self.nvml_period,
            })
        };
        let network = match self.network_recordings {
            Some(root) => NetworkAccess::Recorded(root),
            None => NetworkAccess::Kernel {
                lldpctl: self.lldpctl,
            },
        };
        Ok(Machine {
            sysfs: self.sysfs,
            procfs: self.procfs,
            kmsg: Some(self.kmsg),
            nvml,
            network,
            jitter_probe: !self.no_jitter_probe,
            rootfs: self.rootfs,
            workloads: WorkloadAccess {
                kubelet_socket: self.kubelet_socket,
                job_mapping: self.job_mapping,
                step_times: self.step_times,
            },
            mig_devices: MigDevices::default(),
            probes: ProbeAccess::default(),
            otlp: None,
        })
    }
}

/// Reads a time of at least a second.
fn period(text: &str) -> Result<Duration, String> {
    let period = crate::duration::parse(text)?;
    if period < Duration::from_secs(1) {
        return Err(format!("{text:?} is too short: at least 1s"));
    }
    Ok(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_number_with_its_unit() {
        assert_eq!(period("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(period("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(period("1m"), Ok(Duration::from_secs(60)));
        assert_eq!(period("2"), Ok(Duration::from_secs(2)));
        for bad in [
            "",
            "s",
            "5h",
            "0.5s",
            "-1s",
            "1e400",
            "NaN",
            "99999999999999999999999s",
        ] {
            assert!(period(bad).is_err(), "{bad}");
        }
    }
}
