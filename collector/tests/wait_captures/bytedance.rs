//! ByteDance's traces of single operations to the wait, compute and rest of each rank and step.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use railscope_collector::jobs::straggler::{Rank, StepTimes, union};

pub(crate) struct Job {
    pub(crate) ranks: Vec<Rank>,
    /// Step by step, in the order of the ranks.
    pub(crate) steps: Vec<Vec<Option<StepTimes>>>,
}

type Intervals = Vec<(f64, f64)>;

/// Reads a trace: what ends in `-compute` and the optimizer are kernels, everything else is communication.
pub(crate) fn read(path: &Path) -> Result<Job, Box<dyn std::error::Error>> {
    let file = SerializedFileReader::new(File::open(path)?)?;
    let mut ranks: BTreeMap<u32, Rank> = BTreeMap::new();
    let mut steps: BTreeMap<i64, BTreeMap<u32, (Intervals, Intervals)>> = BTreeMap::new();
    for row in file.get_row_iter(None)? {
        let row = row?;
        // Columns: dp_rank, stage, rank, step, optype, start_ts, duration.
        let (replica, stage) = (
            u32::try_from(row.get_byte(0)?)?,
            u32::try_from(row.get_byte(1)?)?,
        );
        let number = u32::try_from(row.get_short(2)?)?;
        let rank = Rank {
            number,
            stage: Some(stage),
            replica: Some(replica),
            ..Rank::default()
        };
        ranks.insert(number, rank);
        let begin = f64::from(row.get_float(5)?);
        let interval = (begin, begin + f64::from(row.get_float(6)?));
        let of = steps
            .entry(row.get_long(3)?)
            .or_default()
            .entry(number)
            .or_default();
        let kind = row.get_string(4)?;
        if kind.ends_with("-compute") || kind.starts_with("optimizer") {
            of.0.push(interval);
        } else {
            of.1.push(interval);
        }
    }
    let steps = steps.into_values().map(|step| {
        let all = || {
            step.values()
                .flat_map(|(compute, wait)| compute.iter().chain(wait))
        };
        let begin = all().fold(f64::INFINITY, |least, (begin, _)| least.min(*begin));
        let end = all().fold(0.0, |most: f64, (_, end)| most.max(*end));
        let times = ranks.keys().map(|rank| {
            let (compute, wait) = step.get(rank)?;
            let busy = union(compute.iter().copied());
            let any = union(compute.iter().chain(wait).copied());
            // What overlaps with a kernel delays no rank.
            Some(StepTimes {
                step_seconds: end - begin,
                wait_seconds: any - busy,
                compute_seconds: busy,
            })
        });
        times.collect()
    });
    Ok(Job {
        steps: steps.collect(),
        ranks: ranks.into_values().collect(),
    })
}
