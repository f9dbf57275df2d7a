//! PCIe links, configuration and errors, and how near NICs are to GPUs: GPUs and NICs by default, other endpoints and every hop in the full profile.

catalogue! {
    after nvlink;

    Exporter Default Gauge PCIE_LINK_WIDTH = "railscope_pcie_link_width_lanes" (pci)
        "Lanes that the link above this function runs with.";
    Exporter Default Gauge PCIE_LINK_WIDTH_MAX = "railscope_pcie_link_max_width_lanes" (pci)
        "Lanes that this function could run with; by default only where it runs with fewer.";
    Exporter Full Gauge PCIE_LINK_SPEED = "railscope_pcie_link_transfers_per_second" (pci)
        "Transfers per second and lane of the link above this function. An idle GPU trains down: judge it under load only.";
    Exporter Full Gauge PCIE_LINK_SPEED_MAX = "railscope_pcie_link_max_transfers_per_second" (pci)
        "Transfers per second and lane that this function could run with.";
    Exporter Full Counter PCIE_AER_ERRORS = "railscope_pcie_aer_errors_total" (pci, severity, error)
        "PCIe Advanced Error Reporting: errors by severity (correctable, nonfatal, fatal) and name. Names that have never counted are left out.";
    Exporter Full Counter PCIE_ERRORS = "railscope_pcie_errors_total" (pci, severity)
        "PCIe Advanced Error Reporting: errors by severity, all names together. Zero until the first; absent where the function or the firmware reports none.";
    Exporter Default Info PCIE_PATH = "railscope_pcie_path_info" (pci, kind, name, parent, root_port, numa_node)
        "Where the function hangs: its next bridge up, its root port and NUMA node; by default only where its link lacks lanes. kind is gpu, nic (with an RDMA device), nvme, netdev (Ethernet without RDMA) or bridge, the last three in the full profile; name is the GPU ordinal or what the kernel calls the device.";
    Exporter Default Info GPU_NIC = "railscope_gpu_nic_info" (gpu, device, hop, nearest)
        "How far a NIC is from a GPU: PIX one PCIe switch, PXB several, PHB the host bridge, NODE the same NUMA node, SYS another. The nearest by default, every pair in the full profile.";
    Exporter Full Info PCIE_CONFIG = "railscope_pcie_config_info" (pci, relaxed_ordering, extended_tags, acs)
        "Settings of the function: relaxed ordering and extended tags on or off; acs is none (no such capability), off, or the controls that are on.";
    Exporter Full Gauge PCIE_MAX_PAYLOAD = "railscope_pcie_max_payload_bytes" ["bytes"] (pci)
        "Largest payload of one packet that the function sends.";
    Exporter Full Gauge PCIE_MAX_PAYLOAD_SUPPORTED = "railscope_pcie_max_payload_supported_bytes" ["bytes"] (pci)
        "Largest payload of one packet that the function could send.";
    Exporter Full Gauge PCIE_MAX_READ_REQUEST = "railscope_pcie_max_read_request_bytes" ["bytes"] (pci)
        "Largest read that the function asks for at once. Small ones throttle GPUDirect.";
    Exporter Full Gauge PCIE_ACS_ON_PATH = "railscope_pcie_acs_redirecting_hops" (pci)
        "Ports above this endpoint whose access control (ACS) sends peer-to-peer packets up to the root complex: 0 is what GPUDirect wants. Absent where a port's configuration could not be read.";
    Exporter Full Info PCIE_IOMMU = "railscope_pcie_iommu_info" (pci, group, type)
        "IOMMU group of the function and how it translates: identity passes addresses through, DMA and DMA-FQ translate them.";
}
