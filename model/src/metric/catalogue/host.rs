//! The host: stalls, the scheduler, the path to storage.

catalogue! {
    after workload;

    Exporter Full Counter HOST_STALLS = "railscope_host_stalls_total" (numa_node, threshold)
        "Wake-ups of the timer probe later than the threshold (50us, 200us, 1000us). Thresholds are cumulative: a lower one includes longer stalls. A stall counts once, and only if a timer of the probe was due during it: compare with peers and see host_timer_period_seconds.";
    Exporter Default Gauge HOST_TIMER_DELAY_MAX = "railscope_host_timer_delay_max_seconds" ["seconds"] (numa_node)
        "Largest wake-up delay of the timer probe in the last minute.";
    Exporter Default Histogram HOST_TIMER_DELAY = "railscope_host_timer_delay_seconds" ["seconds"] (numa_node)
        "Wake-up delay of a thread that sleeps until a given time on a CPU of the NUMA node. Includes hypervisor stalls, firmware interrupts, long interrupt handlers, waiting for the CPU, and the exit latency of CPU sleep states.";
    Exporter Full Gauge HOST_TIMER_PERIOD = "railscope_host_timer_period_seconds" ["seconds"] (numa_node)
        "Time between two wake-ups of the timer probe: the shortest of 1 to 200 ms at which the probes of all NUMA nodes together cost at most 0.1 % of one CPU. The probability of detecting a shorter stall is its length / period.";
    Exporter Full Counter CPU_STEAL = "railscope_cpu_steal_seconds_total" ["seconds"] (numa_node)
        "Time for which the hypervisor ran something else while a CPU had work (steal), summed over the CPUs of the NUMA node.";
    Exporter Full Counter CPU_IOWAIT = "railscope_cpu_iowait_seconds_total" ["seconds"] (numa_node)
        "Time for which a CPU was idle while a task waited for I/O that it had started there (iowait), summed over the CPUs of the NUMA node. Shows slow storage where the kernel does not measure pressure (see host_pressure_seconds_total).";
    Exporter Full Counter CPU_RUN = "railscope_cpu_run_seconds_total" ["seconds"] (numa_node)
        "Time that tasks ran, summed over the CPUs of the NUMA node. From node_exporter with the time of interrupts.";
    Exporter Full Counter CPU_WAIT = "railscope_cpu_wait_seconds_total" ["seconds"] (numa_node)
        "Time that runnable tasks waited for a CPU, summed over the CPUs of the NUMA node.";
    Exporter Full Counter SOFTNET_DROPPED = "railscope_softnet_dropped_packets_total" (numa_node)
        "Packets dropped because the receive backlog of a CPU was full, summed over the CPUs of the NUMA node. 32-bit counter per CPU.";
    Exporter Full Counter SOFTNET_SQUEEZED = "railscope_softnet_time_squeezes_total" (numa_node)
        "Times that a CPU stopped packet processing with packets left because its time or budget ran out, summed over the CPUs of the NUMA node. 32-bit counter per CPU.";
    Exporter Full Counter HOST_PRESSURE = "railscope_host_pressure_seconds_total" ["seconds"] (resource, kind)
        "Time for which some or all (full) non-idle tasks waited for the resource: cpu, memory, io, irq.";
    Exporter Full Info NVME_SUBSYSTEM = "railscope_nvme_subsystem_info" (subsystem, nqn, model, io_policy)
        "Identity of an NVMe subsystem, and the policy (io_policy) by which the kernel selects among its paths.";
    Exporter Full Info NVME_PATH = "railscope_nvme_path_info" (controller, subsystem, transport, traddr, host_traddr, netdev, device, pci, numa_node, found_by)
        "Path to an NVMe subsystem. NVMe over Fabrics: target and local address, the interface and RDMA device of the path, and how they were found (found_by): host_iface or host_traddr as configured, or route if the kernel chooses. Local drives: pci and numa_node.";
    Exporter Full Gauge NVME_PATH_UP = "railscope_nvme_path_up" (controller)
        "1 if the state of the NVMe controller is live.";
    Exporter Full Gauge GDS_STATISTICS_ENABLED = "railscope_gds_statistics_enabled" ()
        "1 if nvidia-fs counts GPUDirect Storage traffic (module parameter rw_stats_enabled). If 0, bytes and operations are absent.";
    Exporter Full Counter GDS_BYTES = "railscope_gds_bytes_total" ["bytes"] (direction)
        "Bytes read and written by GPUDirect Storage. The driver reports whole MiB.";
    Exporter Full Counter GDS_OPERATIONS = "railscope_gds_operations_total" (direction)
        "Reads and writes started by GPUDirect Storage.";
    Exporter Full Counter GDS_ERRORS = "railscope_gds_errors_total" (kind)
        "Errors counted by nvidia-fs. 32 bits wide.";
    Exporter Full Gauge GPUDIRECT_MODULE = "railscope_gpudirect_module_loaded" (module)
        "1 if the kernel module is loaded: nvidia_peermem or the older nv_peer_mem give NICs access to GPU memory, nvidia_fs gives it to storage. Absent without an NVIDIA driver.";
    Exporter Full Gauge GPUDIRECT_DMA_BUF = "railscope_gpudirect_dma_buf_possible" ()
        "1 if NICs can access GPU memory by dma-buf without a peer memory module, as far as the kernel version (5.12 or later) and the driver (open kernel modules) show.";
    Exporter Default Counter KERNEL_HARDWARE_EVENTS = "railscope_kernel_hardware_events_total" (device, event)
        "Kernel log messages about hardware, links, storage and memory, by event (docs/kernel-log.md) and device (empty if the message has none). From /dev/kmsg since the exporter started to read it; from a file, all its messages.";
    Exporter Default Gauge KERNEL_HARDWARE_EVENT_TIMESTAMP = "railscope_kernel_hardware_event_last_timestamp_seconds" ["seconds"] (device, event)
        "Unix time of the last kernel log message with this event, including those from before the exporter's start. Absent if the log has no times. Times without a zone are read as UTC.";
    Exporter Full Info SENSOR = "railscope_sensor_info" (chip, sensor, driver, label)
        "Identity of a board sensor: the chip as node_exporter names it (bus and device), the sensor as the prefix of its files (fan1), the chip's driver, and the vendor's label. Drives, NICs and GPUs are omitted.";
    Exporter Full Gauge FAN_SPEED = "railscope_fan_speed_rpm" (chip, sensor)
        "Speed of a fan in revolutions per minute; at most 32 per node. A fan header without a fan reads 0.";
    Exporter Full Gauge SENSOR_TEMPERATURE = "railscope_sensor_temperature_celsius" ["celsius"] (chip, sensor)
        "Temperature of the board, its air, its power supplies or a CPU package; at most 32 per node, air inlet and board sensors first. Single cores are omitted.";
    Exporter Full Gauge SENSOR_ALARM = "railscope_sensor_alarm" (chip, sensor, kind)
        "State that the hardware reports for a sensor: 0 nominal, 1 warning, 2 or more critical, by kind: fan, temperature, voltage, power (power supplies, their input, and current); from ipmi_exporter also processor, memory, drive. For hwmon, critical is a fan alarm or fault, a limit marked critical, or a power supply without mains; other limits and a faulty temperature sensor are warnings. At most 32 per kind and node. Absent if the sensor has no reliable alarm or its state is unknown.";
    Exporter Full Gauge NODE_POWER_ON = "railscope_node_power_on" ()
        "1 if the chassis is powered on, as reported by its BMC. Only from ipmi_exporter: the Railscope exporter does not read the BMC.";
    Exporter Default Counter CPU_THROTTLES = "railscope_cpu_throttles_total" (kind)
        "Times that a CPU was throttled because it was too hot, summed over cores (core) and over packages (package), since boot. Intel CPUs only.";
    Exporter Full Gauge CPU_FREQUENCY = "railscope_cpu_frequency_hertz" ["hertz"] (statistic)
        "Current CPU frequency: min, median and max over at most 64 evenly spread CPUs. An idle CPU may have a low frequency.";
    Exporter Full Gauge CPU_MAX_FREQUENCY = "railscope_cpu_max_frequency_hertz" ["hertz"] ()
        "Highest frequency that a CPU supports, including boost if the driver counts it.";
    Exporter Full Info CPU_FREQUENCY_POLICY = "railscope_cpu_frequency_policy_info" (driver, governor)
        "Driver and governor that select the CPU frequency; several series if CPUs differ.";
    Exporter Full Counter MEMORY_ERRORS = "railscope_memory_errors_total" (controller, severity)
        "Memory errors counted by a memory controller (mc0) since its driver was loaded (EDAC): corrected, uncorrected. If the firmware handles memory errors first, it may report few or none of them.";
}
