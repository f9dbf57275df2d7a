//! GPUs, by NVML and the kernel log; MIG instances.

catalogue! {
    after node;

    Exporter Default Info GPU = "railscope_gpu_info" (gpu, uuid, pci, name, serial, vbios, driver, architecture, numa_node)
        "Identity of the GPU. Join other GPU series on gpu.";
    Exporter Default Gauge GPU_UTILIZATION = "railscope_gpu_utilization_ratio" ["ratio"] (gpu)
        "Share of the last NVML sample period in which at least one kernel ran. Also 1 while the GPU waits inside a collective.";
    Exporter Full Gauge GPU_MEMORY_UTILIZATION = "railscope_gpu_memory_utilization_ratio" ["ratio"] (gpu)
        "Share of the last NVML sample period in which device memory was read or written.";
    Exporter Default Gauge GPU_MEMORY_USED = "railscope_gpu_memory_used_bytes" ["bytes"] (gpu)
        "Device memory in use, including the memory that the driver reserves.";
    Exporter Default Gauge GPU_MEMORY_SIZE = "railscope_gpu_memory_size_bytes" ["bytes"] (gpu)
        "Total device memory.";
    Exporter Full Gauge GPU_MEMORY_RESERVED = "railscope_gpu_memory_reserved_bytes" ["bytes"] (gpu)
        "Device memory that the driver reserves for itself.";
    Exporter Default Gauge GPU_CLOCK = "railscope_gpu_clock_hertz" ["hertz"] (gpu, clock)
        "Current clock frequency: sm; in the full profile also memory (constant while the GPU works), graphics and video.";
    Exporter Default Gauge GPU_LOWEST_CLOCK = "railscope_gpu_lowest_clock_hertz" ["hertz"] (gpu, clock, window)
        "Lowest sm clock of all samples of the NVML worker in the rolling window: shows a drop of one second that a 15 s scrape misses. Window 15s by default, also 60s in the full profile. A scrape does not reset it.";
    Exporter Full Gauge GPU_CLOCK_MAX = "railscope_gpu_clock_max_hertz" ["hertz"] (gpu, clock)
        "Highest clock frequency that the GPU supports: sm, memory.";
    Exporter Full Gauge GPU_CLOCK_EVENT = "railscope_gpu_clock_event_active" (gpu, reason)
        "1 while the driver limits the clock for this reason. sw_power_cap is normal under load: compare with peers.";
    Exporter Default Counter GPU_CLOCK_EVENT_SECONDS = "railscope_gpu_clock_event_seconds_total" ["seconds"] (gpu, reason)
        "Time for which the driver has limited the clock for this reason, since the driver was loaded. Cumulative, so it includes events between two samples.";
    Exporter Default Gauge GPU_POWER = "railscope_gpu_power_watts" ["watts"] (gpu)
        "Power draw of the board.";
    Exporter Full Gauge GPU_PEAK_POWER = "railscope_gpu_peak_power_watts" ["watts"] (gpu, window)
        "Highest power of all samples of the NVML worker in the rolling window: 15s, 60s. A scrape does not reset it.";
    Exporter Default Gauge GPU_POWER_LIMIT = "railscope_gpu_power_limit_watts" ["watts"] (gpu)
        "Enforced power limit. A GPU with a lower limit than its peers is a straggler.";
    Exporter Default Counter GPU_ENERGY = "railscope_gpu_energy_joules_total" ["joules"] (gpu)
        "Energy used since the driver was loaded.";
    Exporter Default Gauge GPU_TEMPERATURE = "railscope_gpu_temperature_celsius" ["celsius"] (gpu, sensor)
        "Temperature of the die (gpu) and, if the board has the sensor, of its memory (memory).";
    Exporter Full Gauge GPU_TEMPERATURE_LIMIT = "railscope_gpu_temperature_limit_celsius" ["celsius"] (gpu, limit)
        "Temperature at which the GPU slows down (slowdown) or shuts down (shutdown).";
    Exporter Default Counter GPU_ECC_ERRORS = "railscope_gpu_ecc_errors_total" (gpu, severity)
        "ECC errors since the driver was loaded: corrected, uncorrected.";
    Exporter Full Gauge GPU_ECC_ENABLED = "railscope_gpu_ecc_enabled" (gpu)
        "1 if ECC is enabled.";
    Exporter Full Counter GPU_SRAM_ERRORS = "railscope_gpu_sram_errors_total" (gpu, kind)
        "SRAM errors (caches, registers, shared memory) since the driver was loaded: corrected; parity and secded are uncorrected errors, by the code that detected them (secded corrects one bit and detects two).";
    Exporter Full Counter GPU_SRAM_LIFETIME_ERRORS = "railscope_gpu_sram_lifetime_errors_total" (gpu, unit)
        "Uncorrected SRAM errors over the GPU's lifetime, by unit: l2, sm, pcie, microcontroller, other.";
    Exporter Default Gauge GPU_SRAM_THRESHOLD_EXCEEDED = "railscope_gpu_sram_threshold_exceeded" (gpu)
        "1 if uncorrected SRAM errors exceed NVIDIA's threshold: the GPU is due for replacement. In the default profile only while it is 1.";
    Exporter Default Gauge GPU_ROW_REMAP_PENDING = "railscope_gpu_row_remap_pending" (gpu)
        "1 if a row remap is pending until the GPU is reset. In the default profile only while it is 1.";
    Exporter Default Gauge GPU_ROW_REMAP_FAILED = "railscope_gpu_row_remap_failed" (gpu)
        "1 if a row remap has failed: the GPU is due for replacement. In the default profile only while it is 1.";
    Exporter Full Gauge GPU_PERFORMANCE_STATE = "railscope_gpu_performance_state" (gpu)
        "NVML performance state: 0 is the fastest.";
    Exporter Default Counter GPU_PCIE_REPLAYS = "railscope_gpu_pcie_replays_total" (gpu)
        "PCIe packets that the GPU retransmitted.";
    Exporter Full Gauge GPU_PCIE_LINK_GENERATION = "railscope_gpu_pcie_link_generation" (gpu)
        "Current PCIe generation, as reported by the GPU driver. An idle GPU lowers it to save power.";
    Exporter Full Gauge GPU_PCIE_LINK_WIDTH = "railscope_gpu_pcie_link_width_lanes" (gpu)
        "Current PCIe lanes, as reported by the GPU driver; the only source if a hypervisor hides sysfs.";
    Exporter Full Gauge GPU_PCIE_LINK_WIDTH_MAX = "railscope_gpu_pcie_link_max_width_lanes" (gpu)
        "PCIe lanes that the GPU and its slot support.";
    Exporter Default Gauge GPU_RECOVERY_ACTION = "railscope_gpu_recovery_action" (gpu)
        "Recovery action that the driver requests: 0 none, 1 reset the GPU, 2 reboot the node, 3 stop its peer-to-peer traffic, 4 drain and reset (reduced capacity until then). Higher values: see nvml.h of the release. Driver 570 or newer.";
    Exporter Full Gauge GPU_PROCESSES = "railscope_gpu_processes" (gpu, kind)
        "Processes with a context on the GPU: compute, graphics, mps. Several compute processes share the GPU by time-slicing.";
    Exporter Default Counter GPU_XID_EVENTS = "railscope_gpu_xid_events_total" (gpu, xid, source)
        "XID errors since the exporter started to read the source: nvml, kmsg (the kernel log; for a recorded log, all its entries), or dcgm (of dcgm-exporter). Each source misses some, so both are exported. gpu is empty if the node no longer lists the GPU. Alert on the timestamp: the first event of a series has no zero before it.";
    Exporter Default Gauge GPU_LAST_XID = "railscope_gpu_last_xid" (gpu)
        "Last XID of the GPU, 0 if none; only from dcgm-exporter, whose gauge keeps the value. A change is an event, the first value is not.";
    Exporter Default Gauge GPU_RECENT_XIDS = "railscope_gpu_recent_xids" (gpu, xid)
        "XID errors of the GPU within the last minutes (5 by default); only from dcgm-exporter. A rise is an event, and so is the first value.";
    Exporter Default Gauge GPU_XID_TIMESTAMP = "railscope_gpu_xid_last_timestamp_seconds" ["seconds"] (gpu, xid, source)
        "Unix time at which this XID was last reported. For the kernel log, includes XIDs from before the exporter's start.";
    Exporter Default Counter GPU_EVENTS = "railscope_gpu_events_total" (gpu, event)
        "Other NVML events since the NVML worker started to listen: double_bit_ecc, ecc_storm, dram_retirement, dram_retirement_failure, poison, fatal_poison, unavailable, recovery_action. Absent until the first.";
    Exporter Default Counter NVSWITCH_SXID_EVENTS = "railscope_nvswitch_sxid_events_total" (pci, sxid, severity)
        "SXid errors of NVSwitches in the kernel log since the exporter started to read it (for a recorded log, all its entries). severity is fatal, nonfatal or empty.";
    Exporter Default Gauge NVSWITCH_SXID_TIMESTAMP = "railscope_nvswitch_sxid_last_timestamp_seconds" ["seconds"] (pci, sxid, severity)
        "Unix time of the last kernel log entry with this SXid.";
    Exporter Full Counter GPU_ROW_REMAPS = "railscope_gpu_row_remaps_total" (gpu, cause)
        "Memory rows remapped over the GPU's lifetime because of correctable or uncorrectable errors.";
    Exporter Full Counter GPU_ECC_LIFETIME_ERRORS = "railscope_gpu_ecc_lifetime_errors_total" (gpu, severity)
        "ECC errors over the GPU's lifetime: corrected, uncorrected.";
    Exporter Full Gauge GPU_POWER_SCOPE = "railscope_gpu_power_scope_watts" ["watts"] (gpu, scope, window)
        "Power by scope and window: gpu (instant); memory (average); module, the GPU and CPU of a Grace module (average, instant).";
    Exporter Full Gauge GPU_POWER_LIMIT_RANGE = "railscope_gpu_power_limit_range_watts" ["watts"] (gpu, limit)
        "Power limits: min and max that can be set, default (after the driver loads), requested (by the administrator).";
    Exporter Full Gauge GPU_TEMPERATURE_MARGIN = "railscope_gpu_temperature_margin_celsius" ["celsius"] (gpu)
        "Degrees Celsius left until the GPU slows down; negative above that temperature.";
    Exporter Full Gauge GPU_BAR1_USED = "railscope_gpu_bar1_used_bytes" ["bytes"] (gpu)
        "Mapped part of BAR1, the window through which hosts and NICs access GPU memory.";
    Exporter Full Gauge GPU_BAR1_SIZE = "railscope_gpu_bar1_size_bytes" ["bytes"] (gpu)
        "Total size of BAR1.";
    Exporter Full Counter GPU_PCIE_ERRORS = "railscope_gpu_pcie_errors_total" (gpu, kind)
        "PCIe errors that the GPU counts: replay_rollover, l0_to_recovery, correctable, nak_received, nak_sent, receiver, bad_tlp, bad_dllp, non_fatal, fatal, unsupported_request, lcrc.";
    Exporter Full Counter GPU_PCIE_LANE_ERRORS = "railscope_gpu_pcie_lane_errors_total" (gpu, lane)
        "PCIe errors by lane of the GPU's link.";
    Exporter Full Counter GPU_PCIE_TRANSMIT_BYTES = "railscope_gpu_pcie_transmit_bytes_total" ["bytes"] (gpu)
        "PCIe bytes from GPU to host: performance monitoring counter 255 if the GPU has it, otherwise NVML field 197, never both (see gpu_statistic_source_info). NVIDIA documents that the field can wrap, but not when: absent once it falls below 2^32 while the driver's energy counter does not fall (see gpu_statistic_wrapped).";
    Exporter Full Counter GPU_PCIE_RECEIVE_BYTES = "railscope_gpu_pcie_receive_bytes_total" ["bytes"] (gpu)
        "PCIe bytes from host to GPU: performance monitoring counter 256, otherwise NVML field 198. See transmit for the limits.";
    Exporter Full Info GPU_STATISTIC_SOURCE = "railscope_gpu_statistic_source_info" (gpu, counter, source)
        "Where NVML provides a counter that it has in several places: source is field_ and its number, or gpm (performance monitoring, counts since the reboot of the node). Chosen once after the NVML worker starts, so that the counter never changes its source.";
    Exporter Full Gauge GPU_STATISTIC_WRAPPED = "railscope_gpu_statistic_wrapped" (gpu, counter)
        "1 if this counter wrapped at 32 bits. It may wrap several times between two samples, so its value is omitted. Absent otherwise.";
    Exporter Full Gauge GPU_STATISTIC_IMPLAUSIBLE = "railscope_gpu_statistic_implausible" (gpu, counter)
        "1 if this counter of NVLink bytes rose faster than the link speed allows, over at least 5 s: its unit is not the documented one, so its values and rates are omitted until the exporter restarts. Absent otherwise.";
    Exporter Full Info GPU_PLATFORM = "railscope_gpu_platform_info" (gpu, chassis_serial, slot, tray, host, peer_type, module, fabric_guid)
        "Location of the GPU: rack chassis, slot, tray and host (Blackwell racks), and its module on the board.";
    Exporter Full Info GPU_VIRTUALIZATION = "railscope_gpu_virtualization_info" (gpu, mode, host_mode)
        "Virtualization of the GPU: mode is none, passthrough, vgpu, host_vgpu or host_vsga; host_mode is sriov, non_sriov or empty.";
    Exporter Full Info VGPU = "railscope_vgpu_info" (gpu, vgpu, uuid, vgpu_type, vm)
        "vGPUs that run on a vGPU host: vgpu is the NVML instance number, vm the UUID or number of the virtual machine, empty if the hypervisor identifies it otherwise. At most 64 per GPU. All vGPU series are read every 15 s.";
    Exporter Full Gauge VGPU_MEMORY_USED = "railscope_vgpu_memory_used_bytes" ["bytes"] (gpu, vgpu)
        "Framebuffer memory in use by the virtual machine.";
    Exporter Full Gauge VGPU_LICENSE_STATE = "railscope_vgpu_license_state" (gpu, vgpu)
        "License of the vGPU: 0 unknown, 1 not initialized, 2 unlicensed and unrestricted, 3 unlicensed and restricted, 4 unlicensed, 5 licensed. Absent until the guest has loaded its driver.";
    Exporter Full Info VGPU_SCHEDULER = "railscope_vgpu_scheduler_info" (gpu, policy, adaptive, heterogeneous)
        "How vGPUs share GPU time: policy is best_effort, equal_share or fixed_share; adaptive (round robin) is default, disabled or enabled; heterogeneous (vGPUs of several sizes at once) is enabled, disabled, or empty if the GPU does not support it.";
    Exporter Full Gauge VGPU_TIMESLICE = "railscope_vgpu_timeslice_seconds" ["seconds"] (gpu)
        "Time slice of the vGPU scheduler. Absent with best_effort, which has none.";
    Exporter Full Gauge GPU_FEATURE_LICENSED = "railscope_gpu_feature_licensed" (gpu, feature, product)
        "In a vGPU guest: 1 if the enabled feature (vgpu, workstation, gaming or compute) has a license. An unlicensed vGPU is slowed down.";
    Exporter Full Gauge GPU_MIG_ENABLED = "railscope_gpu_mig_enabled" (gpu)
        "1 if the GPU is partitioned into MIG instances.";
    Exporter Default Info MIG = "railscope_mig_info" (gpu, gpu_instance, compute_instance, uuid, profile)
        "Identity of a MIG device. Absent without MIG devices.";
    Exporter Full Gauge MIG_MEMORY_USED = "railscope_mig_memory_used_bytes" ["bytes"] (gpu, gpu_instance)
        "Memory in use by a GPU instance; its compute instances share it.";
    Exporter Full Gauge MIG_MEMORY_SIZE = "railscope_mig_memory_size_bytes" ["bytes"] (gpu, gpu_instance)
        "Memory size of a GPU instance.";
    Exporter Full Gauge MIG_SM_ACTIVE = "railscope_mig_sm_active_ratio" ["ratio"] (gpu, gpu_instance)
        "Share of the GPU instance's SMs that were active between two samples (5 s or the NVML worker's period). Hopper and later.";
    Exporter Full Gauge MIG_SM_OCCUPANCY = "railscope_mig_sm_occupancy_ratio" ["ratio"] (gpu, gpu_instance)
        "Resident warps of the GPU instance as a share of the maximum. Hopper and later.";
    Exporter Full Gauge MIG_TENSOR_ACTIVE = "railscope_mig_tensor_active_ratio" ["ratio"] (gpu, gpu_instance)
        "Share of time in which SMs of the GPU instance executed tensor operations. Hopper and later.";
    Exporter Full Gauge MIG_DRAM_BANDWIDTH = "railscope_mig_dram_bandwidth_ratio" ["ratio"] (gpu, gpu_instance)
        "Memory bandwidth in use by the GPU instance as a share of its maximum. Hopper and later.";
    Exporter Full Gauge GPU_SM_ACTIVE = "railscope_gpu_sm_active_ratio" ["ratio"] (gpu)
        "Share of SMs that were active between two samples of the NVML worker. Hopper and later.";
    Exporter Full Gauge GPU_SM_OCCUPANCY = "railscope_gpu_sm_occupancy_ratio" ["ratio"] (gpu)
        "Resident warps as a share of the maximum. Hopper and later.";
    Exporter Full Gauge GPU_TENSOR_ACTIVE = "railscope_gpu_tensor_active_ratio" ["ratio"] (gpu)
        "Share of time in which SMs executed tensor operations. Hopper and later.";
    Exporter Full Counter GPU_TENSOR_ACTIVE_SECONDS = "railscope_gpu_tensor_active_seconds_total" ["seconds"] (gpu)
        "gpu_tensor_active_ratio times the interval of each sample, summed: includes all time between two scrapes. Divide its rate by the rate of gpu_monitored_seconds_total. Hopper and later.";
    Exporter Full Counter GPU_MONITORED_SECONDS = "railscope_gpu_monitored_seconds_total" ["seconds"] (gpu)
        "Time covered by performance monitoring up to the exported values, by the NVML worker's clock. It is the time base of the performance monitoring counters, including cycles, even if the GPU was read late. Hopper and later.";
    Exporter Full Gauge GPU_DRAM_BANDWIDTH = "railscope_gpu_dram_bandwidth_ratio" ["ratio"] (gpu)
        "Memory bandwidth in use as a share of the maximum. Hopper and later.";
    Exporter Full Counter GPU_SM_ELAPSED_CYCLES = "railscope_gpu_sm_elapsed_cycles_total" (gpu)
        "SM clock cycles since the reboot of the node, counted by the GPU: the divisor of gpu_sm_active_cycles_total and gpu_tensor_active_cycles_total. Each scraper can divide their rates over its own interval. Performance monitoring counters 248 to 250: Hopper and later with a new driver.";
    Exporter Full Counter GPU_SM_ACTIVE_CYCLES = "railscope_gpu_sm_active_cycles_total" (gpu)
        "Cycles of gpu_sm_elapsed_cycles_total in which an SM was active.";
    Exporter Full Counter GPU_TENSOR_ACTIVE_CYCLES = "railscope_gpu_tensor_active_cycles_total" (gpu)
        "Cycles of gpu_sm_elapsed_cycles_total in which an SM executed tensor operations.";
    Exporter Full Gauge GPU_PCIE_TRANSMIT_RATE = "railscope_gpu_pcie_transmit_bytes_per_second" (gpu)
        "PCIe traffic from GPU to host, mean over the time between two samples of the NVML worker. Hopper and later.";
    Exporter Full Gauge GPU_PCIE_RECEIVE_RATE = "railscope_gpu_pcie_receive_bytes_per_second" (gpu)
        "PCIe traffic from host to GPU, mean as for transmit. Hopper and later.";
    Exporter Full Counter NVML_CALLS = "railscope_nvml_calls_total" (gpu, call)
        "NVML calls since the NVML worker started, by subject of the call.";
    Exporter Full Counter NVML_CALL_SECONDS = "railscope_nvml_call_seconds_total" ["seconds"] (gpu, call)
        "Time spent in NVML calls. A failing driver responds more slowly before it hangs.";
}
