//! GPUs, by NVML and the kernel log; MIG instances.

catalogue! {
    after node;

    Exporter Default Info GPU = "railscope_gpu_info" (gpu, uuid, pci, name, serial, vbios, driver, architecture, numa_node)
        "What each GPU is. Join on gpu.";
    Exporter Default Gauge GPU_UTILIZATION = "railscope_gpu_utilization_ratio" ["ratio"] (gpu)
        "Share of the last NVML sample period in which at least one kernel ran. A GPU that waits inside a collective also shows 1.";
    Exporter Full Gauge GPU_MEMORY_UTILIZATION = "railscope_gpu_memory_utilization_ratio" ["ratio"] (gpu)
        "Share of the last NVML sample period in which device memory was read or written.";
    Exporter Default Gauge GPU_MEMORY_USED = "railscope_gpu_memory_used_bytes" ["bytes"] (gpu)
        "Device memory in use, the driver's reserve included.";
    Exporter Default Gauge GPU_MEMORY_SIZE = "railscope_gpu_memory_size_bytes" ["bytes"] (gpu)
        "Device memory in all.";
    Exporter Full Gauge GPU_MEMORY_RESERVED = "railscope_gpu_memory_reserved_bytes" ["bytes"] (gpu)
        "Device memory that the driver keeps for itself.";
    Exporter Default Gauge GPU_CLOCK = "railscope_gpu_clock_hertz" ["hertz"] (gpu, clock)
        "Current clock: sm; memory (which stands still while the GPU works), graphics and video in the full profile.";
    Exporter Default Gauge GPU_LOWEST_CLOCK = "railscope_gpu_lowest_clock_hertz" ["hertz"] (gpu, clock, window)
        "Lowest clock at any sample of the worker in the rolling window: a drop of one second that a scrape every 15 s misses. sm; 15s by default, 60s in the full profile. Scraping resets nothing.";
    Exporter Full Gauge GPU_CLOCK_MAX = "railscope_gpu_clock_max_hertz" ["hertz"] (gpu, clock)
        "Highest clock that the GPU can run at: sm, memory.";
    Exporter Full Gauge GPU_CLOCK_EVENT = "railscope_gpu_clock_event_active" (gpu, reason)
        "1 while the driver holds the clock down for this reason. sw_power_cap is normal under load: compare with peers.";
    Exporter Default Counter GPU_CLOCK_EVENT_SECONDS = "railscope_gpu_clock_event_seconds_total" ["seconds"] (gpu, reason)
        "Time for which the driver has held the clock down for this reason, since it was loaded. A duration, so nothing between two samples is lost.";
    Exporter Default Gauge GPU_POWER = "railscope_gpu_power_watts" ["watts"] (gpu)
        "Power drawn by the board.";
    Exporter Full Gauge GPU_PEAK_POWER = "railscope_gpu_peak_power_watts" ["watts"] (gpu, window)
        "Highest power at any sample of the worker in the rolling window: 15s, 60s. Scraping resets nothing.";
    Exporter Default Gauge GPU_POWER_LIMIT = "railscope_gpu_power_limit_watts" ["watts"] (gpu)
        "Power limit that is enforced now. A GPU capped below its peers is a straggler.";
    Exporter Default Counter GPU_ENERGY = "railscope_gpu_energy_joules_total" ["joules"] (gpu)
        "Energy used since the driver was loaded.";
    Exporter Default Gauge GPU_TEMPERATURE = "railscope_gpu_temperature_celsius" ["celsius"] (gpu, sensor)
        "Temperature of the die (gpu) and, where the board has the sensor, of its memory (memory).";
    Exporter Full Gauge GPU_TEMPERATURE_LIMIT = "railscope_gpu_temperature_limit_celsius" ["celsius"] (gpu, limit)
        "Temperature at which the GPU slows down (slowdown) or switches off (shutdown).";
    Exporter Default Counter GPU_ECC_ERRORS = "railscope_gpu_ecc_errors_total" (gpu, severity)
        "ECC errors since the driver was loaded: corrected, uncorrected.";
    Exporter Full Gauge GPU_ECC_ENABLED = "railscope_gpu_ecc_enabled" (gpu)
        "1 if ECC is switched on.";
    Exporter Full Counter GPU_SRAM_ERRORS = "railscope_gpu_sram_errors_total" (gpu, kind)
        "Errors of the GPU's SRAM (caches, registers, shared memory) since the driver was loaded: corrected; uncorrected, detected by parity or by secded (a code that corrects one bit and detects two).";
    Exporter Full Counter GPU_SRAM_LIFETIME_ERRORS = "railscope_gpu_sram_lifetime_errors_total" (gpu, unit)
        "Uncorrected SRAM errors in the GPU's life, by unit: l2, sm, pcie, microcontroller, other.";
    Exporter Full Gauge GPU_SRAM_THRESHOLD_EXCEEDED = "railscope_gpu_sram_threshold_exceeded" (gpu)
        "1 if the uncorrected SRAM errors exceed NVIDIA's threshold: the GPU is due for replacement.";
    Exporter Full Gauge GPU_ROW_REMAP_PENDING = "railscope_gpu_row_remap_pending" (gpu)
        "1 if a row remap waits for a reset of the GPU.";
    Exporter Full Gauge GPU_ROW_REMAP_FAILED = "railscope_gpu_row_remap_failed" (gpu)
        "1 if a row remap has failed: the GPU is due for replacement.";
    Exporter Full Gauge GPU_PERFORMANCE_STATE = "railscope_gpu_performance_state" (gpu)
        "NVML performance state: 0 is the fastest.";
    Exporter Default Counter GPU_PCIE_REPLAYS = "railscope_gpu_pcie_replays_total" (gpu)
        "PCIe packets that the GPU sent again.";
    Exporter Full Gauge GPU_PCIE_LINK_GENERATION = "railscope_gpu_pcie_link_generation" (gpu)
        "PCIe generation now, as the GPU's driver sees it. An idle GPU trains down to save power.";
    Exporter Full Gauge GPU_PCIE_LINK_WIDTH = "railscope_gpu_pcie_link_width_lanes" (gpu)
        "PCIe lanes now, as the GPU's driver sees it; the only source where a hypervisor hides sysfs.";
    Exporter Full Gauge GPU_PCIE_LINK_WIDTH_MAX = "railscope_gpu_pcie_link_max_width_lanes" (gpu)
        "PCIe lanes that the GPU and its slot allow.";
    Exporter Default Gauge GPU_RECOVERY_ACTION = "railscope_gpu_recovery_action" (gpu)
        "Recovery action that the driver asks for: 0 none, 1 reset of the GPU, 2 reboot of the node, 3 end of its peer-to-peer traffic, 4 drain and reset (it works with less capacity until then); above 4 see nvml.h of the release. Driver 570 or newer.";
    Exporter Full Gauge GPU_PROCESSES = "railscope_gpu_processes" (gpu, kind)
        "Processes with a context on the GPU: compute, graphics, mps. More than one compute process is time-slicing.";
    Exporter Default Counter GPU_XID_EVENTS = "railscope_gpu_xid_events_total" (gpu, xid, source)
        "XID errors since the exporter's source began to listen, by source: nvml or kmsg (the kernel log; of a recorded log all that it holds). Each misses some, so both are kept. A GPU that the node no longer shows has no ordinal: gpu is empty. Alert on the timestamp: a first event has no zero before it.";
    Exporter Default Gauge GPU_LAST_XID = "railscope_gpu_last_xid" (gpu)
        "The last XID of the GPU, 0 if it had none; only from dcgm-exporter, whose gauge keeps it. A change is an event, the first value is not.";
    Exporter Default Gauge GPU_XID_TIMESTAMP = "railscope_gpu_xid_last_timestamp_seconds" ["seconds"] (gpu, xid, source)
        "When this XID was last reported, Unix time; from the kernel log also for those of before the exporter's start.";
    Exporter Default Counter GPU_EVENTS = "railscope_gpu_events_total" (gpu, event)
        "Other events that NVML told since the worker began to listen, once seen: double_bit_ecc, ecc_storm, dram_retirement, dram_retirement_failure, poison, fatal_poison, unavailable, recovery_action.";
    Exporter Default Counter NVSWITCH_SXID_EVENTS = "railscope_nvswitch_sxid_events_total" (pci, sxid, severity)
        "SXid errors of NVSwitches in the kernel log since the exporter began to read it, of a recorded log all that it holds; severity is fatal, nonfatal or empty.";
    Exporter Default Gauge NVSWITCH_SXID_TIMESTAMP = "railscope_nvswitch_sxid_last_timestamp_seconds" ["seconds"] (pci, sxid, severity)
        "When this SXid last stood in the kernel log, Unix time.";
    Exporter Full Counter GPU_ROW_REMAPS = "railscope_gpu_row_remaps_total" (gpu, cause)
        "Memory rows replaced in the GPU's life, because of correctable or uncorrectable errors.";
    Exporter Full Counter GPU_ECC_LIFETIME_ERRORS = "railscope_gpu_ecc_lifetime_errors_total" (gpu, severity)
        "ECC errors in the GPU's life: corrected, uncorrected.";
    Exporter Full Gauge GPU_POWER_SCOPE = "railscope_gpu_power_scope_watts" ["watts"] (gpu, scope, window)
        "Power by scope and window: gpu instant; memory average; module (GPU and CPU of a Grace module) average and instant.";
    Exporter Full Gauge GPU_POWER_LIMIT_RANGE = "railscope_gpu_power_limit_range_watts" ["watts"] (gpu, limit)
        "Power limits: min and max that can be set, default after a driver load, requested by the administrator.";
    Exporter Full Gauge GPU_TEMPERATURE_MARGIN = "railscope_gpu_temperature_margin_celsius" ["celsius"] (gpu)
        "Degrees left until the GPU slows itself down; negative above.";
    Exporter Full Gauge GPU_BAR1_USED = "railscope_gpu_bar1_used_bytes" ["bytes"] (gpu)
        "Mapped part of the window through which hosts and NICs reach the GPU's memory.";
    Exporter Full Gauge GPU_BAR1_SIZE = "railscope_gpu_bar1_size_bytes" ["bytes"] (gpu)
        "The whole of that window.";
    Exporter Full Counter GPU_PCIE_ERRORS = "railscope_gpu_pcie_errors_total" (gpu, kind)
        "PCIe errors as the GPU counts them: replay_rollover, l0_to_recovery, correctable, nak_received, nak_sent, receiver, bad_tlp, bad_dllp, non_fatal, fatal, unsupported_request, lcrc.";
    Exporter Full Counter GPU_PCIE_LANE_ERRORS = "railscope_gpu_pcie_lane_errors_total" (gpu, lane)
        "PCIe errors of one lane of the GPU's link.";
    Exporter Full Counter GPU_PCIE_TRANSMIT_BYTES = "railscope_gpu_pcie_transmit_bytes_total" ["bytes"] (gpu)
        "PCIe bytes from GPU to host: performance monitoring counter 255 where the GPU has it, otherwise NVML field 197; never both (see counter_source_info). NVIDIA says that the field can wrap and not when: once it falls below 2^32 while the driver's energy counter does not, it is left out (see counter_wrapped).";
    Exporter Full Counter GPU_PCIE_RECEIVE_BYTES = "railscope_gpu_pcie_receive_bytes_total" ["bytes"] (gpu)
        "PCIe bytes from host to GPU: performance monitoring counter 256, otherwise NVML field 198; as transmit.";
    Exporter Full Info GPU_STATISTIC_SOURCE = "railscope_gpu_statistic_source_info" (gpu, counter, source)
        "Where NVML keeps a counter that it has in several places: source is field_ and its number, or gpm (performance monitoring, counts since the reboot of the node). Chosen once after the worker's start, so that no counter jumps from one to another.";
    Exporter Full Gauge GPU_STATISTIC_WRAPPED = "railscope_gpu_statistic_wrapped" (gpu, counter)
        "1 if this counter was seen to wrap at 32 bits. It may wrap several times between two samples, so its value is left out. Absent otherwise.";
    Exporter Full Gauge GPU_STATISTIC_IMPLAUSIBLE = "railscope_gpu_statistic_implausible" (gpu, counter)
        "1 if this counter of NVLink bytes once rose faster than its link's speed allows, over at least 5 s: its unit is not the documented one, so its values and rates are omitted until the exporter restarts. Absent otherwise.";
    Exporter Full Info GPU_PLATFORM = "railscope_gpu_platform_info" (gpu, chassis_serial, slot, tray, host, peer_type, module, fabric_guid)
        "Where the GPU sits: rack chassis, slot, tray, host (Blackwell racks), and its module on the board.";
    Exporter Full Info GPU_VIRTUALIZATION = "railscope_gpu_virtualization_info" (gpu, mode, host_mode)
        "How the GPU is given to guests: mode is none, passthrough, vgpu, host_vgpu or host_vsga; host_mode is sriov, non_sriov or empty.";
    Exporter Full Info VGPU = "railscope_vgpu_info" (gpu, vgpu, uuid, vgpu_type, vm)
        "vGPUs that run on a vGPU host: vgpu is NVML's number of the instance, vm the virtual machine's UUID or number; empty where the hypervisor names it otherwise. At most 64 a GPU; read every 15 s, as all of vGPU.";
    Exporter Full Gauge VGPU_MEMORY_USED = "railscope_vgpu_memory_used_bytes" ["bytes"] (gpu, vgpu)
        "Framebuffer that the virtual machine uses.";
    Exporter Full Gauge VGPU_LICENSE_STATE = "railscope_vgpu_license_state" (gpu, vgpu)
        "License of the vGPU: 0 unknown, 1 not initialised, 2 unlicensed and unrestricted, 3 unlicensed and restricted, 4 unlicensed, 5 licensed. Absent until the guest has loaded its driver.";
    Exporter Full Info VGPU_SCHEDULER = "railscope_vgpu_scheduler_info" (gpu, policy, adaptive, heterogeneous)
        "How vGPUs share the GPU in time: policy is best_effort, equal_share or fixed_share; adaptive (round robin) is default, disabled or enabled; heterogeneous (vGPUs of several sizes at once) is enabled, disabled or, where the GPU cannot, empty.";
    Exporter Full Gauge VGPU_TIMESLICE = "railscope_vgpu_timeslice_seconds" ["seconds"] (gpu)
        "Time slice of the vGPU scheduler. Absent under best_effort, which has none.";
    Exporter Full Gauge GPU_FEATURE_LICENSED = "railscope_gpu_feature_licensed" (gpu, feature, product)
        "In a vGPU guest: 1 if the enabled feature (vgpu, workstation, gaming or compute) holds its license. A vGPU without one is slowed down.";
    Exporter Full Gauge GPU_MIG_ENABLED = "railscope_gpu_mig_enabled" (gpu)
        "1 if the GPU is partitioned into MIG instances.";
    Exporter Default Info MIG = "railscope_mig_info" (gpu, gpu_instance, compute_instance, uuid, profile)
        "MIG devices, while there are any.";
    Exporter Full Gauge MIG_MEMORY_USED = "railscope_mig_memory_used_bytes" ["bytes"] (gpu, gpu_instance)
        "Memory in use of a GPU instance; its compute instances share it.";
    Exporter Full Gauge MIG_MEMORY_SIZE = "railscope_mig_memory_size_bytes" ["bytes"] (gpu, gpu_instance)
        "Memory of a GPU instance.";
    Exporter Full Gauge MIG_SM_ACTIVE = "railscope_mig_sm_active_ratio" ["ratio"] (gpu, gpu_instance)
        "Share of the GPU instance's SMs that had work, over the time between two samples (5 s or the worker's period). Hopper and later.";
    Exporter Full Gauge MIG_SM_OCCUPANCY = "railscope_mig_sm_occupancy_ratio" ["ratio"] (gpu, gpu_instance)
        "Warps that were resident in the GPU instance, of the most that could be. Hopper and later.";
    Exporter Full Gauge MIG_TENSOR_ACTIVE = "railscope_mig_tensor_active_ratio" ["ratio"] (gpu, gpu_instance)
        "Share of time in which SMs of the GPU instance did tensor operations. Hopper and later.";
    Exporter Full Gauge MIG_DRAM_BANDWIDTH = "railscope_mig_dram_bandwidth_ratio" ["ratio"] (gpu, gpu_instance)
        "Memory bandwidth in use by the GPU instance, of the most there is for it. Hopper and later.";
    Exporter Full Gauge GPU_SM_ACTIVE = "railscope_gpu_sm_active_ratio" ["ratio"] (gpu)
        "Share of SMs that had work, over the time between two samples of the worker. Hopper and later.";
    Exporter Full Gauge GPU_SM_OCCUPANCY = "railscope_gpu_sm_occupancy_ratio" ["ratio"] (gpu)
        "Warps that were resident, of the most that could be. Hopper and later.";
    Exporter Full Gauge GPU_TENSOR_ACTIVE = "railscope_gpu_tensor_active_ratio" ["ratio"] (gpu)
        "Share of time in which SMs did tensor operations. Hopper and later.";
    Exporter Full Counter GPU_TENSOR_ACTIVE_SECONDS = "railscope_gpu_tensor_active_seconds_total" ["seconds"] (gpu)
        "The same share times the time that it is of, summed: nothing falls between two scrapes. Divide its rate by that of gpu_monitored_seconds. Hopper and later.";
    Exporter Full Counter GPU_MONITORED_SECONDS = "railscope_gpu_monitored_seconds_total" ["seconds"] (gpu)
        "Time for which performance monitoring has watched the GPU up to the values told, by the worker's clock: what was counted meanwhile, cycles as well, is of so much time, however late the GPU was read. Hopper and later.";
    Exporter Full Gauge GPU_DRAM_BANDWIDTH = "railscope_gpu_dram_bandwidth_ratio" ["ratio"] (gpu)
        "Memory bandwidth in use, of the most there is. Hopper and later.";
    Exporter Full Counter GPU_SM_ELAPSED_CYCLES = "railscope_gpu_sm_elapsed_cycles_total" (gpu)
        "SM clock cycles since the reboot of the node, as the GPU counts them: the divisor of the two below. Any number of scrapers may divide their rates, each over its own interval. Performance monitoring counters 248 to 250: Hopper and later with a new driver.";
    Exporter Full Counter GPU_SM_ACTIVE_CYCLES = "railscope_gpu_sm_active_cycles_total" (gpu)
        "Of those cycles, the ones in which an SM had work.";
    Exporter Full Counter GPU_TENSOR_ACTIVE_CYCLES = "railscope_gpu_tensor_active_cycles_total" (gpu)
        "Of those cycles, the ones in which an SM did tensor operations.";
    Exporter Full Gauge GPU_PCIE_TRANSMIT_RATE = "railscope_gpu_pcie_transmit_bytes_per_second" (gpu)
        "PCIe traffic from GPU to host, mean over the time between two samples of the worker. Hopper and later.";
    Exporter Full Gauge GPU_PCIE_RECEIVE_RATE = "railscope_gpu_pcie_receive_bytes_per_second" (gpu)
        "PCIe traffic from host to GPU; as transmit.";
    Exporter Full Counter NVML_CALLS = "railscope_nvml_calls_total" (gpu, call)
        "Calls into NVML since the worker started, by what they ask about.";
    Exporter Full Counter NVML_CALL_SECONDS = "railscope_nvml_call_seconds_total" ["seconds"] (gpu, call)
        "Time spent in those calls. A driver that sickens answers slower before it hangs.";
}
