//! One GPU: everything the catalogue has of it, from one NVML handle.

use std::time::Instant;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::enums::device::DeviceArchitecture;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use railscope_model::identity::{GpuIndex, PciAddress};
use railscope_model::metric as m;
use railscope_model::metric::{Metric, Profile};
use railscope_model::reading::{Labels, NodeReading};
use railscope_model::units::{HERTZ_PER_MEGAHERTZ, MILLIS};

use super::calls::{Calls, Of};
use super::gpm::Gpm;
use super::nvlink::NvLinks;
use super::pcie_bytes::PcieBytes;
use super::place::Place;
use super::raw::memory_total_and_free;
use super::structs::temperature_margin;
use super::vgpu::Vgpus;
use super::windows::Strain;
use super::{c2c, fields, mig, sram};

const DEFAULT: Profile = Profile::Default;
const FULL: Profile = Profile::Full;
/// The fastest and the slowest NVML performance state; above the slowest stands "unknown".
const SLOWEST_PERFORMANCE_STATE: u32 = 15;
/// NVML's scope of memory affinity: the NUMA node, not the socket.
const AFFINITY_SCOPE_NODE: u32 = 0;
/// Words of the requested NUMA node set: 1,024 nodes, the kernel's largest configuration.
const NODE_SET_WORDS: usize = 16;

/// `clock`, call, NVML clock, in which profile.
const CLOCKS: [(&str, &str, Clock, Profile); 4] = [
    ("sm", "clock_sm", Clock::SM, DEFAULT),
    ("memory", "clock_memory", Clock::Memory, FULL),
    ("graphics", "clock_graphics", Clock::Graphics, FULL),
    ("video", "clock_video", Clock::Video, FULL),
];
/// As [`CLOCKS`], for the highest clocks.
const HIGHEST_CLOCKS: [(&str, &str, Clock, Profile); 2] = [
    ("sm", "clock_max_sm", Clock::SM, DEFAULT),
    ("memory", "clock_max_memory", Clock::Memory, FULL),
];

/// NVML clock event reason -> `reason`. Those that slow a busy GPU down are in the default profile.
const CLOCK_EVENTS: [(&str, ThrottleReasons, Profile); 9] = [
    ("gpu_idle", ThrottleReasons::GPU_IDLE, FULL),
    (
        "app_clocks",
        ThrottleReasons::APPLICATIONS_CLOCKS_SETTING,
        FULL,
    ),
    ("sw_power_cap", ThrottleReasons::SW_POWER_CAP, DEFAULT),
    ("hw_slowdown", ThrottleReasons::HW_SLOWDOWN, DEFAULT),
    ("sync_boost", ThrottleReasons::SYNC_BOOST, DEFAULT),
    ("sw_thermal", ThrottleReasons::SW_THERMAL_SLOWDOWN, DEFAULT),
    ("hw_thermal", ThrottleReasons::HW_THERMAL_SLOWDOWN, DEFAULT),
    (
        "hw_power_brake",
        ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN,
        DEFAULT,
    ),
    (
        "display_clock",
        ThrottleReasons::DISPLAY_CLOCK_SETTING,
        FULL,
    ),
];

/// Call, `severity`, NVML's names of both, metric.
const ECC_ERRORS: [(&str, &str, MemoryError, EccCounter, &Metric); 4] = [
    (
        "ecc_corrected",
        "corrected",
        MemoryError::Corrected,
        EccCounter::Volatile,
        &m::GPU_ECC_ERRORS,
    ),
    (
        "ecc_uncorrected",
        "uncorrected",
        MemoryError::Uncorrected,
        EccCounter::Volatile,
        &m::GPU_ECC_ERRORS,
    ),
    (
        "ecc_lifetime_corrected",
        "corrected",
        MemoryError::Corrected,
        EccCounter::Aggregate,
        &m::GPU_ECC_LIFETIME_ERRORS,
    ),
    (
        "ecc_lifetime_uncorrected",
        "uncorrected",
        MemoryError::Uncorrected,
        EccCounter::Aggregate,
        &m::GPU_ECC_LIFETIME_ERRORS,
    ),
];

/// One GPU and the state of its calls.
pub(super) struct Gpu {
    nvml: &'static Nvml,
    /// NVML's own number of the GPU, by which to ask for a new handle.
    nvml_index: u32,
    /// None as long as NVML gives no handle.
    device: Option<Device<'static>>,
    labels: Labels,
    info: Option<Labels>,
    /// In MHz, in the order of [`HIGHEST_CLOCKS`].
    highest_clocks: [Option<u32>; HIGHEST_CLOCKS.len()],
    links: NvLinks,
    place: Place,
    gpm: Gpm,
    pcie_bytes: PcieBytes,
    vgpus: Vgpus,
    strain: Strain,
    pub(super) calls: Calls,
}

impl Gpu {
    pub(super) fn new(nvml: &'static Nvml, nvml_index: u32, ordinal: GpuIndex) -> Self {
        let labels = Labels::new([ordinal]);
        Self {
            nvml,
            nvml_index,
            device: None,
            links: NvLinks::new(&labels),
            labels,
            info: None,
            highest_clocks: [None; HIGHEST_CLOCKS.len()],
            place: Place::default(),
            gpm: Gpm::default(),
            pcie_bytes: PcieBytes::default(),
            vgpus: Vgpus::default(),
            strain: Strain::default(),
            calls: Calls::default(),
        }
    }

    /// Reads the GPU once. Values that it does not return are absent; [`Calls::status`] reports why.
    pub(super) fn sample(&mut self, reading: &mut NodeReading) {
        self.calls.begin();
        if self.device.is_none() {
            let nvml = self.nvml;
            let index = self.nvml_index;
            self.device = self
                .calls
                .ask(("handle", Of::Gpu), || nvml.device_by_index(index));
        }
        if let Some(device) = self.device.take() {
            self.identity(&device);
            self.load(&device, reading);
            self.clocks(&device, reading);
            let energy = self.power_and_heat(&device, reading);
            self.memory(&device, reading);
            self.pcie(&device, reading);
            let (gpu, calls) = (&self.labels, &mut self.calls);
            fields::sample(&device, gpu, calls, reading);
            // Before the readers that use its counters.
            self.gpm.sample(&device, gpu, calls, reading);
            self.pcie_bytes
                .sample(&device, gpu, energy, &self.gpm, calls, reading);
            self.links.sample(&device, &mut self.gpm, calls, reading);
            c2c::sample(&device, gpu, calls, reading);
            sram::sample(&device, gpu, calls, reading);
            self.place.sample(&device, gpu, calls, reading);
            let mode = self.place.virtualization_mode();
            self.vgpus.sample(&device, gpu, mode, calls, reading);
            let instances = mig::sample(&device, gpu, calls, reading);
            self.gpm
                .sample_instances(&device, gpu, &instances, calls, reading);
            self.strain.push(Instant::now(), gpu, reading);
            // A GPU that was lost and came back may have another handle.
            self.device = self.calls.lost().is_none().then_some(device);
        }
        // What it is stays true while it is lost, and reports which board to pull.
        if let Some(info) = &self.info {
            reading.push(&m::GPU, info, true);
        }
        self.calls.account(&self.labels, reading);
    }

    fn identity(&mut self, device: &Device<'_>) {
        if self.info.is_some() {
            return;
        }
        let calls = &mut self.calls;
        calls.section("identity");
        let pci = calls.ask(("pci", Of::Gpu), || device.pci_info());
        let pci = pci.and_then(|pci| pci.bus_id.parse::<PciAddress>().ok());
        let architecture = calls.ask(("architecture", Of::Gpu), || device.architecture());
        let architecture = match architecture {
            None | Some(DeviceArchitecture::Unknown) => String::new(),
            Some(known) => known.to_string().to_lowercase(),
        };
        let texts = [
            calls.ask(("uuid", Of::Gpu), || device.uuid()),
            pci.map(|pci| pci.to_string()),
            calls.ask(("name", Of::Gpu), || device.name()),
            calls.ask(("serial", Of::Gpu), || device.serial()),
            calls.ask(("vbios", Of::Gpu), || device.vbios_version()),
            calls.ask(("driver", Of::Gpu), || device.nvml().sys_driver_version()),
            Some(architecture),
            calls.ask(("numa_node", Of::Gpu), || numa_node(device)),
        ];
        if calls.lost().is_some() {
            return;
        }
        let texts = texts.into_iter().map(Option::unwrap_or_default);
        self.info = Some(texts.fold(self.labels.clone(), |labels, text| labels.with(text)));
    }

    fn load(&mut self, device: &Device<'_>, reading: &mut NodeReading) {
        let ratio = |percent: u32| f64::from(percent) / 100.0;
        let calls = &mut self.calls;
        calls.section("load");
        if let Some(busy) = calls.ask(("utilization", Of::Gpu), || device.utilization_rates()) {
            reading.push(&m::GPU_UTILIZATION, &self.labels, ratio(busy.gpu));
            reading.push(&m::GPU_MEMORY_UTILIZATION, &self.labels, ratio(busy.memory));
        }
        if let Some(state) = calls.ask(("performance_state", Of::Gpu), || {
            device.performance_state()
        }) {
            let state = state.as_c();
            if state <= SLOWEST_PERFORMANCE_STATE {
                reading.push(&m::GPU_PERFORMANCE_STATE, &self.labels, state);
            }
        }
        type Count<'a> = Box<dyn FnOnce() -> Result<u32, NvmlError> + 'a>;
        let kinds: [(&str, &str, Count<'_>); 3] = [
            (
                "compute",
                "processes_compute",
                Box::new(|| device.running_compute_processes_count()),
            ),
            (
                "graphics",
                "processes_graphics",
                Box::new(|| device.running_graphics_processes_count()),
            ),
            (
                "mps",
                "processes_mps",
                Box::new(|| Ok(device.mps_running_compute_processes()?.len() as u32)),
            ),
        ];
        for (kind, call, count) in kinds {
            if let Some(count) = calls.ask((call, Of::Feature), count) {
                let labels = self.labels.with(kind);
                reading.push(&m::GPU_PROCESSES, &labels, count);
            }
        }
    }

    /// They never change, and cost 2 ms on an H100: read until the first success.
    fn highest_clocks(&mut self, device: &Device<'_>, reading: &mut NodeReading) {
        for ((name, call, clock, profile), known) in
            HIGHEST_CLOCKS.into_iter().zip(&mut self.highest_clocks)
        {
            let ask = || device.max_clock_info(clock);
            *known = known.or_else(|| self.calls.ask((call, Of::Gpu), ask));
            if let (Some(max), None) = (*known, self.calls.lost()) {
                let labels = self.labels.with(name);
                reading.push_in(profile, &m::GPU_CLOCK_MAX, &labels, hertz(max));
            }
        }
    }

    fn clocks(&mut self, device: &Device<'_>, reading: &mut NodeReading) {
        self.calls.section("clocks");
        for (name, call, clock, profile) in CLOCKS {
            let labels = self.labels.with(name);
            if let Some(now) = self.calls.ask((call, Of::Gpu), || device.clock_info(clock)) {
                if name == "sm" {
                    let clock = &mut self.strain.sm_clock;
                    clock.observe(Instant::now(), hertz(now) as f64);
                }
                reading.push_in(profile, &m::GPU_CLOCK, &labels, hertz(now));
            }
        }
        self.highest_clocks(device, reading);
        let reasons = self.calls.ask(("clock_events", Of::Gpu), || {
            device.current_throttle_reasons()
        });
        if let Some(reasons) = reasons {
            for (name, reason, profile) in CLOCK_EVENTS {
                let labels = self.labels.with(name);
                reading.push_in(
                    profile,
                    &m::GPU_CLOCK_EVENT,
                    &labels,
                    reasons.contains(reason),
                );
            }
        }
    }

    /// Also returns the energy counter.
    fn power_and_heat(&mut self, device: &Device<'_>, reading: &mut NodeReading) -> Option<u64> {
        let (labels, calls) = (&self.labels, &mut self.calls);
        calls.section("power_and_heat");
        if let Some(milliwatts) = calls.ask(("power", Of::Gpu), || device.power_usage()) {
            let watts = f64::from(milliwatts) / MILLIS;
            self.strain.power.observe(Instant::now(), watts);
            reading.push(&m::GPU_POWER, labels, watts);
        }
        if let Some(milliwatts) =
            calls.ask(("power_limit", Of::Gpu), || device.enforced_power_limit())
        {
            reading.push(&m::GPU_POWER_LIMIT, labels, f64::from(milliwatts) / MILLIS);
        }
        let energy = calls.ask(("energy", Of::Gpu), || device.total_energy_consumption());
        if let Some(millijoules) = energy {
            reading.push(&m::GPU_ENERGY, labels, millijoules as f64 / MILLIS);
        }
        let celsius = calls.ask(("temperature", Of::Gpu), || {
            device.temperature(TemperatureSensor::Gpu)
        });
        if let Some(celsius) = celsius {
            reading.push(&m::GPU_TEMPERATURE, &labels.with("gpu"), celsius);
        }
        for (call, limit, threshold) in [
            ("limit_slowdown", "slowdown", TemperatureThreshold::Slowdown),
            ("limit_shutdown", "shutdown", TemperatureThreshold::Shutdown),
        ] {
            let celsius = calls.ask((call, Of::Gpu), || device.temperature_threshold(threshold));
            if let Some(celsius) = celsius {
                reading.push(&m::GPU_TEMPERATURE_LIMIT, &labels.with(limit), celsius);
            }
        }
        let margin = calls.ask(("temperature_margin", Of::Feature), || {
            temperature_margin(device)
        });
        if let Some(celsius) = margin {
            reading.push(&m::GPU_TEMPERATURE_MARGIN, labels, f64::from(celsius));
        }
        energy
    }

    fn memory(&mut self, device: &Device<'_>, reading: &mut NodeReading) {
        let (labels, calls) = (&self.labels, &mut self.calls);
        calls.section("memory");
        let second = calls.ask(("memory_v2", Of::Gpu), || device.memory_info());
        if let Some(memory) = &second {
            reading.push(&m::GPU_MEMORY_RESERVED, labels, memory.reserved);
        }
        let total_and_free = second
            .map(|memory| (memory.total, memory.free))
            .or_else(|| calls.ask(("memory", Of::Gpu), || memory_total_and_free(device)));
        if let Some((total, free)) = total_and_free {
            // Both versions of the call agree on what is free. What "used" holds differs between them, and
            // the header contradicts itself about the second.
            reading.push(&m::GPU_MEMORY_USED, labels, total.saturating_sub(free));
            reading.push(&m::GPU_MEMORY_SIZE, labels, total);
        }
        if let Some(mode) = calls.ask(("ecc_mode", Of::Gpu), || device.is_ecc_enabled()) {
            reading.push(&m::GPU_ECC_ENABLED, labels, mode.currently_enabled);
        }
        for (call, severity, kind, span, metric) in ECC_ERRORS {
            let errors = calls.ask((call, Of::Gpu), || device.total_ecc_errors(kind, span));
            if let Some(errors) = errors {
                reading.push(metric, &labels.with(severity), errors);
            }
        }
        if let Some(bar1) = calls.ask(("bar1", Of::Feature), || device.bar1_memory_info()) {
            reading.push(&m::GPU_BAR1_USED, labels, bar1.used);
            reading.push(&m::GPU_BAR1_SIZE, labels, bar1.total);
        }
    }

    fn pcie(&mut self, device: &Device<'_>, reading: &mut NodeReading) {
        let calls = &mut self.calls;
        calls.section("pcie_link");
        // Never `pcie_throughput`: it blocks for 20 ms a direction and GPU.
        let values = [
            (
                &m::GPU_PCIE_REPLAYS,
                calls.ask(("pcie_replays", Of::Gpu), || device.pcie_replay_counter()),
            ),
            (
                &m::GPU_PCIE_LINK_GENERATION,
                calls.ask(("pcie_generation", Of::Gpu), || {
                    device.current_pcie_link_gen()
                }),
            ),
            (
                &m::GPU_PCIE_LINK_WIDTH,
                calls.ask(("pcie_width", Of::Gpu), || device.current_pcie_link_width()),
            ),
            (
                &m::GPU_PCIE_LINK_WIDTH_MAX,
                calls.ask(("pcie_width_max", Of::Gpu), || device.max_pcie_link_width()),
            ),
        ];
        for (metric, value) in values {
            if let Some(value) = value {
                reading.push(metric, &self.labels, value);
            }
        }
    }
}

fn hertz(megahertz: u32) -> u64 {
    u64::from(megahertz) * HERTZ_PER_MEGAHERTZ
}

/// The NUMA node that the GPU is connected to, as text.
fn numa_node(device: &Device<'_>) -> Result<String, NvmlError> {
    let set = device.memory_affinity(NODE_SET_WORDS, AFFINITY_SCOPE_NODE)?;
    let bits = u64::BITS as usize;
    let first = set
        .iter()
        .position(|word| *word != 0)
        .ok_or(NvmlError::NoData)?;
    let node = first * bits + set[first].trailing_zeros() as usize;
    Ok(node.to_string())
}
