//! PCIe links, configuration and errors, and how near NICs are to GPUs: GPUs and NICs by default, other endpoints and every hop in the full profile.

catalogue! {
    after nvlink;

    Exporter Default Gauge PCIE_LINK_WIDTH = "railscope_pcie_link_width_lanes" (pci)
        "Current lanes of the PCIe link above this function.";
    Exporter Default Gauge PCIE_LINK_WIDTH_MAX = "railscope_pcie_link_max_width_lanes" (pci)
        "Lanes that this function supports; in the default profile only if it runs with fewer.";
    Exporter Full Gauge PCIE_LINK_SPEED = "railscope_pcie_link_transfers_per_second" (pci)
        "Current transfers per second and lane of the PCIe link above this function. An idle GPU lowers the speed: evaluate it under load only.";
    Exporter Full Gauge PCIE_LINK_SPEED_MAX = "railscope_pcie_link_max_transfers_per_second" (pci)
        "Transfers per second and lane that this function supports.";
    Exporter Full Counter PCIE_AER_ERRORS = "railscope_pcie_aer_errors_total" (pci, severity, error)
        "PCIe Advanced Error Reporting (AER): errors by severity (correctable, nonfatal, fatal) and name. Names that never counted are omitted.";
    Exporter Full Counter PCIE_ERRORS = "railscope_pcie_errors_total" (pci, severity)
        "PCIe Advanced Error Reporting (AER): errors by severity, all names together. Zero until the first; absent if the function or the firmware does not report errors.";
    Exporter Default Info PCIE_PATH = "railscope_pcie_path_info" (pci, kind, name, parent, root_port, numa_node)
        "Position of the function in the PCIe tree: parent bridge, root port, NUMA node; in the default profile only if its link lacks lanes. kind is gpu, nic (with an RDMA device), and in the full profile nvme, netdev (Ethernet without RDMA) or bridge; name is the GPU ordinal or the kernel's device name.";
    Exporter Default Info GPU_NIC = "railscope_gpu_nic_info" (gpu, device, hop, nearest)
        "PCIe connection between GPU and NIC: PIX one PCIe switch, PXB several, PHB the host bridge, NODE the same NUMA node, SYS another. Default profile: the nearest NIC; full profile: every pair.";
    Exporter Full Info PCIE_CONFIG = "railscope_pcie_config_info" (pci, relaxed_ordering, extended_tags, acs)
        "PCIe settings of the function: relaxed ordering and extended tags on or off; acs is none (no such capability), off, or the enabled controls.";
    Exporter Full Gauge PCIE_MAX_PAYLOAD = "railscope_pcie_max_payload_bytes" ["bytes"] (pci)
        "Largest payload of a packet that the function sends.";
    Exporter Full Gauge PCIE_MAX_PAYLOAD_SUPPORTED = "railscope_pcie_max_payload_supported_bytes" ["bytes"] (pci)
        "Largest payload of a packet that the function supports.";
    Exporter Full Gauge PCIE_MAX_READ_REQUEST = "railscope_pcie_max_read_request_bytes" ["bytes"] (pci)
        "Largest read request that the function sends. Small values limit GPUDirect.";
    Exporter Full Gauge PCIE_ACS_ON_PATH = "railscope_pcie_acs_redirecting_hops" (pci)
        "Ports above this endpoint whose access control (ACS) redirects peer-to-peer packets to the root complex; 0 is best for GPUDirect. Absent if a port's configuration could not be read.";
    Exporter Full Info PCIE_IOMMU = "railscope_pcie_iommu_info" (pci, group, type)
        "IOMMU group of the function and its translation type: identity passes addresses through, DMA and DMA-FQ translate them.";
}
