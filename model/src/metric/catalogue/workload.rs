//! What the node is to its software, SR-IOV, and whose work runs on the devices.

catalogue! {
    after ethernet;

    Exporter Default Info DEPLOYMENT = "railscope_deployment_info" (model, hypervisor, cloud, container, orchestrator)
        "Environment of the node: model is bare_metal, virtual_machine or unknown; the other labels name what was detected and are empty otherwise. container is the one that the exporter itself runs in.";
    Exporter Default Info NIC_SRIOV = "railscope_nic_sriov_info" (device, pci, role, pf)
        "SR-IOV role of a network function: physical (can have virtual ones), virtual, or subfunction (an RDMA device on a part of a function, without its own PCI address). pf is its physical function, which a virtual machine cannot see. In the default profile where virtual functions are in use; those of a host in the full profile.";
    Exporter Default Gauge NIC_VFS = "railscope_nic_virtual_functions" (device, pci)
        "Enabled virtual functions of a physical function. In the default profile only if there are any.";
    Exporter Full Gauge NIC_VFS_MAX = "railscope_nic_max_virtual_functions" (device, pci)
        "Virtual functions that a physical function supports.";
    Exporter Full Info NVME_SRIOV = "railscope_nvme_sriov_info" (device, pci, role, pf)
        "SR-IOV role of an NVMe function: physical or virtual; pf is the PCI address of a virtual one's physical function. device is the controller, empty if no driver is bound to the function.";
    Exporter Full Gauge NVME_VFS = "railscope_nvme_virtual_functions" (device, pci)
        "Enabled virtual functions of a physical NVMe function.";
    Exporter Full Gauge NVME_VFS_MAX = "railscope_nvme_max_virtual_functions" (device, pci)
        "Virtual functions that a physical NVMe function supports.";
    Exporter Full Info VF = "railscope_vf_info" (netdev, vf, pci, trust, spoof_check, link_state, vlan, port_guid)
        "Virtual function of the physical function behind netdev, and its settings: trust and spoof_check on or off, link_state auto, enable or disable, its VLAN. A label is empty if there is none or the driver does not report it.";
    Exporter Full Counter VF_RECEIVE_BYTES = "railscope_vf_receive_bytes_total" ["bytes"] (netdev, vf, pci)
        "Bytes that the virtual function received. The physical counters of netdev (railscope_nic_phy, discards, pause) already include them. Absent while the driver reports zero for all, as drivers without these counters do.";
    Exporter Full Counter VF_TRANSMIT_BYTES = "railscope_vf_transmit_bytes_total" ["bytes"] (netdev, vf, pci)
        "Bytes that the virtual function sent. The physical counters of netdev already include them.";
    Exporter Full Counter VF_RECEIVE_PACKETS = "railscope_vf_receive_packets_total" (netdev, vf, pci)
        "Packets that the virtual function received.";
    Exporter Full Counter VF_TRANSMIT_PACKETS = "railscope_vf_transmit_packets_total" (netdev, vf, pci)
        "Packets that the virtual function sent.";
    Exporter Full Counter VF_CAST_PACKETS = "railscope_vf_cast_packets_total" (netdev, vf, pci, cast, direction)
        "Broadcast and multicast packets of the virtual function. Sent packets only if the driver has files for them.";
    Exporter Full Counter VF_DISCARDS = "railscope_vf_discards_total" (netdev, vf, pci, direction)
        "Discarded packets of the virtual function. Received ones are mostly discarded because no buffer was free.";
    Exporter Full Gauge VF_MAX_TRANSMIT = "railscope_vf_max_transmit_bytes_per_second" (netdev, vf, pci)
        "Transmit rate limit of the virtual function. Absent if there is no limit.";
    Exporter Default Info WORKLOAD = "railscope_workload_info" (gpu, mig, device, pci, claim, namespace, workload, container, hpc_job)
        "Workload that holds a device: a container of a pod (namespace, workload, container) or a batch job (hpc_job; Prometheus itself uses the label job). gpu and device (RDMA) are paired by proximity if one container holds both; pci is the NIC's function, or the GPU's without a NIC. mig is a MIG instance (UUID, joined with mig_info to its gpu, or GPU instance id), claim a DRA device (driver/pool/device). Labels that do not apply are empty. At most 256 series.";
    Exporter Full Gauge WORKLOAD_DEVICES = "railscope_workload_devices" (state)
        "Devices that workloads hold, by state: named (in workload_info), unknown (the id matches no device of this node), stale (the node no longer runs the job), dropped (beyond the limit of workload_info).";
    Exporter Default Counter JOB_STEPS = "railscope_job_steps_total" (hpc_job)
        "Steps that the job has written to its step time file on this node (docs/step-times.md), since the exporter started.";
    Exporter Default Counter JOB_STEP_EXCESS = "railscope_job_step_excess_seconds_total" ["seconds"] (hpc_job)
        "Excess time of long steps (over 1.1 times the median of the last 1,000 steps) above that median. Each step adds at most one median, so that a checkpoint counts as one lost step.";
    Exporter Default Gauge JOB_STEP_QUANTILE = "railscope_job_step_quantile_seconds" ["seconds"] (hpc_job, q)
        "Quantile q (0.5, 0.99, 0.999) of the duration of the job's last 1,000 steps, exact (nearest rank).";
}
