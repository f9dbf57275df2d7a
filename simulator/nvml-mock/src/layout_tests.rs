//! Our structs have the memory layout of nvml.h; the reference is the bindgen output of nvml-wrapper-sys.

use std::mem::{align_of, offset_of, size_of};

use nvml_wrapper_sys::bindings as nvml;

use crate::{fabric, ffi, gpm, newer, prm, vgpu};

/// Compares the size, the alignment and the place of every field.
macro_rules! same_layout {
    ($test:ident, $ours:ty, $theirs:ty { $( $field:ident => $their_field:ident, )* }) => {
        #[test]
        fn $test() {
            assert_eq!(size_of::<$ours>(), size_of::<$theirs>(), "size");
            assert_eq!(align_of::<$ours>(), align_of::<$theirs>(), "alignment");
            $( assert_eq!(
                offset_of!($ours, $field),
                offset_of!($theirs, $their_field),
                concat!("offset of ", stringify!($their_field)),
            ); )*
        }
    };
}

same_layout!(
    pci_info,
    ffi::PciInfo,
    nvml::nvmlPciInfo_t {
        bus_id_legacy => busIdLegacy,
        domain => domain,
        bus => bus,
        device => device,
        pci_device_id => pciDeviceId,
        pci_subsystem_id => pciSubSystemId,
        bus_id => busId,
    }
);
same_layout!(
    utilization,
    ffi::Utilization,
    nvml::nvmlUtilization_t { gpu => gpu, memory => memory, }
);
same_layout!(
    memory,
    ffi::Memory,
    nvml::nvmlMemory_t { total => total, free => free, used => used, }
);
same_layout!(
    memory_v2,
    newer::MemoryV2,
    nvml::nvmlMemory_v2_t {
        version => version,
        total => total,
        reserved => reserved,
        free => free,
        used => used,
    }
);
same_layout!(
    bar1,
    ffi::Bar1Memory,
    nvml::nvmlBAR1Memory_t {
        total => bar1Total,
        free => bar1Free,
        used => bar1Used,
    }
);
same_layout!(
    process_info,
    ffi::ProcessInfo,
    nvml::nvmlProcessInfo_t {
        pid => pid,
        used_gpu_memory => usedGpuMemory,
        gpu_instance_id => gpuInstanceId,
        compute_instance_id => computeInstanceId,
    }
);
same_layout!(
    violation_time,
    ffi::ViolationTime,
    nvml::nvmlViolationTime_t {
        reference_time => referenceTime,
        violation_time => violationTime,
    }
);
same_layout!(
    temperature,
    newer::Temperature,
    nvml::nvmlTemperature_t {
        version => version,
        sensor_type => sensorType,
        temperature => temperature,
    }
);
same_layout!(
    margin_temperature,
    newer::MarginTemperature,
    nvml::nvmlMarginTemperature_t {
        version => version,
        margin_temperature => marginTemperature,
    }
);
same_layout!(
    fabric_info,
    fabric::FabricInfo,
    nvml::nvmlGpuFabricInfo_t {
        cluster_uuid => clusterUuid,
        status => status,
        clique_id => cliqueId,
        state => state,
    }
);
same_layout!(
    fabric_info_v2,
    fabric::FabricInfoV2,
    nvml::nvmlGpuFabricInfo_v2_t {
        version => version,
        cluster_uuid => clusterUuid,
        status => status,
        clique_id => cliqueId,
        state => state,
        health_mask => healthMask,
    }
);
same_layout!(
    fabric_info_v3,
    fabric::FabricInfoV3,
    nvml::nvmlGpuFabricInfo_v3_t {
        version => version,
        cluster_uuid => clusterUuid,
        status => status,
        clique_id => cliqueId,
        state => state,
        health_mask => healthMask,
        health_summary => healthSummary,
    }
);
same_layout!(
    event_data,
    ffi::EventData,
    nvml::nvmlEventData_t {
        device => device,
        event_type => eventType,
        event_data => eventData,
        gpu_instance_id => gpuInstanceId,
        compute_instance_id => computeInstanceId,
    }
);
same_layout!(
    gpm_support,
    ffi::GpmSupport,
    nvml::nvmlGpmSupport_t {
        version => version,
        is_supported_device => isSupportedDevice,
    }
);
same_layout!(
    field_value,
    ffi::FieldValue,
    nvml::nvmlFieldValue_t {
        field_id => fieldId,
        scope_id => scopeId,
        timestamp => timestamp,
        latency_usec => latencyUsec,
        value_type => valueType,
        nvml_return => nvmlReturn,
        value => value,
    }
);

#[test]
fn a_short_value_lies_where_the_union_keeps_it() {
    let bytes = crate::fields::low_bytes(0x0102_0304_u32.to_ne_bytes());
    let union = nvml::nvmlValue_t { ullVal: bytes };
    // SAFETY: all eight bytes are initialized, and every pattern of four is a u32.
    assert_eq!(unsafe { union.uiVal }, 0x0102_0304);
}

same_layout!(
    platform_info,
    newer::PlatformInfo,
    nvml::nvmlPlatformInfo_v2_t {
        version => version,
        ib_guid => ibGuid,
        chassis_serial_number => chassisSerialNumber,
        slot_number => slotNumber,
        tray_index => trayIndex,
        host_id => hostId,
        peer_type => peerType,
        module_id => moduleId,
    }
);
same_layout!(
    gpm_metric,
    gpm::Metric,
    nvml::nvmlGpmMetric_t {
        metric_id => metricId,
        nvml_return => nvmlReturn,
        value => value,
        names => metricInfo,
    }
);
same_layout!(
    gpm_metrics_get,
    gpm::MetricsGet,
    nvml::nvmlGpmMetricsGet_t {
        version => version,
        num_metrics => numMetrics,
        sample1 => sample1,
        sample2 => sample2,
        metrics => metrics,
    }
);
same_layout!(
    vgpu_license,
    vgpu::LicenseInfo,
    nvml::nvmlVgpuLicenseInfo_t {
        is_licensed => isLicensed,
        license_expiry => licenseExpiry,
        current_state => currentState,
    }
);
same_layout!(
    vgpu_license_expiry,
    vgpu::Expiry,
    nvml::nvmlVgpuLicenseExpiry_t {
        year => year,
        month => month,
        day => day,
        hour => hour,
        min => min,
        sec => sec,
        status => status,
    }
);
same_layout!(
    vgpu_scheduler,
    vgpu::SchedulerState,
    nvml::nvmlVgpuSchedulerGetState_t {
        scheduler_policy => schedulerPolicy,
        arr_mode => arrMode,
        scheduler_params => schedulerParams,
    }
);
same_layout!(
    vgpu_heterogeneous,
    vgpu::HeterogeneousMode,
    nvml::nvmlVgpuHeterogeneousMode_t { version => version, mode => mode, }
);
same_layout!(
    licensable_feature,
    vgpu::LicensableFeature,
    nvml::nvmlGridLicensableFeature_t {
        feature_code => featureCode,
        feature_state => featureState,
        license_info => licenseInfo,
        product_name => productName,
        feature_enabled => featureEnabled,
        license_expiry => licenseExpiry,
    }
);
same_layout!(
    licensable_features,
    vgpu::LicensableFeatures,
    nvml::nvmlGridLicensableFeatures_t {
        is_grid_license_supported => isGridLicenseSupported,
        licensable_features_count => licensableFeaturesCount,
        grid_licensable_features => gridLicensableFeatures,
    }
);

/// The bindings have no PRM counters: the offsets are those of nvml.h in NVIDIA/DCGM 4.6, by hand.
#[test]
fn prm_counters() {
    assert_eq!(size_of::<prm::Counter>(), 24);
    assert_eq!(align_of::<prm::Counter>(), 8);
    assert_eq!(offset_of!(prm::Counter, local_port), 4);
    assert_eq!(offset_of!(prm::Counter, status), 8);
    assert_eq!(offset_of!(prm::Counter, output_type), 12);
    assert_eq!(offset_of!(prm::Counter, output_value), 16);
    assert_eq!(size_of::<prm::CounterList>(), 16);
    assert_eq!(offset_of!(prm::CounterList, counters), 8);
}
