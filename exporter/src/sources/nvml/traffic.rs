//! What the NVLinks of one GPU carried, by scoped field values: bytes, packets, speed, error rate and FEC.

use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::sys_exports::field_id as fi;
use railscope_model::metric as m;
use railscope_model::metric::Metric;
use railscope_model::reading::{Labels, NodeReading, Value};
use railscope_model::units::{BYTES_PER_KIBIBYTE, BYTES_PER_MEGABYTE};

use super::calls::{Calls, Of};
use super::gpm::{Counter, Gpm, link_counters};
use super::line_rate::LineRate;
use super::pcie_bytes::push_source;
use super::prm;
use super::raw::Field;
use super::windows::Peak;

/// FEC bins and error rates are 17 fields a link, each perhaps a firmware command of the link: their cost is
/// not measured on hardware yet, so they are read this seldom.
const SLOW_PERIOD: Duration = Duration::from_secs(30);

/// One number of every link.
pub(super) struct Row {
    /// How the call is remembered if a link refuses it.
    pub(super) call: &'static str,
    /// NVML field; its scope is the link.
    pub(super) field: u32,
    pub(super) metric: &'static Metric,
    /// What to multiply the number with.
    pub(super) factor: u64,
}

const fn row(call: &'static str, field: u32, metric: &'static Metric, factor: u64) -> Row {
    Row {
        call,
        field,
        metric,
        factor,
    }
}

/// Bytes received and sent, from Blackwell on.
const BYTES: [Row; 2] = [
    row(
        "nvlink_receive_bytes",
        fi::NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES,
        &m::NVLINK_RECEIVE_BYTES,
        1,
    ),
    row(
        "nvlink_transmit_bytes",
        fi::NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES,
        &m::NVLINK_TRANSMIT_BYTES,
        1,
    ),
];
/// The same before Blackwell: payload in KiB.
const KIBIBYTES: [Row; 2] = [
    row(
        "nvlink_receive_kib",
        fi::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        &m::NVLINK_RECEIVE_BYTES,
        BYTES_PER_KIBIBYTE,
    ),
    row(
        "nvlink_transmit_kib",
        fi::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        &m::NVLINK_TRANSMIT_BYTES,
        BYTES_PER_KIBIBYTE,
    ),
];
/// Sums of [`BYTES`] or [`KIBIBYTES`] over the links.
const SUMS: [&Metric; 2] = [&m::GPU_NVLINK_RECEIVE_BYTES, &m::GPU_NVLINK_TRANSMIT_BYTES];

/// The highest rates of [`SUMS`].
const PEAKS: [&Metric; 2] = [&m::GPU_NVLINK_PEAK_RECEIVE, &m::GPU_NVLINK_PEAK_TRANSMIT];

const DETAILS: [Row; 3] = [
    row(
        "nvlink_speed",
        fi::NVML_FI_DEV_NVLINK_GET_SPEED,
        &m::NVLINK_SPEED,
        BYTES_PER_MEGABYTE,
    ),
    row(
        "nvlink_receive_packets",
        fi::NVML_FI_DEV_NVLINK_COUNT_RCV_PACKETS,
        &m::NVLINK_RECEIVE_PACKETS,
        1,
    ),
    row(
        "nvlink_transmit_packets",
        fi::NVML_FI_DEV_NVLINK_COUNT_XMIT_PACKETS,
        &m::NVLINK_TRANSMIT_PACKETS,
        1,
    ),
];

const SYMBOL_BER: Row = row(
    "nvlink_symbol_ber",
    fi::NVML_FI_DEV_NVLINK_COUNT_SYMBOL_BER,
    &m::NVLINK_SYMBOL_BER,
    1,
);
/// Bins of the FEC histogram: words with 0 to 15 corrected symbols, in consecutive fields.
const FEC_BINS: u32 = 16;

/// Names of both in labels, and of the fields of [`BYTES`] and [`KIBIBYTES`] as their sources.
const NAMES: [&str; 2] = ["nvlink_receive_bytes", "nvlink_transmit_bytes"];
const BYTES_FIELDS: [&str; 2] = ["field_204", "field_202"];
const KIBIBYTES_FIELDS: [&str; 2] = ["field_139", "field_138"];

/// Which counters hold the bytes. Decided once: their values differ, and a series that
/// jumped between them would look like traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counters {
    Unknown,
    Bytes,
    Kibibytes,
    /// Those of performance monitoring, where no link supports the others.
    Gpm,
}

impl Counters {
    /// Their names as sources, in the order of [`NAMES`].
    fn sources(self) -> Option<[&'static str; 2]> {
        match self {
            Self::Unknown => None,
            Self::Bytes => Some(BYTES_FIELDS),
            Self::Kibibytes => Some(KIBIBYTES_FIELDS),
            Self::Gpm => Some(["gpm"; 2]),
        }
    }
}

/// What is known of the traffic of one GPU's NVLinks.
pub(super) struct Traffic {
    gpu: Labels,
    counters: Counters,
    /// Bytes by link, last known: the sum over links may never fall, or Prometheus would count it all once
    /// more.
    last: Vec<[Option<u64>; 2]>,
    peaks: [Peak; 2],
    /// Speeds of the links at the last sample.
    speeds: Vec<Option<u64>>,
    line_rates: [LineRate; 2],
    read_slow_at: Option<Instant>,
    /// What was read seldom.
    held: Vec<(&'static Metric, Labels, Value)>,
}

impl Traffic {
    pub(super) fn new(gpu: &Labels) -> Self {
        Self {
            gpu: gpu.clone(),
            counters: Counters::Unknown,
            last: Vec::new(),
            peaks: PEAKS.map(|metric| Peak::new(metric, gpu)),
            speeds: Vec::new(),
            line_rates: <[LineRate; 2]>::default(),
            read_slow_at: None,
            held: Vec::new(),
        }
    }

    /// Adds what the links with these numbers and labels carried.
    pub(super) fn sample(
        &mut self,
        device: &Device<'_>,
        links: &[(u32, Labels)],
        gpm: &mut Gpm,
        calls: &mut Calls,
        reading: &mut NodeReading,
    ) {
        self.last.resize(links.len(), [None; 2]);
        self.speeds.resize(links.len(), None);
        calls.section("nvlink_traffic");
        for (rows, counters) in [(&BYTES, Counters::Bytes), (&KIBIBYTES, Counters::Kibibytes)] {
            if (self.counters == Counters::Unknown || self.counters == counters)
                && self.bytes(device, rows, links, calls, reading)
            {
                self.counters = counters;
            }
        }
        let refused = || {
            let mut rows = BYTES.iter().chain(&KIBIBYTES);
            rows.all(|row| {
                let mut links = links.iter();
                links.all(|(link, _)| !calls.wants((row.call, Of::Link(*link))))
            })
        };
        if self.counters == Counters::Gpm
            || self.counters == Counters::Unknown && !links.is_empty() && refused()
        {
            gpm.want_links();
            self.count(gpm, links, calls, reading);
        }
        let counted_at = match self.counters {
            Counters::Gpm => gpm.sampled_at(),
            _ => None,
        };
        self.push_sums(counted_at, reading);
        calls.section("nvlink_details");
        for (row, link, count) in read(device, &DETAILS, links, calls) {
            let value = count.saturating_mul(DETAILS[row].factor);
            if DETAILS[row].metric == &m::NVLINK_SPEED {
                self.speeds[link] = Some(value);
            }
            reading.push(DETAILS[row].metric, &links[link].1, value);
        }
        self.slow(device, links, calls);
        for (metric, labels, value) in &self.held {
            reading.push(metric, labels, value.clone());
        }
    }

    /// Reads bytes by these fields; whether any link has them.
    fn bytes(
        &mut self,
        device: &Device<'_>,
        rows: &[Row; 2],
        links: &[(u32, Labels)],
        calls: &mut Calls,
        reading: &mut NodeReading,
    ) -> bool {
        let counts = read(device, rows, links, calls);
        let now = Instant::now();
        for (row, link, count) in &counts {
            let bytes = count.saturating_mul(rows[*row].factor);
            self.last[*link][*row] = Some(bytes);
            self.line_rates[*row].observe(*link, now, bytes, self.speeds[*link]);
        }
        for (row, link, _) in &counts {
            if !self.line_rates[*row].is_implausible() {
                let bytes = self.last[*link][*row].unwrap_or_default();
                reading.push(rows[*row].metric, &links[*link].1, bytes);
            }
        }
        !counts.is_empty()
    }

    /// Stores the bytes that performance monitoring counted.
    fn count(
        &mut self,
        gpm: &Gpm,
        links: &[(u32, Labels)],
        calls: &Calls,
        reading: &mut NodeReading,
    ) {
        for (last, (link, labels)) in self.last.iter_mut().zip(links) {
            let Some(counters) = link_counters(*link) else {
                continue;
            };
            for (direction, counter) in counters.into_iter().enumerate() {
                if let Counter::Count(bytes) = gpm.counter(counter, calls) {
                    last[direction] = Some(bytes);
                    reading.push(BYTES[direction].metric, labels, bytes);
                    self.counters = Counters::Gpm;
                }
            }
        }
    }

    /// Adds the sums over the links, their highest rates, and where they come from. Performance monitoring
    /// may show one count twice: the rate then is over the time between its own samples.
    fn push_sums(&mut self, counted_at: Option<Instant>, reading: &mut NodeReading) {
        let now = Instant::now();
        for (direction, metric) in SUMS.into_iter().enumerate() {
            if self.line_rates[direction].is_implausible() {
                let labels = self.gpu.with(NAMES[direction]);
                reading.push(&m::GPU_STATISTIC_IMPLAUSIBLE, &labels, true);
                continue;
            }
            let known = self.last.iter().filter_map(|last| last[direction]);
            let Some(sum) = known.reduce(u64::saturating_add) else {
                continue;
            };
            reading.push(metric, &self.gpu, sum);
            let peak = &mut self.peaks[direction];
            peak.observe(counted_at.unwrap_or(now), sum);
            peak.push(now, reading);
            if let Some(sources) = self.counters.sources() {
                push_source(NAMES[direction], sources[direction], &self.gpu, reading);
            }
        }
    }

    fn slow(&mut self, device: &Device<'_>, links: &[(u32, Labels)], calls: &mut Calls) {
        if self
            .read_slow_at
            .is_some_and(|at| at.elapsed() < SLOW_PERIOD)
        {
            return;
        }
        self.read_slow_at = Some(Instant::now());
        self.held.clear();
        calls.section("nvlink_prm");
        prm::read(device, links, calls, &mut self.held);
        calls.section("nvlink_fec");
        for (_, link, packed) in read(device, &[SYMBOL_BER], links, calls) {
            let labels = links[link].1.clone();
            self.held
                .push((SYMBOL_BER.metric, labels, Value::Float(error_rate(packed))));
        }
        let bins: Vec<_> = (0..FEC_BINS)
            .map(|bin| {
                let field = fi::NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_0 + bin;
                row("nvlink_fec", field, &m::NVLINK_FEC_CODEWORDS, 1)
            })
            .collect();
        for (bin, link, words) in read(device, &bins, links, calls) {
            let labels = links[link].1.with(bin);
            self.held
                .push((&m::NVLINK_FEC_CODEWORDS, labels, words.into()));
        }
    }
}

/// Reads these fields of all links in one call: place of the row, place of the link, and the number. A link
/// that refuses a field is omitted.
pub(super) fn read(
    device: &Device<'_>,
    rows: &[Row],
    links: &[(u32, Labels)],
    calls: &mut Calls,
) -> Vec<(usize, usize, u64)> {
    let places = || (0..links.len()).flat_map(|link| (0..rows.len()).map(move |row| (row, link)));
    let wanted: Vec<_> = places()
        .map(|(row, link)| {
            let scope = links[link].0;
            let id = rows[row].field;
            ((rows[row].call, Of::Link(scope)), Field { id, scope })
        })
        .collect();
    let answers = calls.fields(device, &wanted);
    let numbers = places().zip(answers);
    numbers
        .filter_map(|((row, link), number)| Some((row, link, number?.count()?)))
        .collect()
}

/// A bit error rate as NVML packs it: mantissa x 10^-exponent (`NVML_NVLINK_ERROR_COUNTER_BER_GET` in nvml.h:
/// the exponent in the lowest 8 bits, the mantissa in the 4 above).
fn error_rate(packed: u64) -> f64 {
    const EXPONENT: u64 = 0xff;
    const MANTISSA_SHIFT: u32 = 8;
    const MANTISSA: u64 = 0xf;
    let mantissa = packed >> MANTISSA_SHIFT & MANTISSA;
    // At most 255 fits every integer type, and 15e-255 a float.
    let exponent = (packed & EXPONENT) as i32;
    // Powers of ten up to 22 are exact, their inverses are not.
    mantissa as f64 / 10_f64.powi(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_rates_are_unpacked() {
        for (packed, rate) in [(0x50f, 5e-15), (0x108, 1e-8), (0xf00, 15.0), (0, 0.0)] {
            let found = error_rate(packed);
            assert!((found - rate).abs() <= rate * 1e-12, "{packed:#x}: {found}");
        }
    }
}
