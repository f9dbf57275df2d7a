//! What the node is to its software, SR-IOV, and whose work runs on the devices.

catalogue! {
    after ethernet;

    Exporter Default Info DEPLOYMENT = "railscope_deployment_info" (model, hypervisor, cloud, container, orchestrator)
        "What the node is to its software: model is bare_metal, virtual_machine or unknown; the others name what was found and are empty where nothing was. container is what the exporter itself runs in.";
    Exporter Default Info NIC_SRIOV = "railscope_nic_sriov_info" (device, pci, role, pf)
        "SR-IOV role of a network function: physical or virtual, and the PCI address of a virtual one's physical function, which a virtual machine does not see. By default where virtual functions are in use; those of a host in the full profile.";
    Exporter Default Gauge NIC_VFS = "railscope_nic_virtual_functions" (device, pci)
        "Virtual functions that are switched on at a physical function. By default where there are any.";
    Exporter Full Gauge NIC_VFS_MAX = "railscope_nic_max_virtual_functions" (device, pci)
        "Virtual functions that a physical function can have.";
    Exporter Default Info WORKLOAD = "railscope_workload_info" (gpu, mig, device, pci, claim, namespace, workload, container, hpc_job)
        "Who holds a device: a container of a pod (namespace, workload, container) or a job of a batch system (hpc_job: job itself would be the label by which Prometheus names its scrapes). gpu and device (RDMA) where one container holds both, nearest paired; pci is the NIC's function, or the GPU's where there is no NIC. mig is a MIG instance (UUID, joined with mig_info to its gpu, or GPU instance id), claim a DRA device (driver/pool/device). Empty where it does not apply; at most 256 series.";
    Exporter Full Gauge WORKLOAD_DEVICES = "railscope_workload_devices" (state)
        "Devices that workloads hold, by what became of them: named (in workload_info), unknown (an id that names no device of this node), stale (a job that the node no longer runs), dropped (beyond the limit of workload_info).";
}
