//! Work from sums of activity: nothing is missed between two scrapes, and each GPU reports the time that its sums
//! cover.
//!
//! A sample covers about a second, and depends on where in a step it fell as much as on the GPU: a GPU that is read
//! half a second after the others, at a scrape interval of whole steps, always differs from them. Sums over
//! half a minute ([`SUMS`](super::SUMS)) of different GPUs cover the same time but for their ends. The error that the ends can make
//! for a job whose work changes is estimated from how much it did change ([`Counted::misread`]).

use railscope_model::fabric::Timestamp;
use railscope_model::identity::NodeName;
use railscope_model::metric::{GPU_MONITORED_SECONDS, GPU_TENSOR_ACTIVE_CYCLES, SOURCE_AGE};

use super::{MIN_ACTIVE, MIN_SEEN, PIECE_SECONDS, READ_APART, Worker};
use crate::detect::gpus::Listed;
use crate::detect::peers::{MIN_PEERS, median};
use crate::jobs::tensor_activity::{SOURCE, Sums, is_read_late};
use crate::store::Window;

/// What a GPU has reported about its work.
struct Told<'a> {
    gpu: Listed<'a>,
    sums: Sums,
    /// Cycles a second in which its tensor cores were active, where the driver counts them.
    cycles: Option<f64>,
}

impl<'a> Told<'a> {
    /// `None` of a GPU that has not reported enough.
    fn by(gpu: &Listed<'a>, seconds: f64) -> Option<Self> {
        let sums = sums(gpu, seconds).filter(|sums| sums.paged >= MIN_SEEN * seconds)?;
        let cycles = gpu.window(&GPU_TENSOR_ACTIVE_CYCLES);
        let cycles = cycles.and_then(|cycles| cycles.increase(seconds));
        Some(Self {
            gpu: *gpu,
            sums,
            cycles: cycles.map(|rise| rise.amount / sums.monitored),
        })
    }

    /// Seconds by which its sums may begin or end elsewhere than those of others: the maximum age of
    /// the exporter's GPU readings, plus the difference between the time that the sums cover and
    /// that of the scrapes.
    fn is_off_by(&self) -> f64 {
        let ages = self.gpu.history.window(&SOURCE_AGE, &[SOURCE]);
        let ages = ages.into_iter().flat_map(Window::values);
        ages.fold(READ_APART, f64::max) + (self.sums.monitored - self.sums.paged).abs()
    }

    /// Clocks of the time that the scrapes are of.
    fn clocks(&self) -> impl Iterator<Item = f64> {
        let newest = self.gpu.clock().and_then(|clock| Some(clock.latest()?.0));
        let told = self.gpu.clock().into_iter().flat_map(Window::told);
        let is_of_it = move |(at, _): &(Timestamp, f64)| {
            newest.is_some_and(|newest| newest.seconds_since(*at) <= self.sums.paged)
        };
        told.take_while(is_of_it).map(|(_, clock)| clock)
    }

    /// Activity times the mean clock.
    fn work(&self) -> Option<f64> {
        let (sum, count) = self
            .clocks()
            .fold((0.0, 0.0), |(sum, count), clock| (sum + clock, count + 1.0));
        (count > 0.0).then(|| self.sums.share() * sum / count)
    }

    /// By how much its clock has changed, as a share of the highest: activity is not at the mean clock then, as a throttled GPU
    /// is active longer while throttled.
    fn clock_change(&self) -> f64 {
        let (low, high) = self
            .clocks()
            .fold((f64::INFINITY, 0.0_f64), |(low, high), clock| {
                (low.min(clock), high.max(clock))
            });
        (high - low) / high
    }
}

/// What the exporter has summed up of a GPU.
fn sums(gpu: &Listed<'_>, seconds: f64) -> Option<Sums> {
    Sums::of(|metric| gpu.window(metric), seconds)
}

/// Sums of the GPUs of a node, and what each does against the middle one.
pub(super) struct Counted<'a> {
    told: Vec<Told<'a>>,
    ratios: Vec<f64>,
    /// Time that they are of, s.
    seconds: f64,
}

impl<'a> Counted<'a> {
    /// Whether the exporter sums up what this GPU does.
    pub(super) fn is_told_by(gpu: &Listed<'_>) -> bool {
        gpu.window(&GPU_MONITORED_SECONDS).is_some()
    }

    /// Over the newest `seconds`. `None` of GPUs that have reported or done too little.
    pub(super) fn of(gpus: &[Listed<'a>], seconds: f64) -> Option<Self> {
        let told = gpus.iter().filter_map(|gpu| Told::by(gpu, seconds));
        let told: Vec<_> = told.collect();
        let shares = told.iter().map(|told| told.sums.share());
        if told.len() < MIN_PEERS || median(shares)? < MIN_ACTIVE {
            return None;
        }
        let cycles: Option<Vec<_>> = told.iter().map(|told| told.cycles).collect();
        let work: Vec<_> = match cycles {
            Some(cycles) => cycles,
            None => told.iter().map(Told::work).collect::<Option<_>>()?,
        };
        let middle = median(work.iter().copied()).filter(|middle| *middle > 0.0)?;
        Some(Self {
            ratios: work.into_iter().map(|work| work / middle).collect(),
            told,
            seconds,
        })
    }

    pub(super) fn node(&self) -> Option<&'a NodeName> {
        self.told.first().map(|told| told.gpu.node)
    }

    pub(super) fn workers(&self) -> Vec<Worker<'a>> {
        let workers = self.told.iter().zip(&self.ratios);
        let workers = workers.map(|(told, ratio)| Worker {
            gpu: told.gpu,
            active: told.sums.share(),
            ratio: *ratio,
            usual: *ratio,
        });
        workers.collect()
    }

    pub(super) fn ratios(&self) -> Vec<f64> {
        self.ratios.clone()
    }

    /// Whether a GPU did more than the middle one in every third of the time: work that is uneven for a while is not.
    pub(super) fn does_more_throughout(&self, gpu: &Listed<'_>, excess: f64) -> bool {
        let third = |piece: u32| {
            let work: Vec<_> = self
                .told
                .iter()
                .map(|told| self.work_in(piece, told))
                .collect();
            let middle = median(work.iter().flatten().copied())?;
            let place = self
                .told
                .iter()
                .position(|told| told.gpu.index == gpu.index)?;
            Some(work[place]? / middle)
        };
        (0..3)
            .filter_map(third)
            .all(|ratio| ratio > 1.0 + excess / 3.0)
    }

    /// Work per second in one of three equal parts of the time, the newest first.
    fn work_in(&self, third: u32, told: &Told<'_>) -> Option<f64> {
        let length = told.sums.paged / 3.0;
        let until = |thirds: u32| {
            let seconds = length * f64::from(thirds);
            let sums = sums(&told.gpu, seconds)?;
            let cycles = told.gpu.window(&GPU_TENSOR_ACTIVE_CYCLES);
            let cycles = cycles.and_then(|cycles| cycles.increase(seconds));
            Some((
                sums.monitored,
                cycles.map_or(sums.active, |rise| rise.amount),
            ))
        };
        let whole = until(third + 1)?;
        let newer = until(third).unwrap_or_default();
        let monitored = whole.0 - newer.0;
        (monitored > 0.0).then(|| (whole.1 - newer.1) / monitored)
    }

    /// The excess that a GPU shows if it does what the others do, and its sums are of a time that begins or ends
    /// elsewhere: the work in the seconds between, at most the difference of the busiest and the idlest
    /// [`PIECE_SECONDS`], as a share of all; plus the change of its clock, unless cycles are counted.
    /// `None` of another node's GPU, and where no GPU works any more: the work before a job stopped is not
    /// evaluated here. `None`, too, where scrapes have a gap or the exporter was late.
    pub(super) fn misread(&self, gpu: &Listed<'_>) -> Option<f64> {
        let mut told = self.told.iter();
        let told = told.find(|told| told.gpu.index == gpu.index)?;
        let monitored = gpu.window(&GPU_MONITORED_SECONDS)?;
        if !monitored.is_unbroken(self.seconds) || is_read_late(gpu.history, self.seconds) {
            return None;
        }
        let pieces = self.pieces(told.sums.paged);
        // A scrape that comes a little late is in the second.
        let newest = pieces.iter().take(2).flatten().next()?;
        if *newest < MIN_ACTIVE {
            return None;
        }
        let by_clock = self.told.iter().any(|told| told.cycles.is_none());
        let clock = if by_clock { told.clock_change() } else { 0.0 };
        Some(clock + told.is_off_by() * self.unsteadiness(&pieces)? / told.sums.monitored)
    }

    /// Excess of the busiest piece of the window over the idlest, as a share of the mean.
    fn unsteadiness(&self, pieces: &[Option<f64>]) -> Option<f64> {
        let told = || pieces.iter().flatten().copied();
        let (idlest, busiest) = told().fold((f64::INFINITY, 0.0_f64), |(low, high), share| {
            (low.min(share), high.max(share))
        });
        let mean = median(self.told.iter().map(|told| told.sums.share()))?;
        // One scrape is too few to decide.
        let is_known = told().count() > 1;
        Some(if is_known {
            (busiest - idlest) / mean
        } else {
            1.0
        })
    }

    /// Activity of the middle GPU in each piece of the time, the newest first.
    fn pieces(&self, paged: f64) -> Vec<Option<f64>> {
        let count = (paged / PIECE_SECONDS).floor().max(1.0);
        let pieces = (0..count as u32).map(|piece| self.share_in(piece, paged / count));
        pieces.collect()
    }

    fn share_in(&self, piece: u32, length: f64) -> Option<f64> {
        let until = |pieces: u32, told: &Told<'_>| sums(&told.gpu, length * f64::from(pieces));
        let share = |told: &Told<'_>| {
            let whole = until(piece + 1, told)?;
            let newer = until(piece, told);
            let newer = newer.map_or((0.0, 0.0), |newer| (newer.monitored, newer.active));
            let monitored = whole.monitored - newer.0;
            (monitored > 0.0).then(|| (whole.active - newer.1) / monitored)
        };
        median(self.told.iter().filter_map(share))
    }
}
