//! Every number that `nvidia-smi` printed of real GPUs, compared with the series of an exporter whose NVML returns
//! the same numbers: nothing lost, nothing invented.

use crate::gpus;

use std::collections::{BTreeMap, BTreeSet};

use crate::gpus::Node;
use crate::smi::{
    LEFT_OUT, LEFT_OUT_XML, NOT_SAID, SECTIONS, Said, capture, number, read_text, read_xml,
};
use crate::smi_rows::{MIB, ROWS, bytes, feed, feed_words};
use railscope_model::metric::Profile;
use railscope_simulator::show::nvml::{Fault, GpuState, MigDevice, NodeGpus, Process, ProcessKind};

/// `clock_hertz,clock=sm` as in the exposition.
fn series_of(row: &str) -> String {
    let mut parts = row.split(',');
    let name = parts.next().unwrap_or_default();
    let labels: Vec<_> = parts
        .filter_map(|part| part.split_once('='))
        .map(|(label, value)| format!(",{label}=\"{value}\""))
        .collect();
    format!("railscope_gpu_{name}{{gpu=\"0\"{}}}", labels.concat())
}

#[track_caller]
fn compare(page: &BTreeMap<String, f64>, row: &str, expected: f64) {
    let series = series_of(row);
    let found = page.get(&series).copied();
    let near = found.is_some_and(|found| (found - expected).abs() <= expected.abs() * 1e-9);
    assert!(near, "{series}: {found:?}, not {expected}");
}

/// Series of ECC errors, and which numbers of `nvidia-smi` each is the sum of.
const ECC: [(&str, &str, &str); 4] = [
    (
        "ecc_errors_total,severity=corrected",
        "Volatile",
        " Correctable",
    ),
    (
        "ecc_errors_total,severity=uncorrected",
        "Volatile",
        "Uncorrectable",
    ),
    (
        "ecc_lifetime_errors_total,severity=corrected",
        "Aggregate",
        " Correctable",
    ),
    (
        "ecc_lifetime_errors_total,severity=uncorrected",
        "Aggregate",
        "Uncorrectable",
    ),
];

fn ecc(said: &Said, place: usize) -> f64 {
    let (_, since, word) = ECC[place];
    let of = |key: &str| key.starts_with(&format!("ECC Errors / {since} /")) && key.contains(word);
    let found = said.iter().filter(|(key, _)| of(key));
    found.filter_map(|(_, text)| number(text)).sum()
}

fn check_text(test: &str, file: &str) {
    let Some(text) = capture(test, file) else {
        return;
    };
    for load in text.split("==============NVSMI LOG==============").skip(1) {
        let load = load.split("\n####").next().unwrap_or_default();
        let said = read_text(load);
        let mut state = NodeGpus::h100(1);
        let gpu = &mut state.gpus[0];
        let mut fed = feed(gpu, &said, false);
        fed.extend(feed_words(gpu, &said, false));
        assert!(
            fed.len() >= 47,
            "{}: the recording is not what it was",
            fed.len()
        );
        let free = number(&said["FB Memory Usage / Free"]).expect("a number");
        let total = number(&said["FB Memory Usage / Total"]).expect("a number");
        let reserved = number(&said["FB Memory Usage / Reserved"]).expect("a number");
        gpu.memory_used_bytes = bytes(total - reserved - free);
        let processes = said
            .keys()
            .filter(|key| key.contains("/ Process ID"))
            .count();
        gpu.processes = vec![
            Process {
                kind: ProcessKind::Compute,
                pid: 1,
                used_bytes: 1
            };
            processes
        ];
        gpu.ecc_volatile_corrected_dram = ecc(&said, 0) as u64;
        gpu.ecc_volatile_uncorrected_dram = ecc(&said, 1) as u64;
        gpu.ecc_aggregate_corrected_dram = ecc(&said, 2) as u64;
        gpu.ecc_aggregate_uncorrected_sram = ecc(&said, 3) as u64;
        let node = Node::start(state);
        node.shows(&series_of("processes,kind=compute"), processes as f64);
        let page = node.series(Profile::Full);
        for (row, expected) in &fed {
            compare(&page, row, *expected);
        }
        // nvidia-smi rounds each to whole MiB; free is what both versions of the call agree on.
        let used = page[&series_of("memory_used_bytes")];
        assert!((used - (total - free) * MIB).abs() <= MIB, "{used}");
        for (place, (series, ..)) in ECC.iter().enumerate() {
            compare(&page, series, ecc(&said, place));
        }
        let known = |key: &str| {
            ROWS.iter().any(|row| row.0 == key)
                || LEFT_OUT.iter().any(|(prefix, _)| key.starts_with(prefix))
        };
        let lost: Vec<_> = said
            .iter()
            .filter(|(key, text)| number(text).is_some() && !known(key))
            .collect();
        assert!(lost.is_empty(), "nvidia-smi says more: {lost:#?}");
        // One of each of these is compared above.
        let apart = ["memory_used_bytes", "processes,kind=compute"];
        let apart = apart.into_iter().chain(ECC.iter().map(|row| row.0));
        let compared = fed.iter().map(|(row, _)| *row).chain(apart);
        nothing_invented(test, &page, compared, said.len() - lost.len());
    }
}

/// Every series of the GPU is one of those compared, or of those that no recording contains.
#[track_caller]
fn nothing_invented<'a>(
    test: &str,
    page: &BTreeMap<String, f64>,
    compared: impl Iterator<Item = &'a str>,
    said: usize,
) {
    let compared: BTreeSet<String> = compared.map(series_of).collect();
    let of_gpu = page.keys().filter(|series| {
        !series.starts_with("railscope_source_") && !series.starts_with("railscope_exporter_")
    });
    let others: Vec<_> = of_gpu
        .filter(|series| !compared.contains(*series))
        .collect();
    let told = |series: &str| {
        NOT_SAID
            .iter()
            .any(|(begin, _)| series.starts_with(&format!("railscope_{begin}")))
    };
    let invented: Vec<_> = others.iter().filter(|series| !told(series)).collect();
    println!(
        "{test}: {said} lines, {} numbers compared, {} series of the page that the recording says nothing of",
        compared.len(),
        others.len()
    );
    assert!(
        invented.is_empty(),
        "{test}: not said by nvidia-smi: {invented:#?}"
    );
}

#[test]
fn an_h100_idle_and_under_load() {
    check_text(
        "an_h100_idle_and_under_load",
        "linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt",
    );
}

#[test]
fn an_h200_idle_and_under_load() {
    check_text(
        "an_h200_idle_and_under_load",
        "linux-x86_64__nvidia-h200__590.48.01.txt",
    );
}

const NOT_SUPPORTED: u32 = 3;

/// What the recorded A100 answered with "N/A": the call, what the XML calls it, and the series that must not be.
const NOT_AVAILABLE: &[(&str, &str, &str)] = &[
    (
        "nvmlDeviceGetUtilizationRates",
        "utilization/gpu_util",
        "utilization_ratio",
    ),
    (
        "field.142",
        "remapped_rows",
        "row_remaps_total,cause=correctable",
    ),
    (
        "field.143",
        "remapped_rows",
        "row_remaps_total,cause=uncorrectable",
    ),
    ("field.144", "remapped_rows", "row_remap_pending"),
    ("field.145", "remapped_rows", "row_remap_failed"),
];

/// Numbers without their own row: sums, differences and counts.
fn feed_apart(gpu: &mut GpuState, said: &Said, text: &str) -> Vec<(&'static str, f64)> {
    let value = |key: &str| number(&said[key]).expect("a number");
    let (total, free, reserved) = (
        value("fb_memory_usage/total"),
        value("fb_memory_usage/free"),
        value("fb_memory_usage/reserved"),
    );
    gpu.memory_used_bytes = bytes(total - free - reserved);
    let highest = value("temperature/gpu_temp_max_gpu_threshold");
    gpu.temperature_max_celsius = highest as u32;
    // Registration with a fabric is "N/A".
    gpu.fabric_state = 0;
    let processes = text.matches("<process_info>").count();
    gpu.processes = vec![
        Process {
            kind: ProcessKind::Compute,
            pid: 1,
            used_bytes: 1
        };
        processes
    ];
    let mut apart = vec![
        ("memory_used_bytes", (total - free) * MIB),
        (
            "temperature_margin_celsius",
            highest - value("temperature/gpu_temp"),
        ),
        ("processes,kind=compute", processes as f64),
    ];
    for (series, since, word) in ECC {
        let end = format!("_{}", word.trim().to_lowercase());
        let begin = format!("ecc_errors/{}/", since.to_lowercase());
        let of = |key: &str| key.starts_with(&begin) && key.ends_with(&end);
        let found = said.iter().filter(|(key, _)| of(key));
        apart.push((series, found.filter_map(|(_, text)| number(text)).sum()));
    }
    apart
}

/// The MIG devices of the only GPU. The XML does not name their profile.
fn mig_devices(text: &str) -> Vec<MigDevice> {
    let devices = text.split("<mig_device>").skip(1).map(|device| {
        let value = |name: &str| {
            let found = device
                .split(&format!("<{name}>"))
                .nth(1)
                .and_then(|rest| rest.split('<').next());
            number(found.expect("an element")).expect("a number")
        };
        MigDevice {
            gpu_instance: value("gpu_instance_id") as u32,
            compute_instance: value("compute_instance_id") as u32,
            profile: "1g.20gb".into(),
            total_bytes: bytes(value("total")),
            used_bytes: bytes(value("used")),
            active_permille: 0,
        }
    });
    devices.collect()
}

#[test]
fn a_partitioned_a100() {
    let Some(text) = capture("a_partitioned_a100", "a100-sxm4-v12.nvidia-smi-qx.xml") else {
        return;
    };
    let said = read_xml(&text);
    let mut state = NodeGpus::a100(1);
    let gpu = &mut state.gpus[0];
    let mut fed = feed(gpu, &said, true);
    fed.extend(feed_words(gpu, &said, true));
    assert!(
        fed.len() >= 33,
        "{}: the recording is not what it was",
        fed.len()
    );
    gpu.mig_mode_pending = true;
    let apart = feed_apart(gpu, &said, &text);
    gpu.mig = mig_devices(&text);
    gpu.faults = NOT_AVAILABLE
        .iter()
        .filter(|(_, key, _)| said.get(*key).is_none_or(|text| text == "N/A"))
        .map(|(call, ..)| Fault::fail(call, NOT_SUPPORTED))
        .collect();
    assert_eq!(gpu.faults.len(), NOT_AVAILABLE.len(), "another recording");
    let instances: Vec<_> = gpu.mig.iter().map(|mig| mig.gpu_instance).collect();
    assert_eq!(instances, [3, 4, 5, 6]);
    let node = Node::start(state);
    node.shows(&series_of("mig_enabled"), 1.0);
    let page = node.series(Profile::Full);
    for (row, expected) in &fed {
        compare(&page, row, *expected);
    }
    let known = |key: &str| {
        ROWS.iter().any(|row| row.1 == key)
            || LEFT_OUT_XML
                .iter()
                .any(|(prefix, _)| key.starts_with(prefix))
    };
    let lost: Vec<_> = said
        .iter()
        .filter(|(key, text)| number(text).is_some() && !known(key))
        .collect();
    assert!(lost.is_empty(), "nvidia-smi says more: {lost:#?}");
    for (row, expected) in &apart {
        compare(&page, row, *expected);
    }
    for (_, _, row) in NOT_AVAILABLE {
        let begin = series_of(row);
        let begin = begin.trim_end_matches('}');
        assert!(
            !page.keys().any(|series| series.starts_with(begin)),
            "{row}"
        );
    }
    let compared = fed.iter().chain(&apart).map(|(row, _)| *row);
    nothing_invented("a_partitioned_a100", &page, compared, said.len());
    for instance in instances {
        for (what, mebibytes) in [("size", 19_968.0), ("used", 12.0)] {
            let series = format!(
                "railscope_mig_memory_{what}_bytes{{gpu=\"0\",gpu_instance=\"{instance}\"}}"
            );
            assert_eq!(page.get(&series), Some(&(mebibytes * MIB)), "{series}");
        }
    }
}

/// GPUs and links of `nvidia-smi nvlink -s`: GB/s of each link.
fn links(text: &str) -> Vec<Vec<f64>> {
    let mut gpus = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("GPU ") {
            gpus.push(Vec::new());
        } else if let (Some((_, speed)), Some(gpu)) = (line.split_once(": "), gpus.last_mut()) {
            let speed = speed.strip_suffix(" GB/s").expect("a speed");
            gpu.push(speed.parse().expect("a number"));
        }
    }
    gpus
}

/// Feeds the links and compares every one. No GPU in the text is a GPU without links.
fn check_links(name: &str, text: &str, node: fn(usize) -> NodeGpus) {
    let mut said = links(text);
    if said.is_empty() {
        said.push(Vec::new());
    }
    let mut state = node(said.len());
    for (index, (gpu, speeds)) in state.gpus.iter_mut().zip(&said).enumerate() {
        gpu.set_link_count(index, speeds.len());
        for (link, gigabytes) in gpu.links.iter_mut().zip(speeds) {
            link.speed_megabytes_per_second = (gigabytes * 1000.0).round() as u32;
        }
    }
    let node = Node::start(state);
    // A thread reads each GPU: wait for the last of them.
    let read = |gpu| {
        let power = format!("railscope_gpu_power_watts{{gpu=\"{gpu}\"}}");
        node.value(&power).is_some()
    };
    let all = gpus::eventually(|| (0..said.len()).all(read));
    assert!(all, "{name}: not read");
    let page = node.series(Profile::Full);
    let speeds = page
        .iter()
        .filter(|(series, _)| series.starts_with("railscope_nvlink_speed_"));
    let shown: BTreeMap<_, _> = speeds.collect();
    let mut compared = 0;
    for (gpu, speeds) in said.iter().enumerate() {
        for (link, gigabytes) in speeds.iter().enumerate() {
            let series =
                format!("railscope_nvlink_speed_bytes_per_second{{gpu=\"{gpu}\",link=\"{link}\"}}");
            let found = shown.get(&series).map(|value| **value / 1e9);
            assert_eq!(found, Some(*gigabytes), "{name}: {series}");
            compared += 1;
        }
        let count = page.get(&format!("railscope_gpu_nvlinks{{gpu=\"{gpu}\"}}"));
        assert_eq!(
            count.copied().unwrap_or(0.0),
            speeds.len() as f64,
            "{name}: GPU {gpu}"
        );
    }
    assert_eq!(
        shown.len(),
        compared,
        "{name}: a link that the recording has not"
    );
    println!("{name}: {} GPUs, {compared} links compared", said.len());
}

#[test]
fn links_of_recorded_gpus() {
    let test = "links_of_recorded_gpus";
    for (file, node) in [
        (
            "nvidia-smi.nvlink.status.a100.txt",
            NodeGpus::a100 as fn(usize) -> NodeGpus,
        ),
        ("nvidia-smi.nvlink.status.a10.txt", NodeGpus::a100),
    ] {
        let Some(text) = capture(test, file) else {
            return;
        };
        check_links(file, &text, node);
    }
}

#[test]
fn every_section_of_a_recording_is_read_or_left_out_for_a_reason() {
    let test = "every_section_of_a_recording_is_read_or_left_out_for_a_reason";
    for file in [
        "linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt",
        "linux-x86_64__nvidia-h200__590.48.01.txt",
    ] {
        let Some(text) = capture(test, file) else {
            return;
        };
        let titles = text
            .lines()
            .filter_map(|line| line.strip_prefix("# ")?.split_once(" :: "));
        let titles: Vec<_> = titles.map(|(_, title)| title).collect();
        assert!(titles.len() > 20, "{file}: {titles:?}");
        for title in titles {
            let known = SECTIONS.iter().any(|(begin, _)| title.starts_with(begin));
            assert!(known, "{file}: {title}");
        }
        let (_, behind) = text.split_once("$ nvidia-smi nvlink -s").expect("links");
        let behind = behind.split("\n\n").next().unwrap_or_default();
        check_links(file, behind, NodeGpus::h100);
    }
}
