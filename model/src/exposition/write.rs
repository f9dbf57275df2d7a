//! Readings as OpenMetrics or Prometheus text, by `prometheus-client`.

use std::cell::RefCell;
use std::fmt;
use std::io;

use flate2::{Compress, Compression, FlushCompress, Status};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::Page;
use crate::metric::{Kind, Metric, Profile};
use crate::reading::{Sample, Value};

/// The text formats that Prometheus scrapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// The Prometheus text format, version 0.0.4.
    Text,
}

/// Bytes per line, headers included: enough for most expositions.
const BYTES_OF_A_SERIES: usize = 128;

impl Page {
    /// Writes the exposition as text.
    pub fn write(&self, format: Format, profile: Profile) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(PageCollector {
            page: self.clone(),
            profile,
        }));
        let mut text = String::with_capacity(BYTES_OF_A_SERIES * self.series(profile));
        // Writing to a String fails only where a value refuses to be encoded, and ours are all numbers.
        // If it happens, a comment keeps the exposition readable and states the error.
        if encode(&mut text, &registry).is_err() {
            text.push_str("# the encoder failed: series are missing\n");
        }
        match format {
            Format::OpenMetrics => text,
            Format::Text => plain_text(&text),
        }
    }
}

/// One exposition in one profile, in `prometheus-client`'s form.
#[derive(Debug)]
struct PageCollector {
    page: Page,
    profile: Profile,
}

impl Collector for PageCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for (metric, samples) in self.page.families(self.profile) {
            let unit = metric.unit.map(|unit| Unit::Other(unit.to_owned()));
            let name = descriptor_name(metric);
            let mut family = encoder.encode_descriptor(
                name,
                metric.help,
                unit.as_ref(),
                metric_type(metric.kind),
            )?;
            for sample in samples {
                encode_sample(&mut family, sample)?;
            }
        }
        Ok(())
    }
}

/// The name in `prometheus-client`'s form: it appends unit and suffix by itself.
fn descriptor_name(metric: &Metric) -> &'static str {
    let family = metric.family();
    match metric.unit {
        Some(unit) => family
            .strip_suffix(unit)
            .and_then(|name| name.strip_suffix('_'))
            .unwrap_or(family),
        None => family,
    }
}

fn metric_type(kind: Kind) -> MetricType {
    match kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Info => MetricType::Info,
        Kind::Histogram => MetricType::Histogram,
    }
}

fn encode_sample(family: &mut MetricEncoder<'_>, sample: &Sample) -> fmt::Result {
    let labels = LabelPairs(sample);
    if sample.metric.kind == Kind::Info {
        return family.encode_info(&labels);
    }
    // An empty family would be written as `name{}`.
    if sample.metric.labels.is_empty() {
        return encode_value(family, sample);
    }
    encode_value(&mut family.encode_family(&labels)?, sample)
}

fn encode_value(series: &mut MetricEncoder<'_>, sample: &Sample) -> fmt::Result {
    match (sample.metric.kind, &sample.value) {
        (Kind::Counter, Value::Int(value)) => {
            series.encode_counter::<NoLabelSet, u64, u64>(value, None)
        }
        (Kind::Counter, Value::Float(value)) => {
            series.encode_counter::<NoLabelSet, f64, u64>(value, None)
        }
        (_, Value::Int(value)) => series.encode_gauge(value),
        (_, Value::Float(value)) => series.encode_gauge(value),
        (_, Value::Histogram(histogram)) => {
            let buckets: Vec<_> = histogram.buckets().collect();
            let (sum, count) = (histogram.sum(), histogram.count());
            series.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        }
    }
}

/// Label names of the metric beside label values of the sample.
struct LabelPairs<'a>(&'a Sample);

impl EncodeLabelSet for LabelPairs<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
        for (name, value) in self.0.metric.labels.iter().zip(self.0.labels.values()) {
            (*name, value).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

/// Turns OpenMetrics into the text format 0.0.4: sample lines are the same in both, headers are not.
///
/// HELP and TYPE there name the series, not the family, and know neither `info` nor UNIT nor EOF: a
/// text parser that reads `# TYPE x info` rejects the entire exposition.
fn plain_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    let mut rest = open_metrics;
    // Only headers begin with a number sign, and a newline within a label is escaped.
    while let Some(line) = rest.strip_prefix('#') {
        let (header, behind) = line.split_once('\n').unwrap_or((line, ""));
        if let Some(about) = header.strip_prefix(" HELP ") {
            help = about.split_once(' ');
        } else if let Some(about) = header.strip_prefix(" TYPE ") {
            write_header(&mut text, help.take(), about);
        }
        if behind.starts_with('#') {
            rest = behind;
            continue;
        }
        let last = memchr::memmem::find(behind.as_bytes(), b"\n#");
        let (samples, headers) = behind.split_at(last.map_or(behind.len(), |newline| newline + 1));
        text.push_str(samples);
        rest = headers;
    }
    text
}

/// HELP and TYPE of a family as the text format has them.
fn write_header(text: &mut String, help: Option<(&str, &str)>, about: &str) {
    let (family, kind) = about.split_once(' ').unwrap_or((about, "untyped"));
    let (suffix, kind) = match kind {
        "counter" => ("_total", "counter"),
        "info" => ("_info", "gauge"),
        other => ("", other),
    };
    if let Some((_, help)) = help {
        text.extend(["# HELP ", family, suffix, " ", help, "\n"]);
    }
    text.extend(["# TYPE ", family, suffix, " ", kind, "\n"]);
}

thread_local! {
    /// A compressor's tables are half a megabyte: writing them again for each exposition, into memory that the kernel
    /// allocates again, would cost as much as the compression.
    static COMPRESSOR: RefCell<Compress> =
        RefCell::new(Compress::new_gzip(Compression::fast(), LARGEST_WINDOW));
}

/// The base-2 logarithm of gzip's largest window, bytes (RFC 1951, 32 kB).
const LARGEST_WINDOW: u8 = 15;

/// Compresses an exposition at the fastest level: compression, not encoding, is the cost of a scrape.
///
/// # Errors
/// None: it writes into memory.
pub fn gzip(page: &[u8]) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|compressor| {
        compressor.reset();
        let mut zipped = Vec::with_capacity(page.len() / 4 + 64);
        loop {
            let unread = &page[usize::try_from(compressor.total_in()).unwrap_or(page.len())..];
            match compressor.compress_vec(unread, &mut zipped, FlushCompress::Finish)? {
                Status::StreamEnd => return Ok(zipped),
                Status::Ok | Status::BufError => zipped.reserve(zipped.capacity().max(64)),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{GPU, GPU_ENERGY, GPU_POWER, GPU_TEMPERATURE_LIMIT};
    use crate::reading::{Labels, NodeReading};
    use std::io::Read as _;
    use std::sync::Arc;

    fn page() -> Page {
        let mut reading = NodeReading::default();
        reading.push(&GPU_POWER, &Labels::new(["0"]), 71.5);
        reading.push(&GPU_ENERGY, &Labels::new(["0"]), 9.0);
        reading.push(
            &GPU_TEMPERATURE_LIMIT,
            &Labels::new(["0", "slowdown"]),
            87.0,
        );
        reading.push(
            &GPU,
            &Labels::new([
                "0",
                "GPU-1",
                "0000:1b:00.0",
                "a \"b\\\n",
                "",
                "",
                "",
                "",
                "",
            ]),
            true,
        );
        reading.normalize();
        Page::new(Arc::new(reading))
    }

    #[test]
    fn the_text_format_knows_no_info_no_unit_and_no_end() {
        let text = page().write(Format::Text, Profile::Default);
        let lines: Vec<_> = text
            .lines()
            .filter(|line| !line.starts_with("# HELP"))
            .collect();
        assert_eq!(
            lines,
            [
                "# TYPE railscope_gpu_info gauge",
                r#"railscope_gpu_info{gpu="0",uuid="GPU-1",pci="0000:1b:00.0",name="a \"b\\\n",serial="",vbios="",driver="",architecture="",numa_node=""} 1"#,
                "# TYPE railscope_gpu_power_watts gauge",
                r#"railscope_gpu_power_watts{gpu="0"} 71.5"#,
                "# TYPE railscope_gpu_energy_joules_total counter",
                r#"railscope_gpu_energy_joules_total{gpu="0"} 9.0"#,
            ]
        );
    }

    #[test]
    fn open_metrics_names_families_and_units_and_ends() {
        let text = page().write(Format::OpenMetrics, Profile::Full);
        assert!(text.contains("# TYPE railscope_gpu info\n"));
        assert!(text.contains("# UNIT railscope_gpu_energy_joules joules\n"));
        assert!(
            text.contains("railscope_gpu_temperature_limit_celsius{"),
            "the full profile shows every sample"
        );
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn what_is_compressed_is_read_back_however_long_and_however_often() {
        let noise = |length: usize| {
            let mut state = 1_u32;
            let byte = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            };
            std::iter::repeat_with(byte)
                .take(length)
                .collect::<Vec<_>>()
        };
        for page in [
            vec![],
            b"x".to_vec(),
            b"railscope ".repeat(20_000),
            noise(300_000),
            b"end".to_vec(),
        ] {
            let zipped = gzip(&page).expect("memory");
            let mut back = Vec::new();
            flate2::read::GzDecoder::new(&*zipped)
                .read_to_end(&mut back)
                .expect("gzip");
            assert!(back == page, "{} bytes", page.len());
        }
    }
}
