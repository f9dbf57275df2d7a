//! Values in recordings of machines that are not exported, and why.

/// A reason to leave values out. Each is of use for some recording.
pub(super) struct LeftOut {
    /// The files; see [`super::walk::stands_for`].
    pub(super) files: &'static str,
    /// Why.
    #[allow(dead_code, reason = "for people")]
    pub(super) because: &'static str,
    /// Not where the function is a GPU, an RDMA NIC, or above one.
    pub(super) off_the_path: bool,
}

const fn left_out(files: &'static str, because: &'static str) -> LeftOut {
    LeftOut {
        files,
        because,
        off_the_path: false,
    }
}

const fn off_the_path(files: &'static str, because: &'static str) -> LeftOut {
    LeftOut {
        off_the_path: true,
        ..left_out(files, because)
    }
}

pub(super) const LEFT_OUT: &[LeftOut] = &[
    left_out("dev/cpuset/**", "a batch system's CPU sets"),
    left_out(
        "proc/{meminfo,cpuinfo,mounts,version,cmdline,hwloc-nofile-info}",
        "memory, CPUs and texts: node_exporter's",
    ),
    left_out(
        "proc/stat:*",
        "sums over all CPUs, interrupts, processes: node_exporter's",
    ),
    left_out(
        "sys/bus/pci/devices/*/{class,local_cpus}",
        "hwloc recorded neither vendor nor place of these functions",
    ),
    left_out("proc/self/*", "the recorder's own process"),
    left_out(
        "proc/driver/nvidia/gpus/*/numa_status",
        "memory as a NUMA node: NVML says which",
    ),
    left_out(
        "sys/{kernel,fs,block}/**",
        "huge pages, control groups, drives: node_exporter's",
    ),
    left_out(
        "sys/devices/system/{cpu,memory,clocksource}/**",
        "caches, cores, idle states: hwloc's and node_exporter's",
    ),
    left_out(
        "sys/devices/system/node/**",
        "memory in use, and which nodes there may be; those online are counted",
    ),
    left_out(
        "sys/devices/virtual/dmi/**",
        "board and firmware; vendor and product are labels",
    ),
    left_out(
        "sys/class/dmi/**",
        "board and firmware; vendor and product are labels",
    ),
    left_out(
        "sys/devices/{virtual,soc*}/**",
        "no hardware, or the name of a chip",
    ),
    left_out(
        "sys/devices/pci*/**/{vendor,device,class,revision,subsystem_vendor,subsystem_device,modalias,uevent,label,index,dev}",
        "identity: the address is the label, classes tell what it is",
    ),
    left_out(
        "sys/devices/pci*/**/{resource,resource*,rom,irq,enable,msi_bus,ari_enabled,d3cold_allowed,broken_parity_status,dma_mask_bits,consistent_dma_mask_bits,pools,secondary_bus_number,subordinate_bus_number,rescan,remove,reset}",
        "addresses, interrupts, masks: constants of the boot",
    ),
    left_out(
        "sys/devices/pci*/**/{local_cpus,local_cpulist,cpuaffinity,cpulistaffinity}",
        "follows from numa_node",
    ),
    left_out(
        "sys/devices/pci*/**/{power,wakeup,pci_bus,msi_irqs,firmware_node,ptp,dma,rtc,pnp*,input}/**",
        "power management, interrupts, clocks: no fabric",
    ),
    left_out(
        "sys/devices/pci*/**/{usb*,usbmon,host*,ata*,ide*,i2c-*,graphics,drm,nvme,sound}/**",
        "drives, buses and screens: no fabric",
    ),
    left_out(
        "sys/devices/pci*/**/sriov_{drivers_autoprobe,offset,stride,vf_device,vf_total_msix}",
        "how virtual functions are numbered; how many there are is on the page",
    ),
    off_the_path(
        "sys/devices/pci*/**/{config,numa_node,current_link_speed,current_link_width,max_link_speed,max_link_width,aer_dev_correctable,aer_dev_nonfatal,aer_dev_fatal,aer_rootport_total_err_cor,aer_rootport_total_err_nonfatal,aer_rootport_total_err_fatal}",
        "of a function that is neither a GPU or RDMA NIC nor on the way to one",
    ),
    left_out(
        "sys/**/net/*/statistics/*",
        "node_exporter's netdev; ports and drivers count the fabric's side",
    ),
    left_out("sys/**/net/*/queues/**", "tuning"),
    left_out(
        "sys/**/net/*/{addr_assign_type,addr_len,address,broadcast,dev_id,dormant,flags,features,ifindex,iflink,link_mode,name_assign_type,netdev_group,tx_queue_len,type,gro_flush_timeout,napi_defer_hard_irqs,proto_down,testing,threaded,dev_port,phys_switch_id,umcast,pkey,uevent}",
        "names and flags of the interface",
    ),
    left_out(
        "sys/**/net/*/carrier_{up,down}_count",
        "carrier_changes_total is their sum",
    ),
    left_out(
        "sys/devices/pci*/**/infiniband/*/{hw_rev,node_type,node_desc,sys_image_guid,version,boardversion,localbus_info}",
        "identity; node_guid, firmware and board are labels",
    ),
    left_out(
        "sys/devices/pci*/**/infiniband/*/{stats,logged_errors,nctxts,nfreectxts}",
        "of the qib driver, whose hardware is not made any more",
    ),
    left_out(
        "sys/devices/pci*/**/infiniband/*/ports/*/{cap_mask,lid_mask_count,sm_sl}",
        "the subnet manager's settings of the port",
    ),
    left_out(
        "sys/devices/pci*/**/infiniband/*/ports/*/{gids,pkeys,sl2vl}/*",
        "the subnet manager's settings of the port; its first address is a label",
    ),
    left_out(
        "sys/devices/pci*/**/infiniband/*/ports/*/linkcontrol/*",
        "of the qib driver, whose hardware is not made any more",
    ),
    left_out(
        "sys/devices/pci*/**/infiniband/*/**/cm_{tx_msgs,tx_retries,rx_msgs,rx_duplicates}/*",
        "the kernel connects for storage only, and its retries show on the port: 44 more files a port every second",
    ),
    left_out(
        "sys/devices/pci*/**/{infiniband_mad,infiniband_srp,infiniband_verbs}/**",
        "numbers of device files",
    ),
    left_out(
        "sys/devices/pci*/**/net/ib*/{carrier,mtu}",
        "IP over InfiniBand: the port's own state tells",
    ),
    left_out(
        "sys/devices/pci*/*/config",
        "its first 64 bytes, which is what an ordinary user gets: the settings stand behind them",
    ),
    left_out("sys/devices/pci*/**/boot_vga", "no fabric"),
];
