//! What single rows of the built-in mappings make of expositions as their exporters serve them, with a fault and without.

use super::*;
use railscope_model::fabric::Timestamp;

use crate::store::source_id::Subject;

/// Series of one metric: part, labels and value, sorted.
fn series(kind: &str, page: &str, metric: &str) -> Vec<String> {
    let mapping = Mappings::default().by_kind(kind).cloned().expect(kind);
    let node = Subject::Node("n1".parse().expect("a name"));
    let about = (!mapping.names_its_subjects()).then_some(node);
    let read = Translator::new(mapping, about).translate(page, Timestamp(1_000));
    assert_eq!(read.unfit.as_deref(), None, "{page}");
    assert_eq!(read.counts.errors.len(), 0, "{page}");
    let mut lines = Vec::new();
    for (subject, reading) in &read.readings {
        let samples = reading.samples().iter();
        for sample in samples.filter(|sample| sample.metric.name == metric) {
            let mut line = subject.to_string();
            for (name, value) in sample.metric.labels.iter().zip(sample.labels.values()) {
                line += &format!(" {name}={value}");
            }
            lines.push(format!("{line}: {}", sample.value.as_f64()));
        }
    }
    lines.sort();
    lines
}

/// Labels of a GPU in dcgm-exporter.
const DCGM_GPU: &str = "gpu=\"0\",UUID=\"GPU-6a1f0c52\",pci_bus_id=\"00000000:1B:00.0\",device=\"nvidia0\",modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"gpu-n1\"";

#[test]
fn dcgm_exporter_counts_xids_from_the_first_one_on() {
    let metric = "railscope_gpu_xid_events_total";
    let healthy = format!(
        "# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.\n\
         # TYPE DCGM_FI_DEV_XID_ERRORS gauge\n\
         DCGM_FI_DEV_XID_ERRORS{{{DCGM_GPU}}} 0\n"
    );
    assert!(series("dcgm-exporter", &healthy, metric).is_empty());
    let faulty = format!(
        "{healthy}# HELP DCGM_EXP_XID_ERRORS_TOTAL cumulative XID errors observed since exporter start\n\
         # TYPE DCGM_EXP_XID_ERRORS_TOTAL counter\n\
         DCGM_EXP_XID_ERRORS_TOTAL{{{DCGM_GPU},xid=\"79\"}} 1\n\
         DCGM_EXP_XID_ERRORS_TOTAL{{{DCGM_GPU},xid=\"94\"}} 4\n"
    );
    assert_eq!(
        series("dcgm-exporter", &faulty, metric),
        [
            "n1 gpu=0 xid=79 source=dcgm: 1",
            "n1 gpu=0 xid=94 source=dcgm: 4"
        ]
    );
}

#[test]
fn nvlink_errors_of_a_gpu_are_the_sum_of_its_links_unless_the_total_is_exported() {
    let line = |name: &str, labels: &str, value: u32| {
        format!(
            "# TYPE DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_{name} counter\n\
             DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_{name}{{{DCGM_GPU}{labels}}} {value}\n"
        )
    };
    let links = |labels: &str, first: u32, second: u32| {
        line("L0", labels, first) + &line("L1", labels, second)
    };
    let gpu = "railscope_gpu_nvlink_errors_total";
    for (page, expected) in [
        (links("", 0, 0), &["n1 gpu=0 kind=replay: 0"][..]),
        (links("", 3, 4), &["n1 gpu=0 kind=replay: 7"]),
        // One pod that has the GPU alone.
        (
            links(",pod=\"train-0\"", 3, 4),
            &["n1 gpu=0 kind=replay: 7"],
        ),
        (
            links("", 3, 4) + &line("TOTAL", "", 9),
            &["n1 gpu=0 kind=replay: 9"],
        ),
        (
            line("TOTAL", "", 9) + &links("", 3, 4),
            &["n1 gpu=0 kind=replay: 9"],
        ),
        // Copies for two jobs, or two pods, that share the GPU are not added.
        (
            links(",hpc_job=\"1\"", 3, 4) + &links(",hpc_job=\"2\"", 3, 4),
            &[],
        ),
        (
            links(",pod=\"a\",vgpu=\"0\"", 3, 4) + &links(",pod=\"b\",vgpu=\"1\"", 3, 4),
            &[],
        ),
    ] {
        assert_eq!(series("dcgm-exporter", &page, gpu), expected, "{page}");
        let by_link = series("dcgm-exporter", &page, "railscope_nvlink_errors_total");
        assert_eq!(by_link.len(), 2, "{page}");
    }
}

#[test]
fn dcgm_s_health_check_of_memory_states_row_remaps_where_their_fields_are_missing() {
    let page = |code: &str, value: u32| -> String {
        let watches = [
            "PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER",
        ];
        let lines = watches.map(|watch| {
            let (code, value) = match watch {
                "MEM" => (code, value),
                _ => ("DCGM_FR_OK", 0),
            };
            format!(
                "DCGM_EXP_GPU_HEALTH_STATUS{{{DCGM_GPU},health_error_code=\"{code}\",health_watch=\"{watch}\"}} {value}\n"
            )
        });
        format!(
            "# TYPE DCGM_EXP_GPU_HEALTH_STATUS gauge\n{}",
            lines.concat()
        )
    };
    let field = |value: u32| format!("DCGM_FI_DEV_ROW_REMAP_PENDING{{{DCGM_GPU}}} {value}\n");
    for (page, pending, failed) in [
        (
            page("DCGM_FR_OK", 0),
            &["n1 gpu=0: 0"][..],
            &["n1 gpu=0: 0"][..],
        ),
        (page("DCGM_FR_PENDING_ROW_REMAP", 10), &["n1 gpu=0: 1"], &[]),
        (page("DCGM_FR_ROW_REMAP_FAILURE", 20), &[], &["n1 gpu=0: 1"]),
        // Another code does not state whether a remap is pending.
        (page("DCGM_FR_VOLATILE_DBE_DETECTED", 20), &[], &[]),
        // The field is more precise.
        (
            page("DCGM_FR_OK", 0) + &field(1),
            &["n1 gpu=0: 1"],
            &["n1 gpu=0: 0"],
        ),
        (
            page("DCGM_FR_PENDING_ROW_REMAP", 10) + &field(0),
            &["n1 gpu=0: 0"],
            &[],
        ),
    ] {
        for (metric, expected) in [
            ("railscope_gpu_row_remap_pending", pending),
            ("railscope_gpu_row_remap_failed", failed),
        ] {
            assert_eq!(
                series("dcgm-exporter", &page, metric),
                expected,
                "{metric}\n{page}"
            );
        }
    }
}

#[test]
fn a_port_of_cumulus_is_disabled_if_its_interface_is_set_down() {
    // Flags of an interface that is up, that is up without carrier, and that was set down.
    let page = "# TYPE nvswitch_interface_flags gauge\n\
        nvswitch_interface_flags{interface=\"swp1\",net_host_name=\"leaf01\"} 69699\n\
        nvswitch_interface_flags{interface=\"swp2\",net_host_name=\"leaf01\"} 4099\n\
        nvswitch_interface_flags{interface=\"swp3\",net_host_name=\"leaf01\"} 4098\n\
        # TYPE nvswitch_interface_carrier_changes_total gauge\n\
        nvswitch_interface_carrier_changes_total{interface=\"swp1\",net_host_name=\"leaf01\"} 1\n\
        nvswitch_interface_carrier_changes_total{interface=\"swp2\",net_host_name=\"leaf01\"} 8\n";
    assert_eq!(
        series("cumulus-otlp", page, "railscope_switch_port_enabled"),
        [
            "leaf01 port=swp1: 1",
            "leaf01 port=swp2: 1",
            "leaf01 port=swp3: 0"
        ]
    );
    assert_eq!(
        series(
            "cumulus-otlp",
            page,
            "railscope_switch_port_carrier_changes_total"
        ),
        ["leaf01 port=swp1: 1", "leaf01 port=swp2: 8"]
    );
}

#[test]
fn a_fork_of_infiniband_exporter_lists_ports_that_are_down() {
    let page = "# TYPE infiniband_switch_info gauge\n\
        infiniband_switch_info{guid=\"0xb83fd20300a1c0e0\",lid=\"12\",switch=\"MF0;leaf-01:MQM9700/U1\"} 1\n\
        # TYPE infiniband_switch_port_state gauge\n\
        infiniband_switch_port_state{guid=\"0xb83fd20300a1c0e0\",port=\"1\",switch=\"MF0;leaf-01:MQM9700/U1\"} 1\n\
        infiniband_switch_port_state{guid=\"0xb83fd20300a1c0e0\",port=\"33\",switch=\"MF0;leaf-01:MQM9700/U1\"} 0\n\
        # TYPE infiniband_switch_uplink_info gauge\n\
        infiniband_switch_uplink_info{guid=\"0xb83fd20300a1c0e0\",port=\"1\",switch=\"MF0;leaf-01:MQM9700/U1\",uplink=\"n1 mlx5_0\",uplink_guid=\"0xb83fd20300b00001\",uplink_lid=\"101\",uplink_port=\"1\",uplink_type=\"CA\"} 1\n";
    assert_eq!(
        series("infiniband_exporter", page, "railscope_switch_port_up"),
        ["leaf-01 port=1: 1", "leaf-01 port=33: 0"]
    );
}

/// A metric of SR Linux behind its prefix, and what its value 1 becomes.
const SR_LINUX: &[(&str, &str, &str)] = &[
    (
        "oper_state",
        "railscope_switch_port_up",
        "leaf1 port=ethernet-1/1: 1",
    ),
    (
        "statistics_in_octets",
        "railscope_switch_port_receive_bytes_total",
        "leaf1 port=ethernet-1/1: 1",
    ),
    (
        "statistics_out_octets",
        "railscope_switch_port_transmit_bytes_total",
        "leaf1 port=ethernet-1/1: 1",
    ),
    (
        "statistics_in_packets",
        "railscope_switch_port_receive_packets_total",
        "leaf1 port=ethernet-1/1: 1",
    ),
    (
        "statistics_out_packets",
        "railscope_switch_port_transmit_packets_total",
        "leaf1 port=ethernet-1/1: 1",
    ),
    (
        "statistics_in_error_packets",
        "railscope_switch_port_errors_total",
        "leaf1 port=ethernet-1/1 kind=receive: 1",
    ),
    (
        "statistics_out_error_packets",
        "railscope_switch_port_errors_total",
        "leaf1 port=ethernet-1/1 kind=transmit: 1",
    ),
    (
        "statistics_in_discarded_packets",
        "railscope_switch_port_discards_total",
        "leaf1 port=ethernet-1/1 direction=receive: 1",
    ),
    (
        "statistics_out_discarded_packets",
        "railscope_switch_port_discards_total",
        "leaf1 port=ethernet-1/1 direction=transmit: 1",
    ),
    (
        "statistics_carrier_transitions",
        "railscope_switch_port_carrier_changes_total",
        "leaf1 port=ethernet-1/1: 1",
    ),
];

#[test]
fn series_of_sr_linux_s_own_model_are_those_of_ports() {
    for prefix in ["", "gnmic_srl_if_stats_"] {
        for (name, metric, expected) in SR_LINUX {
            let name = format!("{prefix}srl_nokia_interfaces_interface_{name}");
            let line = |interface: &str| {
                format!(
                    "{name}{{interface_name=\"{interface}\",source=\"leaf1:57400\",subscription_name=\"srl-if-stats\"}} 1\n"
                )
            };
            let ports = ["ethernet-1/1", "mgmt0", "lag1", "irb0", "lo0", "system0"];
            let page = format!(
                "# HELP {name} gNMIc generated metric\n# TYPE {name} untyped\n{}",
                ports.map(line).concat()
            );
            let recognized = Mappings::default().recognize(&page);
            let Some(Recognized::Foreign(mapping)) = recognized else {
                unreachable!("{name}: {recognized:?}");
            };
            assert_eq!(&*mapping.kind, "gnmic");
            assert_eq!(series("gnmic", &page, metric), [*expected], "{page}");
        }
    }
}

#[test]
fn the_state_of_a_port_of_sr_linux_is_a_number_or_a_label() {
    for (labels, value, expected) in [
        ("", 1, 1),
        ("", 0, 0),
        ("", 2, 0),
        (",oper_state=\"up\"", 1, 1),
        (",oper_state=\"down\"", 1, 0),
    ] {
        let page = format!(
            "srl_nokia_interfaces_interface_oper_state{{interface_name=\"ethernet-1/10\",source=\"leaf1\",subscription_name=\"srl-if-stats\"{labels}}} {value}\n"
        );
        assert_eq!(
            series("gnmic", &page, "railscope_switch_port_up"),
            [format!("leaf1 port=ethernet-1/10: {expected}")],
            "{page}"
        );
    }
}

#[test]
fn nvitop_s_gpus_are_read_and_its_instances_of_mig_are_not() {
    let page = |index: &str, uuid: &str| {
        format!(
            "# HELP gpu_temperature_C GPU temperature (C).\n\
             # TYPE gpu_temperature_C gauge\n\
             gpu_temperature_C{{devicename=\"NVIDIA H100 80GB HBM3\",hostname=\"10.0.0.1\",index=\"{index}\",uuid=\"{uuid}\"}} 61.0\n"
        )
    };
    let metric = "railscope_gpu_temperature_celsius";
    let gpu = page("3", "GPU-6a1f0c52");
    assert_eq!(series("nvitop", &gpu, metric), ["n1 gpu=3 sensor=gpu: 61"]);
    let instance = page("3:1", "MIG-5c1f3a7e");
    assert!(series("nvitop", &instance, metric).is_empty());
}
