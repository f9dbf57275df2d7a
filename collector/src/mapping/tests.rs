//! Which mapping files are accepted and the error messages for the others; scrapes that change while they
//! are read.

use super::*;
use railscope_model::fabric::Timestamp;
use railscope_model::metric::{
    CPU_MAX_FREQUENCY, CPU_THROTTLES, FAN_SPEED, GPU_UTILIZATION, Metric, NODE_POWER_ON,
    PCIE_LINK_WIDTH, SENSOR_ALARM, SENSOR_TEMPERATURE, SOFTNET_DROPPED, WORKLOAD,
};

use crate::config::Target;
use crate::store::source_id::Subject;

fn parse(text: &str) -> Result<Mapping, ConfigError> {
    file::parse(text, Path::new("etc/site.toml"))
}

#[test]
fn every_mapping_that_comes_with_railscope_can_be_read_and_keeps_its_place() {
    for (name, text) in BUILT_IN {
        let read = file::parse(text, Path::new(name));
        assert!(read.is_ok(), "{}", read.expect_err("an error"));
    }
    let kinds: Vec<_> = Mappings::default().kinds().map(str::to_owned).collect();
    assert_eq!(
        kinds,
        [
            "railscope",
            "dcgm-exporter",
            "amd-device-metrics-exporter",
            "nvidia_gpu_exporter",
            "nvitop",
            "rdma_exporter",
            "node_exporter",
            "amazonefa",
            "ipmi_exporter",
            "infiniband_exporter",
            "snmp_exporter",
            "gnmic",
            "cumulus-otlp",
            "sonic-exporter",
            "nmx-telemetry"
        ]
    );
}

const HEAD: &str = "kind = \"site\"\n";

/// Texts behind the kind, and what is reported about them.
const WRONG: &[(&str, &str)] = &[
    ("", "1:1: missing field `row`"),
    (
        "[[row]]\nfrom = \"a\"\nto = \"railscope_gpu_clock_herz\"",
        "4:6: row[0].to: no metric \"railscope_gpu_clock_herz\": expected one that METRICS.md lists for nodes or switches; did you mean `railscope_gpu_clock_hertz`?",
    ),
    (
        "[[row]]\nfrom = \"a\"\nto = \"railscope_incident_active\"",
        "4:6: row[0].to: railscope_incident_active is the collector's own: expected a metric of nodes or switches",
    ),
    (
        "[[row]]\nfrom = \"a\"\nto = \"railscope_host_timer_delay_seconds\"",
        "4:6: row[0].to: railscope_host_timer_delay_seconds is a histogram: expected a counter, gauge or info",
    ),
    (
        "[[row]]\nfrom = \"a\"\nto = \"railscope_gpu_clock_hertz\"",
        "4:6: row[0].unit: missing; railscope_gpu_clock_hertz counts hertz: expected \"Hz\", \"MHz\"",
    ),
    (
        "[[row]]\nfrom = \"a\"\nto = \"railscope_gpu_clock_hertz\"\nunit = \"MiB\"",
        "5:8: row[0].unit: \"MiB\" does not fit: railscope_gpu_clock_hertz counts hertz: expected \"Hz\", \"MHz\"",
    ),
    (
        "[[row]]\nfrom = \"a(\"\nto = \"railscope_gpu_row_remap_failed\"",
        "3:8: row[0].from: \"a(\" is no regular expression: unclosed group",
    ),
    (
        "[[row]]\nfrom = \"a\"\nto = \"railscope_gpu_row_remap_failed\"\nlabels.gpus = \"0\"",
        "5:8: row[0].labels.gpus: railscope_gpu_row_remap_failed has no such label: expected gpu; did you mean `gpu`?",
    ),
    (
        "[[row]]\nfrom = \"a\"\nto = \"railscope_gpu_row_remap_failed\"\nlabels.gpu = { label = \"g\", value = \"$1\" }",
        "5:14: row[0].labels.gpu: value without regex: expected the regex whose groups it uses",
    ),
    (
        "[[row]]\nfrom = \"a\"\nto = \"railscope_gpu_row_remap_failed\"\nlabels.gpu = { label = \"g\", as = \"uuid\" }",
        "5:14: row[0].labels.gpu: as = \"uuid\": expected \"pci\" or \"guid\"",
    ),
    (
        "[[row]]\nfrom = \"a\"\nto = \"railscope_gpu_row_remap_failed\"\nlabels.gpu = { label = \"g\", numbers = [\"a\", \"b\", \"c\"] }",
        "5:14: row[0].labels.gpu: numbers without as = \"pci\": they are those of a PCI address",
    ),
    (
        "[[row]]\nfrom = \"a\"\nto = \"railscope_gpu_row_remap_failed\"\nequals = 1\nbit = 2",
        "6:7: row[0].bit: a second rule for the value: expected one of equals, bit, numbers, in_label, label_is",
    ),
    (
        "[[row]]\nfrom = \"a\"\nto = \"railscope_gpu_row_remap_failed\"\nbit = 60",
        "5:7: row[0].bit: 60: expected 0 to 52, the bits that a value holds exactly",
    ),
    (
        "[[row]]\nfrom = \"a\"\nto = \"railscope_gpu_row_remap_failed\"\nsum = true\nmax = true",
        "6:7: row[0].max: a second rule for several values: expected one of sum, max, min",
    ),
    (
        "[[row]]\nfrom = \"a\"\nto = \"railscope_gpu_pcie_replays_total\"\nabsent = 0",
        "5:10: row[0].absent: railscope_gpu_pcie_replays_total is no gauge: what is absent has no value",
    ),
    (
        "[[row]]\nfrom = \"a\"\nto = \"railscope_gpu_row_remap_failed\"\ntype = \"summary\"",
        "5:8: row[0].type: \"summary\": expected \"counter\", \"gauge\" or \"any\"",
    ),
    (
        "[[join]]\nfrom = \"a\"\non = { id = \"id\" }\n[[row]]\nfrom = \"a\"\nto = \"railscope_gpu_row_remap_failed\"",
        "3:8: join[0]: neither take nor value: expected labels that it gives to other series",
    ),
    (
        "precedence = 0\n[[row]]\nfrom = \"a\"\nto = \"railscope_gpu_row_remap_failed\"",
        "2:14: precedence: 0 is Railscope's own exporter: expected 1 to 255",
    ),
    (
        "[subject]\n[[row]]\nfrom = \"a\"\nto = \"railscope_gpu_row_remap_failed\"",
        "2:1: subject: expected either node or switch",
    ),
];

#[test]
fn an_error_names_file_line_column_field_and_what_was_expected() {
    for (text, expected) in WRONG {
        let error = parse(&format!("{HEAD}{text}")).expect_err(text);
        assert_eq!(
            error.to_string(),
            format!("etc/site.toml:{expected}"),
            "{text}"
        );
    }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp(seconds * 1000)
}

fn node() -> Option<Subject> {
    Some(Subject::Node("n1".parse().expect("name")))
}

/// The one value of one metric on a scrape.
fn value(read: &Translation, metric: &'static Metric) -> Option<f64> {
    let samples = read
        .readings
        .iter()
        .flat_map(|(_, reading)| reading.samples());
    let mut values = samples.filter(|sample| sample.metric == metric);
    let value = values.next().map(|sample| sample.value.as_f64());
    assert!(values.next().is_none(), "one series");
    value
}

fn built_in(kind: &str) -> Translator {
    let mapping = Mappings::default().by_kind(kind).cloned().expect(kind);
    Translator::new(mapping, node())
}

#[test]
fn a_sum_without_one_of_its_terms_is_no_sum() {
    let mut translator = built_in("node_exporter");
    let both = "node_softnet_dropped_total{cpu=\"0\"} 5\nnode_softnet_dropped_total{cpu=\"1\"} 7\n";
    let one = "node_softnet_dropped_total{cpu=\"0\"} 5\n";
    for (seconds, page, expected) in [
        (0, both, Some(12.0)),
        (5, one, None),
        (10, both, Some(12.0)),
        (15, one, None),
        (100, one, None),
        // The history has forgotten the larger sum.
        (200, one, Some(5.0)),
        (205, both, Some(12.0)),
    ] {
        let read = translator.translate(page, at(seconds));
        assert_eq!(value(&read, &SOFTNET_DROPPED), expected, "at {seconds} s");
    }
}

#[test]
fn the_fastest_and_the_slowest_of_several_are_kept_also_when_one_goes() {
    let mut translator = built_in("node_exporter");
    let cpus = |megahertz: &[u32]| -> String {
        let cpus = megahertz.iter().enumerate();
        cpus.map(|(cpu, one)| {
            format!("node_cpu_scaling_frequency_hertz{{cpu=\"{cpu}\"}} {one}e6\n")
        })
        .collect()
    };
    for (seconds, megahertz, [slowest, fastest]) in [
        (0, &[2000, 3700, 800][..], [8e8, 3.7e9]),
        (5, &[2000, 1900, 2100], [1.9e9, 2.1e9]),
        (10, &[2000], [2e9, 2e9]),
    ] {
        let read = translator.translate(&cpus(megahertz), at(seconds));
        let samples = read
            .readings
            .iter()
            .flat_map(|(_, reading)| reading.samples());
        let mut values: Vec<_> = samples
            .map(|sample| {
                let statistic = sample.labels.values().collect::<String>();
                (statistic, sample.value.as_f64())
            })
            .collect();
        values.sort_by(|one, other| one.0.cmp(&other.0));
        let expected = [("max".to_owned(), fastest), ("min".to_owned(), slowest)];
        assert_eq!(values, expected, "at {seconds} s");
    }
}

#[test]
fn copies_of_a_value_for_several_containers_are_one_value() {
    let page = "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",pod=\"a\"} 40\nDCGM_FI_DEV_GPU_UTIL{gpu=\"0\",pod=\"b\"} 40\n";
    let read = built_in("dcgm-exporter").translate(page, at(0));
    assert_eq!(value(&read, &GPU_UTILIZATION), Some(0.4));
}

#[test]
fn index_and_address_of_a_gpu_may_be_values_of_other_series() {
    let page = "nvidia_smi_gpu_info{name=\"NVIDIA GB200\",uuid=\"ae46\",vbios_version=\"97\"} 1\n\
        nvidia_smi_index{uuid=\"ae46\"} 3\n\
        nvidia_smi_pci_domain{uuid=\"ae46\"} 25\n\
        nvidia_smi_pci_bus{uuid=\"ae46\"} 170\n\
        nvidia_smi_utilization_gpu_ratio{uuid=\"ae46\"} 0.5\n\
        nvidia_smi_pcie_link_width_current{uuid=\"ae46\"} 8\n";
    let read = built_in("nvidia_gpu_exporter").translate(page, at(0));
    assert_eq!(read.counts.errors, []);
    let readings = read.readings.iter();
    let samples: Vec<_> = readings
        .flat_map(|(_, reading)| reading.samples())
        .collect();
    let label = |metric: &Metric| {
        let own = samples.iter().find(|own| own.metric.name == metric.name);
        own.and_then(|own| own.labels.values().next())
    };
    assert_eq!(label(&GPU_UTILIZATION), Some("3"));
    assert_eq!(label(&PCIE_LINK_WIDTH), Some("0019:aa:00.0"));
}

#[test]
fn who_holds_a_gpu_is_a_batch_job_or_a_pod_of_dcgm_exporter() {
    let holder = |labels: &str| {
        let page = format!("DCGM_FI_DEV_GPU_UTIL{{gpu=\"3\",device=\"nvidia3\",{labels}}} 40\n");
        let read = built_in("dcgm-exporter").translate(&page, at(0));
        let samples = read
            .readings
            .iter()
            .flat_map(|(_, reading)| reading.samples());
        let mut workloads = samples.filter(|sample| sample.metric.name == WORKLOAD.name);
        let labels = workloads.next().map(|sample| {
            let values = sample.labels.values().map(str::to_owned);
            values.collect::<Vec<_>>().join("|")
        });
        assert_eq!(workloads.next().map(|sample| sample.metric.name), None);
        labels.unwrap_or_default()
    };
    for (labels, expected) in [
        ("hpc_job=\"4711\"", "3||||||||4711"),
        (
            "namespace=\"ml\",pod=\"train-0\",container=\"main\"",
            "3|||||ml|train-0|main|",
        ),
        (
            "pod=\"dcgm-exporter-x\",hpc_job=\"4711\"",
            "3||||||dcgm-exporter-x||4711",
        ),
        (
            "exported_namespace=\"ml\",exported_pod=\"train-0\",GPU_I_ID=\"7\",GPU_I_PROFILE=\"1g.10gb\"",
            "3|7||||ml|train-0||",
        ),
        ("pod=\"\"", ""),
    ] {
        assert_eq!(holder(labels), expected, "{labels}");
    }
}

#[test]
fn what_does_not_fit_is_counted_and_said_and_what_nobody_knows_is_counted() {
    for (kind, page, unknown, said) in [
        (
            "node_exporter",
            "# TYPE node_infiniband_symbol_error_total gauge\nnode_infiniband_symbol_error_total{device=\"a\",port=\"1\"} 1\n",
            0,
            "node_infiniband_symbol_error_total: declared as gauge, the mapping expects counter",
        ),
        (
            "node_exporter",
            "node_network_speed_bytes{device=\"eth0\"} -125000\n",
            0,
            "node_network_speed_bytes has the value -125000",
        ),
        (
            "node_exporter",
            "node_infiniband_symbol_error_total{device=\"a\"} 1\nnode_load1 3\n",
            1,
            "node_infiniband_symbol_error_total: no label \"port\"",
        ),
        (
            "rdma_exporter",
            "rdma_port_info{device=\"a\",port=\"1\",link_speed=\"fast\"} 1\n",
            0,
            "rdma_port_info: label \"link_speed\" holds \"fast\"",
        ),
    ] {
        let mut translator = built_in(kind);
        for seconds in [0, 5] {
            let read = translator.translate(page, at(seconds));
            assert_eq!(read.unfit.as_deref(), Some(said), "{page}");
            assert_eq!(
                (read.counts.unfit, read.counts.unknown),
                (1, unknown),
                "{page}"
            );
        }
    }
}

#[test]
fn a_page_tells_whose_it_is_and_may_change_its_mind() {
    let target = Target::of_node(
        "n1".parse().expect("name"),
        String::from("http://n1/metrics"),
    );
    let mut reader = Reader::new(Arc::new(target), Mappings::default());
    for (page, expected) in [
        ("railscope_rdma_port_up{device=\"a\",port=\"1\"} 1\n", None),
        ("DCGM_FI_DEV_SM_CLOCK{gpu=\"0\"} 1\n", Some("dcgm-exporter")),
        ("", Some("dcgm-exporter")),
        // It is valid: nothing else is checked.
        (
            "DCGM_FI_DEV_SM_CLOCK{gpu=\"0\"} 1\nrailscope_rdma_port_up{device=\"a\",port=\"1\"} 1\n",
            Some("dcgm-exporter"),
        ),
        ("node_exporter_build_info 1\n", Some("node_exporter")),
        ("ipmi_up{collector=\"ipmi\"} 1\n", Some("ipmi_exporter")),
        (
            "nvidia_smi_command_exit_code 9\n",
            Some("nvidia_gpu_exporter"),
        ),
        (
            "gpu_utilization_Percentage{hostname=\"10.0.0.1\",index=\"0\"} 98\n",
            Some("nvitop"),
        ),
        ("rdma_scrape_errors_total 0\n", Some("rdma_exporter")),
        ("ifHighSpeed{ifName=\"a\"} 1\n", Some("snmp_exporter")),
        (
            "sonic_interface_info{device=\"a\"} 1\n",
            Some("sonic-exporter"),
        ),
        (
            "infiniband_switch_info{guid=\"0x1\"} 1\n",
            Some("infiniband_exporter"),
        ),
        (
            "gnmic_interfaces_interface_state_counters_in_octets 1\n",
            Some("gnmic"),
        ),
        (
            "nvswitch_interface_oper_state{net_host_name=\"leaf01\",interface=\"swp1\"} 1\n",
            Some("cumulus-otlp"),
        ),
        (
            "node_amazonefa_tx_bytes{device=\"rdmap0s0\",port=\"1\"} 1\n",
            Some("amazonefa"),
        ),
        (
            "Effective_BER{Port_Number=\"1\", Node_GUID=\"0x1\"}  1.5e-254 1781993954087\n",
            Some("nmx-telemetry"),
        ),
        // The fork of node_exporter is read as node_exporter.
        (
            "node_amazonefa_tx_bytes{device=\"rdmap0s0\",port=\"1\"} 1\nnode_exporter_build_info 1\n",
            Some("node_exporter"),
        ),
        ("railscope_node_boot_time_seconds 1\n", None),
    ] {
        reader.read(page, at(0));
        assert_eq!(reader.kind().map(|kind| &**kind), expected, "{page}");
    }
}

/// An exporter, a scrape of it, and what one metric becomes.
const HARDWARE: &[(&str, &str, &Metric, Option<f64>)] = &[
    (
        "ipmi_exporter",
        "ipmi_fan_speed_state{id=\"13\",name=\"Fan1B\"} 2\n",
        &SENSOR_ALARM,
        Some(2.0),
    ),
    (
        "ipmi_exporter",
        "ipmi_sensor_state{id=\"1\",name=\"PS1\",type=\"Power Supply\"} NaN\n",
        &SENSOR_ALARM,
        None,
    ),
    (
        "ipmi_exporter",
        "ipmi_sensor_state{id=\"1\",name=\"Lid\",type=\"Physical Security\"} 2\n",
        &SENSOR_ALARM,
        None,
    ),
    (
        "ipmi_exporter",
        "ipmi_chassis_power_state 0\n",
        &NODE_POWER_ON,
        Some(0.0),
    ),
    (
        "ipmi_exporter",
        "ipmi_temperature_celsius{id=\"18\",name=\"Inlet Temp\"} NaN\n",
        &SENSOR_TEMPERATURE,
        None,
    ),
    (
        "node_exporter",
        "node_hwmon_fan_rpm{chip=\"platform_nct6775_2560\",sensor=\"fan1\"} 0\n",
        &FAN_SPEED,
        Some(0.0),
    ),
    (
        "node_exporter",
        "node_hwmon_fan_alarm{chip=\"c\",sensor=\"fan1\"} 0\nnode_hwmon_fan_fault{chip=\"c\",sensor=\"fan1\"} 1\n",
        &SENSOR_ALARM,
        Some(2.0),
    ),
    (
        "node_exporter",
        "node_hwmon_temp_crit_alarm_celsius{chip=\"c\",sensor=\"temp1\"} 0.001\n",
        &SENSOR_ALARM,
        Some(2.0),
    ),
    (
        "node_exporter",
        "node_hwmon_in_alarm{chip=\"c\",sensor=\"in0\"} 1\n",
        &SENSOR_ALARM,
        None,
    ),
    (
        "node_exporter",
        "node_cpu_core_throttles_total{core=\"0\",package=\"0\"} 5\nnode_cpu_core_throttles_total{core=\"0\",package=\"1\"} 7\n",
        &CPU_THROTTLES,
        Some(12.0),
    ),
    (
        "node_exporter",
        "node_cpu_scaling_frequency_max_hertz{cpu=\"0\"} 3.8e9\nnode_cpu_scaling_frequency_max_hertz{cpu=\"1\"} 3.9e9\nnode_cpu_scaling_frequency_max_hertz{cpu=\"2\"} 3.7e9\n",
        &CPU_MAX_FREQUENCY,
        Some(3.9e9),
    ),
];

#[test]
fn states_of_hardware_become_one_scale_and_an_unknown_state_no_alarm() {
    for (kind, page, metric, expected) in HARDWARE {
        let read = built_in(kind).translate(page, at(0));
        assert_eq!(value(&read, metric), *expected, "{page}");
    }
}
