//! Units in which other exporters count, and what one of them is in ours.

use railscope_model::metric::Metric;

/// A unit: its name in mapping files, the base unit that it is a multiple of, and which multiple.
#[derive(Debug)]
struct Unit {
    name: &'static str,
    base: &'static str,
    times: f64,
    /// Divided by, because no binary fraction is a thousandth: the quotient is the nearest number there is.
    per: f64,
}

const fn unit(name: &'static str, base: &'static str, times: f64, per: f64) -> Unit {
    Unit {
        name,
        base,
        times,
        per,
    }
}

/// Network rates and NVLink's megabytes are decimal, memory is binary.
const UNITS: &[Unit] = &[
    unit("bytes", "bytes", 1.0, 1.0),
    unit("4-byte words", "bytes", 4.0, 1.0),
    unit("KiB", "bytes", 1024.0, 1.0),
    unit("MiB", "bytes", 1_048_576.0, 1.0),
    unit("seconds", "seconds", 1.0, 1.0),
    unit("ms", "seconds", 1.0, 1e3),
    unit("us", "seconds", 1.0, 1e6),
    unit("ns", "seconds", 1.0, 1e9),
    unit("joules", "joules", 1.0, 1.0),
    unit("mJ", "joules", 1.0, 1e3),
    unit("uJ", "joules", 1.0, 1e6),
    unit("watts", "watts", 1.0, 1.0),
    unit("mW", "watts", 1.0, 1e3),
    unit("Hz", "hertz", 1.0, 1.0),
    unit("MHz", "hertz", 1e6, 1.0),
    unit("celsius", "celsius", 1.0, 1.0),
    unit("ratio", "ratio", 1.0, 1.0),
    unit("percent", "ratio", 1.0, 100.0),
    unit("bytes/s", "bytes_per_second", 1.0, 1.0),
    unit("KB/s", "bytes_per_second", 1e3, 1.0),
    unit("MB/s", "bytes_per_second", 1e6, 1.0),
    unit("bit/s", "bytes_per_second", 1.0, 8.0),
    unit("Mbit/s", "bytes_per_second", 1e6, 8.0),
    unit("Gbit/s", "bytes_per_second", 1e9, 8.0),
    unit("GT/s", "transfers_per_second", 1e9, 1.0),
];

/// Converts a value into the base unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Factor {
    times: f64,
    per: f64,
}

impl Factor {
    /// For metrics without a unit: counts and states.
    pub(super) const ONE: Self = Self {
        times: 1.0,
        per: 1.0,
    };

    /// The value in the base unit.
    pub(super) fn apply(self, value: f64) -> f64 {
        value * self.times / self.per
    }
}

/// The base unit of one of our metrics, if it has one.
fn base(metric: &Metric) -> Option<&'static str> {
    let rates = ["bytes_per_second", "transfers_per_second"];
    metric
        .unit
        .or_else(|| rates.into_iter().find(|rate| metric.name.ends_with(rate)))
}

/// Conversion of a value in `unit` into the metric's base unit.
///
/// # Errors
/// The unit is missing, unknown or of another quantity; the text reports which were expected.
pub(super) fn factor(metric: &Metric, unit: Option<&str>) -> Result<Factor, String> {
    let expected = |base: &str| {
        let names = UNITS.iter().filter(|unit| unit.base == base);
        let names: Vec<_> = names.map(|unit| format!("{:?}", unit.name)).collect();
        format!(
            "{} counts {base}: expected {}",
            metric.name,
            names.join(", ")
        )
    };
    match (base(metric), unit) {
        (None, None) => Ok(Factor::ONE),
        (None, Some(_)) => Err(format!("{} has no unit: expected none here", metric.name)),
        (Some(base), None) => Err(format!("missing; {}", expected(base))),
        (Some(base), Some(name)) => UNITS
            .iter()
            .find(|unit| unit.base == base && unit.name == name)
            .map(|unit| Factor {
                times: unit.times,
                per: unit.per,
            })
            .ok_or_else(|| format!("{name:?} does not fit: {}", expected(base))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use railscope_model::metric::{
        GPU_CLOCK, GPU_ENERGY, RDMA_PORT_ERRORS, RDMA_PORT_SPEED, RDMA_PORT_TRANSMIT_BYTES,
    };

    #[test]
    fn a_value_arrives_in_the_metrics_base_unit() {
        for (metric, unit, value, expected) in [
            (&GPU_CLOCK, Some("MHz"), 1980.0, 1.98e9),
            (&GPU_ENERGY, Some("mJ"), 123.0, 0.123),
            (&RDMA_PORT_TRANSMIT_BYTES, Some("4-byte words"), 3.0, 12.0),
            (&RDMA_PORT_SPEED, Some("Gbit/s"), 400.0, 50e9),
            (&RDMA_PORT_ERRORS, None, 7.0, 7.0),
        ] {
            let factor = factor(metric, unit).expect(metric.name);
            assert_eq!(factor.apply(value), expected, "{}", metric.name);
        }
    }

    #[test]
    fn a_unit_that_is_missing_or_of_another_quantity_is_an_error() {
        for (metric, unit, expected) in [
            (
                &GPU_CLOCK,
                None,
                "missing; railscope_gpu_clock_hertz counts hertz: expected \"Hz\", \"MHz\"",
            ),
            (
                &GPU_CLOCK,
                Some("MiB"),
                "\"MiB\" does not fit: railscope_gpu_clock_hertz counts hertz: expected \"Hz\", \"MHz\"",
            ),
            (
                &RDMA_PORT_ERRORS,
                Some("bytes"),
                "railscope_rdma_port_errors_total has no unit: expected none here",
            ),
        ] {
            assert_eq!(factor(metric, unit), Err(expected.to_owned()));
        }
    }
}
