//! What one GPU shows under the job's load: clock, power, heat, and why its clock is throttled.

use crate::conditions::GpuCondition;
use crate::noise::Noise;
use crate::spec::products::GpuModel;

/// Step of the clock of NVIDIA's data center GPUs, MHz.
const CLOCK_STEP_MHZ: f64 = 15.0;
/// Coolant: 59 degrees at the 629 W of a captured busy H100.
const COOLANT_CELSIUS: f64 = 28.0;
/// Time in which a cold plate follows its load (an engineering estimate).
const HEAT_SECONDS: f64 = 15.0;
/// Where the hardware begins to slow the clock (`nvidia-smi -q` of A100 and H100).
const SLOWDOWN_CELSIUS: f64 = 89.0;

/// Share of the time in which the tensor cores of a GPU that computes are active (an engineering estimate:
/// dense training keeps them busy for about half of it).
const TENSOR_SHARE: f64 = 0.55;

/// Why a clock is throttled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockEvent {
    /// The power limit.
    SwPowerCap,
    /// Heat, by the hardware.
    HwThermal,
    /// The power supply, by the hardware.
    HwPowerBrake,
}

impl ClockEvent {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::SwPowerCap, Self::HwThermal, Self::HwPowerBrake];

    /// Bits of `nvmlClocksEventReasons`; the driver sets that of a slowdown by hardware too.
    pub const fn bits(self) -> u64 {
        match self {
            Self::SwPowerCap => 0x04,
            Self::HwThermal => 0x08 | 0x40,
            Self::HwPowerBrake => 0x08 | 0x80,
        }
    }
}

/// One GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// Product.
    pub model: &'static GpuModel,
    /// Clock that this chip reaches without heat, as a share of the full clock.
    pub chip_clock: f64,
    chip_watts: f64,
    chip_celsius: f64,
    /// Clock now, MHz.
    pub clock_mhz: f64,
    /// Share of the time in which a kernel ran. Waiting in a collective counts: NCCL's kernels spin.
    pub utilization: f64,
    /// Power over the last tick, W.
    pub power_watts: f64,
    /// Power that it may draw, W.
    pub limit_watts: f64,
    /// Energy since the driver was loaded, J.
    pub energy_joules: f64,
    /// Temperature of the die.
    pub temperature_celsius: f64,
    /// Why the clock is throttled now.
    pub event: Option<ClockEvent>,
    /// Time for which it has been, by reason as in [`ClockEvent::ALL`].
    pub event_seconds: [f64; 3],
    /// Share of the last tick in which tensor cores were active.
    pub tensor_active: f64,
    /// Time in which they were, s.
    pub tensor_seconds: f64,
    /// Time that it is of, s.
    pub monitored_seconds: f64,
    /// NVLinks that are up.
    pub nvlinks: u8,
    /// Whether it has fallen off its bus: it no longer responds.
    pub lost: bool,
    /// Whether a row of its memory waits for a reset to be replaced.
    pub row_remap_pending: bool,
    /// XIDs that the driver has reported since the start of the simulation, in order.
    pub xids: Vec<u16>,
}

/// What a GPU did in a stretch of time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Length of the stretch.
    pub(crate) seconds: f64,
    /// Share of it in which this GPU computed and did not wait for others; none without a job.
    pub(crate) duty: Option<f64>,
    /// Share of it in which no kernel ran although it has a job.
    pub(crate) idle: f64,
    /// What it can do.
    pub(crate) condition: GpuCondition,
}

impl Gpu {
    /// A GPU with the small offsets that every chip has, warm from work at full load.
    pub(crate) fn new(model: &'static GpuModel, noise: Noise) -> Self {
        // Chips of one kind differ by up to two clock steps, 1.5 % of power and a few degrees.
        let steps = (noise.uniform(0) * 3.0).floor();
        let mut gpu = Self {
            model,
            chip_clock: 1.0 - steps * CLOCK_STEP_MHZ / model.full_clock_mhz,
            chip_watts: 1.0 + 0.015 * noise.normal(1),
            chip_celsius: 1.5 * noise.normal(2),
            clock_mhz: model.full_clock_mhz,
            utilization: 1.0,
            power_watts: model.compute_watts,
            limit_watts: model.limit_watts,
            energy_joules: 0.0,
            temperature_celsius: 0.0,
            event: None,
            event_seconds: [0.0; 3],
            tensor_active: 0.0,
            tensor_seconds: 0.0,
            monitored_seconds: 0.0,
            nvlinks: model.nvlinks,
            lost: false,
            row_remap_pending: false,
            xids: Vec::new(),
        };
        gpu.clock_mhz *= gpu.chip_clock;
        gpu.temperature_celsius = gpu.steady_celsius(model.compute_watts);
        gpu
    }

    /// What a restart of its node leaves: counts and histories begin again.
    pub(crate) fn restart(&mut self) {
        self.energy_joules = 0.0;
        self.event_seconds = [0.0; 3];
        (self.tensor_seconds, self.monitored_seconds) = (0.0, 0.0);
        self.xids.clear();
    }

    fn steady_celsius(&self, watts: f64) -> f64 {
        COOLANT_CELSIUS + self.model.celsius_per_watt * watts + self.chip_celsius
    }

    /// Lives through a stretch of time. `jitter` is a standard normal number.
    pub(crate) fn advance(&mut self, load: Load, jitter: f64) {
        let clock = self.chip_clock * load.condition.clock;
        let GpuModel {
            full_clock_mhz,
            wait_watts,
            idle_watts,
            ..
        } = *self.model;
        let compute = self.model.watts_at(clock) * self.chip_watts;
        self.clock_mhz = (full_clock_mhz * clock / CLOCK_STEP_MHZ).round() * CLOCK_STEP_MHZ;
        let watts = load.duty.map_or(idle_watts, |duty| {
            let idle = (wait_watts - idle_watts) * load.idle;
            wait_watts + (compute - wait_watts) * duty - idle
        });
        self.power_watts = watts * (1.0 + 0.004 * jitter);
        self.utilization = load.duty.map_or(0.0, |_| 1.0 - load.idle);
        self.energy_joules += self.power_watts * load.seconds;
        self.tensor_active = TENSOR_SHARE * load.duty.unwrap_or(0.0);
        self.tensor_seconds += self.tensor_active * load.seconds;
        self.monitored_seconds += load.seconds;
        self.limit_watts = load.condition.limit_watts;
        self.event = load.condition.event;
        for (event, seconds) in ClockEvent::ALL.into_iter().zip(&mut self.event_seconds) {
            if self.event == Some(event) {
                *seconds += load.seconds;
            }
        }
        self.nvlinks = load.condition.nvlinks;
        self.lost = load.condition.lost;
        self.row_remap_pending = load.condition.row_remap_pending;
        let target = if self.event == Some(ClockEvent::HwThermal) {
            // The protection holds the chip where it begins to act, however little it computes.
            self.temperature_celsius = self.temperature_celsius.max(SLOWDOWN_CELSIUS - 1.0);
            SLOWDOWN_CELSIUS
        } else {
            self.steady_celsius(self.power_watts) + load.condition.coolant_celsius
        };
        let keep = 1.0 / (1.0 + load.seconds / HEAT_SECONDS);
        self.temperature_celsius = target + (self.temperature_celsius - target) * keep;
    }
}
