//! Share of time in which the tensor cores of a GPU were active lately.

use railscope_model::metric::{
    GPU_MONITORED_SECONDS, GPU_TENSOR_ACTIVE, GPU_TENSOR_ACTIVE_SECONDS, Metric, SOURCE_LATE,
};

use crate::store::{NodeHistory, Window};

/// The exporter's source that reads GPUs.
pub(crate) const SOURCE: &str = "gpu";
/// Share of a window by which the exporter's reads of a node's GPUs may have been late, summed over the GPUs: GPUs that
/// are read late, each at another time, are not compared over the same time (a choice: the exporter counts reads
/// that are 0.1 s late and more, so one that does not wait for a CPU counts nothing).
pub(crate) const MAX_LATE: f64 = 1.0 / 30.0;
/// Samples whose mean is used where no exporter sums them up.
const SAMPLES: usize = 2;

/// Share of the newest `seconds`, from the exporter's sums: a sample of a second shows where in a
/// step it fell as much as what the GPU does. Else the mean of the newest [`SAMPLES`]. `None` of a GPU that reports
/// neither.
pub(crate) fn active_share(said: &NodeHistory, gpu: &str, seconds: f64) -> Option<f64> {
    let sums = Sums::of(|metric| said.window(metric, &[gpu]), seconds);
    sums.map(Sums::share).or_else(|| {
        let samples = said.window(&GPU_TENSOR_ACTIVE, &[gpu])?;
        let newest = samples.values().rev().take(SAMPLES);
        let (sum, count) =
            newest.fold((0.0, 0.0), |(sum, count), share| (sum + share, count + 1.0));
        (count > 0.0).then(|| sum / count)
    })
}

/// Whether the exporter has read the node's GPUs later than it wanted to in the newest `seconds`. Other exporters do not
/// report that.
pub(crate) fn is_read_late(said: &NodeHistory, seconds: f64) -> bool {
    let late = said.window(&SOURCE_LATE, &[SOURCE]);
    let late = late.and_then(|late| late.increase(seconds));
    late.is_some_and(|late| late.amount > MAX_LATE * seconds)
}

/// What an exporter has summed up of a GPU in the newest part of its scrapes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sums {
    /// Time that the scrapes are of, s.
    pub(crate) paged: f64,
    /// Time for which the GPU was watched, s.
    pub(crate) monitored: f64,
    /// Of that, time in which its tensor cores were active, s.
    pub(crate) active: f64,
}

impl Sums {
    /// Over the newest `seconds`, by what the GPU's `window` of a metric is. `None` if it was not measured for that long.
    pub(crate) fn of<'a>(
        window: impl Fn(&'static Metric) -> Option<Window<'a>>,
        seconds: f64,
    ) -> Option<Self> {
        let rise = |metric| window(metric)?.increase(seconds);
        let monitored = rise(&GPU_MONITORED_SECONDS).filter(|rise| rise.amount > 0.0)?;
        Some(Self {
            paged: monitored.seconds,
            monitored: monitored.amount,
            active: rise(&GPU_TENSOR_ACTIVE_SECONDS)?.amount,
        })
    }

    /// Share of the time in which its tensor cores were active.
    pub(crate) fn share(self) -> f64 {
        self.active / self.monitored
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use railscope_model::fabric::Timestamp;

    #[test]
    fn sums_tell_what_samples_do_not_and_samples_where_there_are_no_sums() {
        let mut said = NodeHistory::default();
        for second in [0_u32, 5, 10, 15] {
            // Every sample falls into the same part of a step, and the GPU is read a second late at the end.
            let read = if second == 15 { 14 } else { second };
            let page = format!(
                "railscope_gpu_tensor_active_ratio{{gpu=\"0\"}} 0.9\n\
                 railscope_gpu_monitored_seconds_total{{gpu=\"0\"}} {read}\n\
                 railscope_gpu_tensor_active_seconds_total{{gpu=\"0\"}} {}\n\
                 railscope_gpu_tensor_active_ratio{{gpu=\"1\"}} {}\n",
                0.4 * f64::from(read),
                0.01 * f64::from(second)
            );
            said.ingest(&page, Timestamp(u64::from(second) * 1000));
        }
        let share = |gpu| active_share(&said, gpu, 10.0);
        assert!((share("0").expect("told") - 0.4).abs() < 1e-6);
        // The newest two.
        assert!((share("1").expect("told") - 0.125).abs() < 1e-6);
        assert_eq!(share("2"), None);
    }

    #[test]
    fn a_node_is_read_late_only_by_what_its_exporter_counts_in_the_window() {
        let mut said = NodeHistory::default();
        assert!(!is_read_late(&said, 30.0), "other exporters count nothing");
        for (second, late) in [(0, 9.0), (15, 9.0), (30, 9.9), (45, 10.1)] {
            let page = format!("railscope_source_late_seconds_total{{source=\"gpu\"}} {late}\n");
            said.ingest(&page, Timestamp(second * 1000));
            assert_eq!(is_read_late(&said, 30.0), second == 45, "{second} s");
        }
    }
}
