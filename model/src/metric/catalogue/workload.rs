//! What the node is to its software, SR-IOV, and whose work runs on the devices.

catalogue! {
    after ethernet;

    Exporter Default Info DEPLOYMENT = "railscope_deployment_info" (model, hypervisor, cloud, container, orchestrator)
        "What the node is to its software: model is bare_metal, virtual_machine or unknown; the others name what was found and are empty where nothing was. container is what the exporter itself runs in.";
    Exporter Default Info NIC_SRIOV = "railscope_nic_sriov_info" (device, pci, role, pf)
        "Role of a network function: physical (it may have virtual ones), virtual, or subfunction (an RDMA device on a part of a function, without a PCI address of its own). pf is the function that it is part of, which a virtual machine does not see. By default where virtual functions are in use; those of a host in the full profile.";
    Exporter Default Gauge NIC_VFS = "railscope_nic_virtual_functions" (device, pci)
        "Virtual functions that are switched on at a physical function. By default where there are any.";
    Exporter Full Gauge NIC_VFS_MAX = "railscope_nic_max_virtual_functions" (device, pci)
        "Virtual functions that a physical function can have.";
    Exporter Full Info NVME_SRIOV = "railscope_nvme_sriov_info" (device, pci, role, pf)
        "SR-IOV role of an NVMe function: physical or virtual, and the PCI address of a virtual one's physical function. device is the controller, empty where no driver has taken the function.";
    Exporter Full Gauge NVME_VFS = "railscope_nvme_virtual_functions" (device, pci)
        "Virtual functions that are switched on at a physical NVMe function.";
    Exporter Full Gauge NVME_VFS_MAX = "railscope_nvme_max_virtual_functions" (device, pci)
        "Virtual functions that a physical NVMe function can have.";
    Exporter Full Info VF = "railscope_vf_info" (netdev, vf, pci, trust, spoof_check, link_state, vlan, port_guid)
        "A virtual function of the physical one behind netdev, and what that allows it: trust and spoof_check on or off, link_state auto, enable or disable, its VLAN. Empty where there is none or the driver does not say.";
    Exporter Full Counter VF_RECEIVE_BYTES = "railscope_vf_receive_bytes_total" ["bytes"] (netdev, vf, pci)
        "Bytes that the virtual function received. The physical counters of netdev (railscope_nic_phy, discards, pause) already include them. Absent while the driver shows zeros for all of them, as drivers do that count none.";
    Exporter Full Counter VF_TRANSMIT_BYTES = "railscope_vf_transmit_bytes_total" ["bytes"] (netdev, vf, pci)
        "Bytes that the virtual function sent. The physical counters of netdev already include them.";
    Exporter Full Counter VF_RECEIVE_PACKETS = "railscope_vf_receive_packets_total" (netdev, vf, pci)
        "Packets that the virtual function received.";
    Exporter Full Counter VF_TRANSMIT_PACKETS = "railscope_vf_transmit_packets_total" (netdev, vf, pci)
        "Packets that the virtual function sent.";
    Exporter Full Counter VF_CAST_PACKETS = "railscope_vf_cast_packets_total" (netdev, vf, pci, cast, direction)
        "Broadcast and multicast packets of the virtual function; sent ones only where the driver has files for them.";
    Exporter Full Counter VF_DISCARDS = "railscope_vf_discards_total" (netdev, vf, pci, direction)
        "Packets of the virtual function that were dropped, received ones mostly for want of a buffer.";
    Exporter Full Gauge VF_MAX_TRANSMIT = "railscope_vf_max_transmit_bytes_per_second" (netdev, vf, pci)
        "The most that the virtual function may send. Absent where it is not limited.";
    Exporter Default Info WORKLOAD = "railscope_workload_info" (gpu, mig, device, pci, claim, namespace, workload, container, hpc_job)
        "Who holds a device: a container of a pod (namespace, workload, container) or a job of a batch system (hpc_job: job itself would be the label by which Prometheus names its scrapes). gpu and device (RDMA) where one container holds both, nearest paired; pci is the NIC's function, or the GPU's where there is no NIC. mig is a MIG instance (UUID, joined with mig_info to its gpu, or GPU instance id), claim a DRA device (driver/pool/device). Empty where it does not apply; at most 256 series.";
    Exporter Full Gauge WORKLOAD_DEVICES = "railscope_workload_devices" (state)
        "Devices that workloads hold, by what became of them: named (in workload_info), unknown (an id that names no device of this node), stale (a job that the node no longer runs), dropped (beyond the limit of workload_info).";
    Exporter Default Counter JOB_STEPS = "railscope_job_steps_total" (hpc_job)
        "Steps that the job has written into its file of step times on this node (docs/step-times.md), since the exporter was started.";
    Exporter Default Counter JOB_STEP_EXCESS = "railscope_job_step_excess_seconds_total" ["seconds"] (hpc_job)
        "Time by which long steps exceeded the median of the last 1,000: those over 1.1 times the median, each with at most the median, so that a checkpoint counts as one lost step.";
    Exporter Default Gauge JOB_STEP_QUANTILE = "railscope_job_step_quantile_seconds" ["seconds"] (hpc_job, q)
        "Quantile q (0.5, 0.99, 0.999) of the times of the job's last 1,000 steps, exact (nearest rank).";
}
