//! How much of the time the tensor cores of a GPU were active lately.

use railscope_model::metric::{
    GPU_MONITORED_SECONDS, GPU_TENSOR_ACTIVE, GPU_TENSOR_ACTIVE_SECONDS, Metric,
};

use crate::store::{NodeHistory, Window};

/// Samples of which the mean stands for the time where nobody sums them up.
const SAMPLES: usize = 2;

/// Share of the newest `seconds`, by what the exporter has summed up of them: a sample of a second shows where in a step
/// it fell as much as what the GPU does. Else the mean of the newest [`SAMPLES`]. `None` of a GPU that tells neither.
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

/// What an exporter has summed up of a GPU in the newest part of its pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sums {
    /// Time that the pages are of, s.
    pub(crate) paged: f64,
    /// Time for which the GPU was watched, s.
    pub(crate) monitored: f64,
    /// Of that, time in which its tensor cores were active, s.
    pub(crate) active: f64,
}

impl Sums {
    /// Over the newest `seconds`, by what the GPU's `window` of a metric is. `None` if it was not watched over so much time.
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
}
