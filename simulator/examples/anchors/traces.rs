//! Public traces of real clusters, read from beside the checkout.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

/// Anything that is wrong with a file.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// Times in seconds and bytes so far.
pub(crate) type Counter = Vec<(f64, f64)>;

/// The folder with the traces; none if this checkout has no recordings beside it.
pub(crate) fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/captures/traces");
    folder.is_dir().then_some(folder)
}

fn text(path: &Path) -> Result<String, Failure> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut bytes = Vec::new();
    MultiGzDecoder::new(file).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Seconds that the ports of a leaf were recorded for.
pub(crate) const RECORDED_SECONDS: f64 = 1500.0;

/// Bytes that each port of a leaf of the Zhejiang Lab cluster has sent, by the port's name.
pub(crate) fn leaf(folder: &Path, leaf: u8) -> Result<BTreeMap<String, Counter>, Failure> {
    /// The first millisecond of the recording.
    const BEGIN_MS: f64 = 1_716_480_000_000.0;
    let path = folder.join(format!(
        "zhejiang/leaf_ports_pod1_t0-1500/Leaf-{leaf}.csv.gz"
    ));
    let mut ports: BTreeMap<String, Counter> = BTreeMap::new();
    for line in text(&path)?.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let [moment, port, _, _, _, sent] = cells[..] else {
            return Err(format!("found {line:?}, expected six cells").into());
        };
        let (moment, sent): (f64, f64) = (moment.parse()?, sent.parse()?);
        let counter = ports.entry(port.to_owned()).or_default();
        let total = counter.last().map_or(0.0, |last| last.1) + sent;
        counter.push(((moment - BEGIN_MS) / 1000.0, total));
    }
    Ok(ports)
}

/// Whether a port goes to a server.
pub(crate) fn is_server(port: &str) -> bool {
    port.starts_with("TwoHundredGigE")
}

/// Whether a port goes to a spine: the middle thirty of the large ones, the others are not cabled.
pub(crate) fn is_uplink(port: &str) -> bool {
    let number = port.strip_prefix("FourHundredGigE1/0/");
    number.is_some_and(|number| number.parse().is_ok_and(|n| (33..=62).contains(&n)))
}

/// Lengths of the steps of the training log of the same cluster, in seconds: time between two lines that
/// report a step.
pub(crate) fn logged_steps(folder: &Path) -> Result<Vec<f64>, Failure> {
    let text = text(&folder.join("zhejiang/llama2-7b-master.log.gz"))?;
    // The last report is a summary and not a step.
    let reports = text.lines();
    let reports = reports.filter(|line| line.contains(":on_log] loss: "));
    let moments: Vec<f64> = reports.filter_map(moment).collect();
    Ok(moments.windows(2).map(|pair| pair[1] - pair[0]).collect())
}

/// Seconds since the start of the month: `[2024-04-29 06:53:57,335]`. The log ends before the month does.
fn moment(line: &str) -> Option<f64> {
    let (date, time) = line.strip_prefix('[')?.split_once(']')?.0.split_once(' ')?;
    let day: f64 = date.rsplit('-').next()?.parse().ok()?;
    let time = time.replace(',', ".");
    let seconds = time.split(':').try_fold(0.0, |sum, part| {
        part.parse::<f64>().ok().map(|part| sum * 60.0 + part)
    })?;
    Some(day * 86_400.0 + seconds)
}

/// A job of ByteDance, step by step.
pub(crate) struct Job {
    /// Length of each traced step, in seconds.
    pub(crate) steps: Vec<f64>,
    /// Seconds of compute in each traced step, by pipeline stage and rank.
    pub(crate) compute: BTreeMap<(i8, i16), Vec<f64>>,
    /// Seconds of single forward passes, by stage and rank.
    pub(crate) forward: BTreeMap<(i8, i16), Vec<f64>>,
}

/// Reads the job `AR` or `ST`.
pub(crate) fn job(folder: &Path, name: &str) -> Result<Job, Failure> {
    let path = folder.join(format!("bytedance-{name}/trace-{name}.parquet"));
    let file = SerializedFileReader::new(File::open(path)?)?;
    let mut spans: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
    let mut compute: BTreeMap<(i8, i16), BTreeMap<i64, f64>> = BTreeMap::new();
    let mut forward: BTreeMap<(i8, i16), Vec<f64>> = BTreeMap::new();
    for row in file.get_row_iter(None)? {
        let row = row?;
        // Columns: dp_rank, stage, rank, step, optype, start_ts, duration.
        let (place, step) = ((row.get_byte(1)?, row.get_short(2)?), row.get_long(3)?);
        let begin = f64::from(row.get_float(5)?);
        let seconds = f64::from(row.get_float(6)?);
        let span = spans.entry(step).or_insert((begin, begin));
        *span = (span.0.min(begin), span.1.max(begin + seconds));
        let kind = row.get_string(4)?;
        if kind.ends_with("-compute") {
            *compute.entry(place).or_default().entry(step).or_default() += seconds;
        }
        if kind == "forward-compute" {
            forward.entry(place).or_default().push(seconds);
        }
    }
    Ok(Job {
        steps: spans.values().map(|(begin, end)| end - begin).collect(),
        compute: compute
            .into_iter()
            .map(|(place, steps)| (place, steps.into_values().collect()))
            .collect(),
        forward,
    })
}
