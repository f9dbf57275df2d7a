//! Units of what is plotted, and values with them.

use railscope_model::metric::{Kind, Metric};

/// Suffixes of names with the unit of a gauge, and of a counter's rate where that is a separate unit.
const UNITS: &[(&str, &str, &str)] = &[
    ("bytes_per_second", "B/s", ""),
    ("bytes", "B", "B/s"),
    ("seconds", "s", "ratio"),
    ("hertz", "Hz", ""),
    ("watts", "W", ""),
    ("joules", "J", "W"),
    ("celsius", "°C", ""),
    ("lanes", "lanes", ""),
    ("rpm", "rpm", ""),
    ("ratio", "ratio", ""),
];
/// Units that take the prefixes of the SI.
const PREFIXED: [&str; 5] = ["B/s", "B", "Hz", "W", "J"];
/// Words that are not written in lower case.
const SPELLINGS: &[&str] = &[
    "CNP", "CPU", "CRC", "ECC", "ECN", "FEC", "GPU", "ICRC", "MTU", "NIC", "NVLink", "NVMe",
    "PCIe", "PFC", "RDMA", "SM", "SRAM", "XID",
];
const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];

/// What a metric measures, in plain text, and its unit: of a counter, that of its rate. `ratio` is
/// a share; a state has no unit.
pub(crate) fn measured(metric: &Metric) -> (String, String) {
    let name = metric
        .name
        .strip_prefix("railscope_")
        .unwrap_or(metric.name);
    let name = name.strip_suffix("_total").unwrap_or(name);
    let is_rate = metric.kind == Kind::Counter;
    let known = UNITS.iter().find_map(|(word, gauge, rate)| {
        let rest = name.strip_suffix(word)?.strip_suffix('_')?;
        let unit = if is_rate { rate } else { gauge };
        (!unit.is_empty()).then_some((rest, (*unit).to_owned()))
    });
    let (rest, unit) = known.unwrap_or_else(|| {
        let (_, last) = name.rsplit_once('_').unwrap_or(("", name));
        let unit = match name.strip_suffix("_per_second") {
            _ if is_rate => format!("{last}/s"),
            Some(rate) => format!("{}/s", rate.rsplit('_').next().unwrap_or(rate)),
            None => String::new(),
        };
        (name, unit)
    });
    let words: Vec<&str> = rest.split('_').map(spelled).collect();
    (words.join(" "), unit)
}

/// A word of a metric's name in its usual spelling.
fn spelled(word: &str) -> &str {
    let known = SPELLINGS
        .iter()
        .find(|spelling| spelling.eq_ignore_ascii_case(word));
    known.copied().unwrap_or(word)
}

/// A value with its unit, three digits: `1.98 GHz`, `12.5 %`, `0.0333 errors/s`.
pub(crate) fn amount(value: f64, unit: &str) -> String {
    if unit == "ratio" {
        return format!("{} %", three_digits(100.0 * value));
    }
    let is_large = value.abs() >= 1e6 || PREFIXED.contains(&unit);
    let power = if is_large && value != 0.0 {
        (value.abs().log10() / 3.0).floor().clamp(0.0, 5.0) as usize
    } else {
        0
    };
    let number = three_digits(value / 1000_f64.powi(power as i32));
    let prefix = PREFIXES.get(power).copied().unwrap_or_default();
    match (prefix, unit) {
        ("", "") => number,
        (prefix, "") => format!("{number} {prefix}"),
        ("", unit) => format!("{number} {unit}"),
        (prefix, unit) if PREFIXED.contains(&unit) => format!("{number} {prefix}{unit}"),
        (prefix, unit) => format!("{number} {prefix} {unit}"),
    }
}

/// As many digits as a picture bears.
fn three_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return String::from("0");
    }
    let before = value.abs().log10().floor() as i32;
    let after = (2 - before).clamp(0, 9) as usize;
    let text = format!("{value:.after$}");
    if text.contains('.') {
        let text = text.trim_end_matches('0');
        text.trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use railscope_model::metric::*;

    use super::*;

    #[test]
    fn every_series_has_words_and_a_unit_and_values_read_as_people_say_them() {
        for (metric, value, words, said) in [
            (&GPU_CLOCK, 1.98e9, "GPU clock", "1.98 GHz"),
            (&GPU_ENERGY, 699.6, "GPU energy", "700 W"),
            (&GPU_TEMPERATURE, 81.0, "GPU temperature", "81 °C"),
            (&GPU_UTILIZATION, 0.125, "GPU utilization", "12.5 %"),
            (&NIC_PFC_PAUSE_SECONDS, 0.0123, "NIC PFC pause", "1.23 %"),
            (
                &RDMA_PORT_TRANSMIT_BYTES,
                4.9e10,
                "RDMA port transmit",
                "49 GB/s",
            ),
            (
                &RDMA_PORT_ERRORS,
                1.0 / 30.0,
                "RDMA port errors",
                "0.0333 errors/s",
            ),
            (
                &RDMA_PORT_TRANSMIT_WAIT,
                2.5e7,
                "RDMA port transmit wait ticks",
                "25 M ticks/s",
            ),
            (&RDMA_PORT_UP, 1.0, "RDMA port up", "1"),
            (&PCIE_LINK_WIDTH, 8.0, "PCIe link width", "8 lanes"),
            (&PCIE_LINK_WIDTH, 0.0, "PCIe link width", "0 lanes"),
        ] {
            let (found, unit) = measured(metric);
            assert_eq!(
                (&*found, &*amount(value, &unit)),
                (words, said),
                "{}",
                metric.name
            );
        }
    }
}
