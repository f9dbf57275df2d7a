//! Where a GPU stands: in the NVLink fabric, in the rack, and between host and guests.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{GpuVirtualizationMode, HostVgpuMode};
use railscope_model::metric as m;
use railscope_model::reading::{Labels, NodeReading};

use super::calls::{Calls, Of};
use super::structs::{Fabric, Platform, fabric, module_id, platform};

/// `NVML_GPU_FABRIC_STATE_COMPLETED`; 0 is "not supported".
const COMPLETED: u8 = 3;

/// Two-bit fields of the health mask by their first bit: 1 is true, 2 is false, 0 is "not supported".
const HEALTH: [(&str, u32); 4] = [
    ("degraded_bandwidth", 0),
    ("route_recovery", 2),
    ("route_unhealthy", 4),
    ("access_timeout", 6),
];
/// The four bits of the health mask that report what is wrongly configured: 0 is "not supported", 1 is
/// nothing.
const CONFIGURATION_SHIFT: u32 = 8;
const CONFIGURATIONS: [(&str, u32); 4] = [
    ("system_guid", 2),
    ("chassis_serial", 3),
    ("no_partition", 4),
    ("insufficient_nvlinks", 5),
];

/// Constant while the driver is loaded, read once.
#[derive(Debug, Default)]
pub(super) struct Place {
    platform: Option<Labels>,
    virtualization: Option<(GpuVirtualizationMode, Labels)>,
}

impl Place {
    /// Adds where the GPU stands.
    pub(super) fn sample(
        &mut self,
        device: &Device<'_>,
        gpu: &Labels,
        calls: &mut Calls,
        reading: &mut NodeReading,
    ) {
        calls.section("place");
        if let Some(fabric) = calls.ask(("fabric", Of::Feature), || fabric(device)) {
            push_fabric(&fabric, gpu, reading);
        }
        if self.platform.is_none() {
            self.platform = ask_platform(device, gpu, calls);
        }
        if self.virtualization.is_none() {
            self.virtualization = ask_virtualization(device, gpu, calls);
        }
        if let Some(labels) = &self.platform {
            reading.push(&m::GPU_PLATFORM, labels, true);
        }
        if let Some((_, labels)) = &self.virtualization {
            reading.push(&m::GPU_VIRTUALIZATION, labels, true);
        }
    }

    /// How the GPU is given to guests, once it is known.
    pub(super) fn virtualization_mode(&self) -> Option<&GpuVirtualizationMode> {
        self.virtualization.as_ref().map(|(mode, _)| mode)
    }
}

fn push_fabric(fabric: &Fabric, gpu: &Labels, reading: &mut NodeReading) {
    if fabric.state == 0 {
        return;
    }
    reading.push(&m::GPU_FABRIC_STATE, gpu, u32::from(fabric.state));
    if fabric.state == COMPLETED {
        // Before that, neither reports anything.
        let labels = gpu.with(uuid(fabric.cluster_uuid)).with(fabric.clique);
        reading.push(&m::GPU_FABRIC_STATUS, gpu, fabric.status);
        reading.push(&m::GPU_FABRIC, &labels, true);
    }
    for (cause, shift) in HEALTH {
        let told = match fabric.health_mask >> shift & 0b11 {
            1 => true,
            2 => false,
            _ => continue,
        };
        reading.push(&m::GPU_FABRIC_UNHEALTHY, &gpu.with(cause), told);
    }
    let configuration = fabric.health_mask >> CONFIGURATION_SHIFT & 0b1111;
    if configuration != 0 {
        for (cause, code) in CONFIGURATIONS {
            let labels = gpu.with(cause);
            reading.push(&m::GPU_FABRIC_UNHEALTHY, &labels, configuration == code);
        }
    }
}

/// 16 bytes in the order in which they are printed.
fn uuid(bytes: [u8; 16]) -> String {
    let hex = hex(&bytes);
    let groups = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    groups.join("-")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn ask_platform(device: &Device<'_>, gpu: &Labels, calls: &mut Calls) -> Option<Labels> {
    let platform = calls.ask(("platform", Of::Feature), || platform(device));
    let values = match platform {
        Some(platform) => platform_values(&platform),
        // HGX boards know the socket of a GPU and nothing of the rack.
        None => {
            let module = calls.ask(("module", Of::Feature), || module_id(device))?;
            let mut values: [String; 7] = Default::default();
            values[5] = module.to_string();
            values
        }
    };
    Some(
        values
            .into_iter()
            .fold(gpu.clone(), |labels, value| labels.with(value)),
    )
}

/// Label values in the order of the metric.
fn platform_values(platform: &Platform) -> [String; 7] {
    let serial = platform.chassis_serial;
    let serial = serial.iter().take_while(|byte| byte.is_ascii_graphic());
    // Blackwell's GUID has 8 bytes, the rest is zero.
    let guid = match platform.fabric_guid {
        [0, 0, 0, 0, 0, 0, 0, 0, ..] => String::new(),
        guid => format!("0x{}", hex(&guid[..8])),
    };
    [
        serial.map(|byte| char::from(*byte)).collect(),
        platform.slot.to_string(),
        platform.tray.to_string(),
        platform.host.to_string(),
        // NVIDIA documents no meaning of the number.
        platform.peer_type.to_string(),
        platform.module.to_string(),
        guid,
    ]
}

fn ask_virtualization(
    device: &Device<'_>,
    gpu: &Labels,
    calls: &mut Calls,
) -> Option<(GpuVirtualizationMode, Labels)> {
    let mode = calls.ask(("virtualization", Of::Feature), || {
        device.virtualization_mode()
    })?;
    let name = match mode {
        GpuVirtualizationMode::Bare => "none",
        GpuVirtualizationMode::PassThrough => "passthrough",
        GpuVirtualizationMode::Vgpu => "vgpu",
        GpuVirtualizationMode::HostVgpu => "host_vgpu",
        GpuVirtualizationMode::HostVsga => "host_vsga",
    };
    let host = match name {
        "host_vgpu" => calls.ask(("host_vgpu_mode", Of::Feature), || device.vgpu_host_mode()),
        _ => None,
    };
    let host = match host {
        Some(HostVgpuMode::Sriov) => "sriov",
        Some(HostVgpuMode::NonSriov) => "non_sriov",
        None => "",
    };
    Some((mode, gpu.with(name).with(host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The health mask's causes that are reported, with `!` where they are known to be false.
    fn unhealthy(state: u8, health_mask: u32) -> String {
        let fabric = Fabric {
            cluster_uuid: [0xab; 16],
            clique: 7,
            state,
            status: 0,
            health_mask,
        };
        let mut reading = NodeReading::default();
        push_fabric(&fabric, &Labels::new(["0"]), &mut reading);
        let causes = reading
            .samples()
            .iter()
            .filter(|sample| *sample.metric == m::GPU_FABRIC_UNHEALTHY);
        let words = causes.map(|sample| {
            let cause = sample.labels.values().last().unwrap_or_default();
            let not = if sample.value.as_f64() == 0.0 {
                "!"
            } else {
                ""
            };
            format!("{not}{cause}")
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn only_what_the_health_mask_supports_is_told() {
        for (mask, told) in [
            (0, ""),
            (0b01, "degraded_bandwidth"),
            (0b10_00, "!route_recovery"),
            (0b01_10_00_00, "!route_unhealthy access_timeout"),
            (
                0x500,
                "!system_guid !chassis_serial !no_partition insufficient_nvlinks",
            ),
            (
                0x100,
                "!system_guid !chassis_serial !no_partition !insufficient_nvlinks",
            ),
        ] {
            assert_eq!(unhealthy(COMPLETED, mask), told, "{mask:#b}");
        }
        assert_eq!(unhealthy(0, 0b01), "", "a board without a fabric");
    }

    #[test]
    fn a_platform_is_told_in_the_order_of_its_labels() {
        let mut platform = Platform {
            fabric_guid: [0; 16],
            chassis_serial: *b"1820124001234\0\0\0",
            slot: 3,
            tray: 4,
            host: 1,
            peer_type: 1,
            module: 2,
        };
        let none = ["1820124001234", "3", "4", "1", "1", "2", ""];
        assert_eq!(platform_values(&platform), none);
        platform.fabric_guid[..8].copy_from_slice(&[0x12, 0x34, 0, 0, 0, 0, 0, 1]);
        assert_eq!(platform_values(&platform)[6], "0x1234000000000001");
        assert_eq!(uuid([0x0f; 16]), "0f0f0f0f-0f0f-0f0f-0f0f-0f0f0f0f0f0f");
    }
}
