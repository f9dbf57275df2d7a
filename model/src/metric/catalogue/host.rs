//! The host: stalls, the scheduler, the way to storage.

catalogue! {
    after workload;

    Exporter Full Counter HOST_STALLS = "railscope_host_stalls_total" (numa_node, threshold)
        "Wake-ups of the timer probe that came later than the threshold: 50us, 200us, 1000us, the shorter ones counting the longer too. One stall counts once, and only if a timer of the probe was due in it: compare with peers and with host_timer_period_seconds.";
    Exporter Default Gauge HOST_TIMER_DELAY_MAX = "railscope_host_timer_delay_max_seconds" ["seconds"] (numa_node)
        "Latest wake-up of the timer probe in the last minute.";
    Exporter Default Histogram HOST_TIMER_DELAY = "railscope_host_timer_delay_seconds" ["seconds"] (numa_node)
        "How late a thread that sleeps until a given instant wakes on a CPU of the NUMA node: hypervisor stalls, firmware interrupts, long interrupt handlers, waiting for the CPU, and the time an idle CPU needs to leave its sleep state.";
    Exporter Full Gauge HOST_TIMER_PERIOD = "railscope_host_timer_period_seconds" ["seconds"] (numa_node)
        "Time between two wake-ups of the timer probe: the shortest of 1 to 200 ms with which the probes of all NUMA nodes together cost at most 0.1 % of one CPU here. A stall shorter than this is seen with the chance length / period.";
    Exporter Full Counter CPU_STEAL = "railscope_cpu_steal_seconds_total" ["seconds"] (numa_node)
        "Time for which the hypervisor ran something else while a CPU of the NUMA node had work, summed over its CPUs.";
    Exporter Full Counter CPU_RUN = "railscope_cpu_run_seconds_total" ["seconds"] (numa_node)
        "Time that tasks ran, summed over the CPUs of the NUMA node.";
    Exporter Full Counter CPU_WAIT = "railscope_cpu_wait_seconds_total" ["seconds"] (numa_node)
        "Time that runnable tasks waited for a CPU, summed over the CPUs of the NUMA node.";
    Exporter Full Counter SOFTNET_DROPPED = "railscope_softnet_dropped_packets_total" (numa_node)
        "Packets dropped because the receive backlog of a CPU was full, summed over the CPUs of the NUMA node. 32 bits a CPU.";
    Exporter Full Counter SOFTNET_SQUEEZED = "railscope_softnet_time_squeezes_total" (numa_node)
        "Times a CPU ended packet processing for lack of time or budget with packets left, summed over the CPUs of the NUMA node. 32 bits a CPU.";
    Exporter Full Counter HOST_PRESSURE = "railscope_host_pressure_seconds_total" ["seconds"] (resource, kind)
        "Time for which some or all (full) tasks that were not idle waited for the resource: cpu, memory, io, irq.";
    Exporter Full Info NVME_SUBSYSTEM = "railscope_nvme_subsystem_info" (subsystem, nqn, model, io_policy)
        "What an NVMe subsystem is, and how the kernel chooses among its paths.";
    Exporter Full Info NVME_PATH = "railscope_nvme_path_info" (controller, subsystem, transport, traddr, host_traddr, netdev, device, pci, numa_node, found_by)
        "One path to an NVMe subsystem. Fabrics: target and local address, the interface and RDMA device that it leaves by, and how that was found: host_iface or host_traddr as the path was set up, or route, where the kernel chooses. Local drives: pci and numa_node.";
    Exporter Full Gauge NVME_PATH_UP = "railscope_nvme_path_up" (controller)
        "1 if the state of the NVMe controller is live.";
    Exporter Full Gauge GDS_STATISTICS_ENABLED = "railscope_gds_statistics_enabled" ()
        "1 if nvidia-fs counts GPUDirect Storage traffic (module parameter rw_stats_enabled); 0 leaves bytes and operations out.";
    Exporter Full Counter GDS_BYTES = "railscope_gds_bytes_total" ["bytes"] (direction)
        "Bytes that GPUDirect Storage has read and written. The driver prints whole MiB.";
    Exporter Full Counter GDS_OPERATIONS = "railscope_gds_operations_total" (direction)
        "Reads and writes that GPUDirect Storage has begun.";
    Exporter Full Counter GDS_ERRORS = "railscope_gds_errors_total" (kind)
        "Errors that nvidia-fs has counted. 32 bits wide.";
    Exporter Full Gauge GPUDIRECT_MODULE = "railscope_gpudirect_module_loaded" (module)
        "1 if the kernel module is loaded: nvidia_peermem or the older nv_peer_mem let NICs reach GPU memory, nvidia_fs storage. Absent without an NVIDIA driver.";
    Exporter Full Gauge GPUDIRECT_DMA_BUF = "railscope_gpudirect_dma_buf_possible" ()
        "1 if NICs can reach GPU memory by dma-buf, with no peer memory module, as far as the kernel (5.12 or later) and the driver (open kernel modules) tell.";
    Exporter Default Counter KERNEL_HARDWARE_EVENTS = "railscope_kernel_hardware_events_total" (device, event)
        "Messages of the kernel log about hardware, links, storage and memory, by event (docs/kernel-log.md) and the device that the message names, empty if none. Of /dev/kmsg since the exporter began to read it; of a file all that it holds.";
    Exporter Default Gauge KERNEL_HARDWARE_EVENT_TIMESTAMP = "railscope_kernel_hardware_event_last_timestamp_seconds" ["seconds"] (device, event)
        "When this event was last in the kernel log, Unix time; also of events before the exporter's start. Absent if the log has no times. Times without a zone are taken as UTC.";
    Exporter Full Info SENSOR = "railscope_sensor_info" (chip, sensor, driver, label)
        "What a sensor of the board is: the chip as node_exporter names it (bus and device), the sensor as its files begin (fan1), the chip's driver, and what the maker calls the sensor. Drives, NICs and GPUs are left out.";
    Exporter Full Gauge FAN_SPEED = "railscope_fan_speed_rpm" (chip, sensor)
        "Speed of a fan, revolutions per minute; at most 32 a node. A fan header with nothing on it reads 0.";
    Exporter Full Gauge SENSOR_TEMPERATURE = "railscope_sensor_temperature_celsius" ["celsius"] (chip, sensor)
        "Temperature of the board, its air, its supplies or a CPU package, those at the air inlet and on the board first; at most 32 a node, no single cores.";
    Exporter Full Gauge SENSOR_ALARM = "railscope_sensor_alarm" (chip, sensor, kind)
        "What the hardware says of a sensor: 0 nominal, 1 warning, 2 or more critical, by kind: fan, temperature, voltage, power (power supplies, their input, and current); from ipmi_exporter also processor, memory, drive. Of hwmon, critical is a fan's alarm or fault, a limit marked critical, and a supply without mains; other limits and a faulty temperature sensor are warnings. At most 32 a kind and node. Absent if the sensor has no alarm that can be trusted, or its state is unknown.";
    Exporter Full Gauge NODE_POWER_ON = "railscope_node_power_on" ()
        "1 if the chassis is switched on, as its BMC says. Railscope's exporter does not ask the BMC: only ipmi_exporter tells it.";
    Exporter Default Counter CPU_THROTTLES = "railscope_cpu_throttles_total" (kind)
        "Times that a CPU was slowed down because it was too hot, summed over cores (core) and over packages (package), since boot. Only Intel CPUs count it.";
    Exporter Full Gauge CPU_FREQUENCY = "railscope_cpu_frequency_hertz" ["hertz"] (statistic)
        "Present frequency of the CPUs: min, median and max over at most 64 of them, spread evenly. An idle CPU may be slow for lack of work.";
    Exporter Full Gauge CPU_MAX_FREQUENCY = "railscope_cpu_max_frequency_hertz" ["hertz"] ()
        "Highest frequency that a CPU can have, boost included where the driver counts it.";
    Exporter Full Info CPU_FREQUENCY_POLICY = "railscope_cpu_frequency_policy_info" (driver, governor)
        "Who chooses the frequency of the CPUs, and by which policy; several if CPUs differ.";
    Exporter Full Counter MEMORY_ERRORS = "railscope_memory_errors_total" (controller, severity)
        "Memory errors that a memory controller (mc0) has counted since its driver was loaded, corrected and uncorrected (EDAC). Where the firmware handles memory errors first, it may report few or none of them.";
}
