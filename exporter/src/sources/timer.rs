//! How late timers fire: a thread on the CPUs of one NUMA node that sleeps until a given instant, over and over.
//!
//! What makes it late is what makes a network thread or a kernel launch late: a hypervisor that ran
//! something else, firmware interrupts, long interrupt handlers, a CPU that others keep busy.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use railscope_model::reading::Latencies;
use rustix::thread::{CpuSet, clock_nanosleep_absolute, sched_setaffinity};
use rustix::time::{ClockId, Timespec};

use super::clock::{SECOND, nanos};
use super::sysfs::Miss;

/// Share of one CPU that all probes of a machine may use together: a third of what the exporter as a whole is
/// allowed, 0.3 %. A wake-up costs 2 us on bare metal, but 17 to 70 us was measured in virtual machines, most
/// on those that have nothing else to do, so no fixed period keeps to it.
pub const MAX_SHARE: f64 = 0.001;

/// Times between two wake-ups, nanoseconds: a probe takes the shortest that keeps to its share. Few
/// and far apart, so that equal nodes take the same.
pub const PERIODS_NANOS: [u64; 8] = [
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
];

/// The period before the first wake-ups were paid for.
const FIRST_PERIOD_NANOS: u64 = 10_000_000;
/// Wake-ups between two measurements of their cost.
const REVIEW: u64 = 128;
/// By default Linux lets a timer fire up to 50 us late, to wake the CPU once for several: that would be
/// the very delay that is measured. This disables it.
const TIMER_SLACK_NANOS: NonZeroU64 = NonZeroU64::MIN;

/// `USER_HZ`: the unit in which `/proc/stat` counts time, a second's worth of ticks.
pub fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second()
}

/// The cells of [`Latencies`], written by one thread and read by another.
#[derive(Debug)]
struct Cells([AtomicU64; Latencies::CELLS]);

impl Default for Cells {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Latencies::CELLS])
    }
}

/// What a probe has seen so far, shared between its thread and the sampler.
#[derive(Debug, Default)]
struct Tally {
    cells: Cells,
    sum_nanos: AtomicU64,
    max_nanos: AtomicU64,
    period_nanos: AtomicU64,
    stop: AtomicBool,
}

impl Tally {
    fn note(&self, late: u64) {
        self.cells.0[Latencies::cell_of(late)].fetch_add(1, Ordering::Relaxed);
        self.sum_nanos.fetch_add(late, Ordering::Relaxed);
        self.max_nanos.fetch_max(late, Ordering::Relaxed);
    }

    fn delays(&self) -> Latencies {
        let count = |cell: usize| self.cells.0[cell].load(Ordering::Relaxed);
        Latencies::from_cells(count, self.sum_nanos.load(Ordering::Relaxed))
    }
}

/// The clocks of a thread, nanoseconds. Tests have one that is late on request.
trait Clock {
    /// Time that never jumps.
    fn now(&self) -> u64;
    /// CPU time that this thread has used.
    fn used(&self) -> u64;
    /// Sleeps until [`Clock::now`] is at least `wake`.
    fn sleep_until(&self, wake: u64);
}

/// The kernel's own.
struct KernelClock;

impl Clock for KernelClock {
    fn now(&self) -> u64 {
        nanos(ClockId::Monotonic)
    }

    fn used(&self) -> u64 {
        nanos(ClockId::ThreadCPUTime)
    }

    fn sleep_until(&self, wake: u64) {
        let wake = Timespec {
            tv_sec: (wake / SECOND) as _,
            tv_nsec: (wake % SECOND) as _,
        };
        // A signal ends the sleep early; the same instant is then slept for again.
        while clock_nanosleep_absolute(ClockId::Monotonic, &wake) == Err(rustix::io::Errno::INTR) {}
    }
}

/// Sleeps and tallies until requested to stop.
fn watch(clock: &impl Clock, tally: &Tally, share: f64) {
    let mut period = FIRST_PERIOD_NANOS;
    let mut wake = clock.now() + period;
    let (mut wakes, mut used) = (0, clock.used());
    tally.period_nanos.store(period, Ordering::Relaxed);
    while !tally.stop.load(Ordering::Relaxed) {
        clock.sleep_until(wake);
        let now = clock.now();
        tally.note(now.saturating_sub(wake));
        wakes += 1;
        if wakes == REVIEW {
            let before = std::mem::replace(&mut used, clock.used());
            period = period_for((used - before) / REVIEW, share);
            tally.period_nanos.store(period, Ordering::Relaxed);
            wakes = 0;
        }
        // One stall is one late wake-up: those that it swallowed are skipped, not repeated.
        let missed = now.saturating_sub(wake) / period;
        wake += (missed + 1) * period;
    }
}

/// The shortest period at which wake-ups of this cost keep to a share of one CPU, else the longest.
fn period_for(cost_nanos: u64, share: f64) -> u64 {
    let fits = |period: &&u64| cost_nanos as f64 <= **period as f64 * share;
    let longest = PERIODS_NANOS[PERIODS_NANOS.len() - 1];
    PERIODS_NANOS.iter().find(fits).copied().unwrap_or(longest)
}

/// A thread that watches timers on some CPUs. Ends when dropped.
#[derive(Debug)]
pub struct Probe {
    tally: Arc<Tally>,
    thread: Option<JoinHandle<()>>,
}

impl Probe {
    /// Starts a probe on these CPUs that may use a share of one CPU; it may run on any one of them.
    ///
    /// # Errors
    /// [`Miss::Unsupported`] where this process may run on none of them (a container's CPU set), or the
    /// thread could not be started.
    pub fn start(name: String, cpus: &[usize], share: f64) -> Result<Self, Miss> {
        let mut set = CpuSet::new();
        for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
            set.set(*cpu);
        }
        let tally = Arc::new(Tally::default());
        let (ready, started) = mpsc::channel();
        let watched = Arc::clone(&tally);
        let run = move || {
            let prepared = prepare(&set);
            let starts = prepared.is_ok();
            // The receiver is gone only where the caller is gone too.
            ready.send(prepared).ok();
            if starts {
                watch(&KernelClock, &watched, share);
            }
        };
        let thread = thread::Builder::new().name(name).spawn(run);
        let probe = Self {
            tally,
            thread: Some(thread.map_err(|error| Miss::from(&error))?),
        };
        started.recv().map_err(|_| Miss::Failed)??;
        Ok(probe)
    }

    /// How late its wake-ups were since it began.
    pub fn delays(&self) -> Latencies {
        self.tally.delays()
    }

    /// The latest wake-up since the last call, nanoseconds.
    pub fn take_max_nanos(&self) -> u64 {
        self.tally.max_nanos.swap(0, Ordering::Relaxed)
    }

    /// Time between two wake-ups now, nanoseconds.
    pub fn period_nanos(&self) -> u64 {
        self.tally.period_nanos.load(Ordering::Relaxed)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.tally.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It wakes within one period. That it panicked has been reported on stderr.
            thread.join().ok();
        }
    }
}

/// Ties the calling thread to its CPUs and lets its timers be exact.
fn prepare(cpus: &CpuSet) -> Result<(), Miss> {
    sched_setaffinity(None, cpus)?;
    rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NANOS))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use railscope_model::metric::LATENCY_BOUNDS_NANOS as BOUNDS_NANOS;
    use std::cell::{Cell, RefCell};
    use std::time::{Duration, Instant};

    /// A clock whose sleeps end late by what a script reports, and stop the probe when it is at its
    /// end.
    struct Script<'a> {
        now: Cell<u64>,
        late: RefCell<Vec<u64>>,
        woken_at: RefCell<Vec<u64>>,
        cost: u64,
        tally: &'a Tally,
    }

    impl Clock for Script<'_> {
        fn now(&self) -> u64 {
            self.now.get()
        }

        fn used(&self) -> u64 {
            self.cost * self.woken_at.borrow().len() as u64
        }

        fn sleep_until(&self, wake: u64) {
            let mut late = self.late.borrow_mut();
            self.now.set(wake + late.remove(0));
            self.woken_at.borrow_mut().push(wake);
            self.tally.stop.store(late.is_empty(), Ordering::Relaxed);
        }
    }

    /// What a probe tallies that is late by these nanoseconds, and when it wanted to wake.
    fn run(late: &[u64], cost: u64) -> (Latencies, u64, Vec<u64>) {
        let tally = Tally::default();
        let clock = Script {
            now: Cell::new(0),
            late: RefCell::new(late.to_vec()),
            woken_at: RefCell::default(),
            cost,
            tally: &tally,
        };
        watch(&clock, &tally, 0.0015);
        let period = tally.period_nanos.load(Ordering::Relaxed);
        (tally.delays(), period, clock.woken_at.take())
    }

    #[test]
    fn a_stall_is_counted_once_in_its_bucket_whatever_it_swallows() {
        let us = 1_000;
        for (late, bucket, above) in [
            (0, 0, [0, 0, 0]),
            (5 * us, 0, [0, 0, 0]),
            (5 * us + 1, 1, [0, 0, 0]),
            (50 * us, 3, [0, 0, 0]),
            (50 * us + 1, 4, [1, 0, 0]),
            (200 * us, 5, [1, 0, 0]),
            (201 * us, 6, [1, 1, 0]),
            (1_000 * us, 7, [1, 1, 0]),
            (1_001 * us, 8, [1, 1, 1]),
            (95_000 * us, 9, [1, 1, 1]),
            (100_001 * us, 10, [1, 1, 1]),
        ] {
            let (delays, ..) = run(&[0, late, 0], 0);
            let mut expected = [0; BOUNDS_NANOS.len() + 1];
            expected[0] = 2;
            expected[bucket] += 1;
            assert_eq!(delays.by_bound(), expected, "{late} ns");
            let found = [50, 200, 1_000].map(|bound| delays.above(bound * us));
            assert_eq!((found, delays.sum_nanos()), (above, late), "{late} ns");
        }
    }

    #[test]
    fn wake_ups_keep_to_their_grid_after_a_stall() {
        let period = FIRST_PERIOD_NANOS;
        let (_, _, woken_at) = run(&[0, 3 * period + 5, 0, 0], 0);
        assert_eq!(woken_at, [period, 2 * period, 6 * period, 7 * period]);
    }

    #[test]
    fn the_period_is_the_shortest_that_keeps_to_the_budget() {
        for (cost_us, period_ms) in [
            (0, 1),
            (1, 1),
            (2, 2),
            (7, 5),
            (17, 20),
            (23, 20),
            (70, 50),
            (500, 200),
        ] {
            let enough = vec![0; usize::try_from(REVIEW).expect("small") + 1];
            let (_, period, _) = run(&enough, cost_us * 1_000);
            assert_eq!(period, period_ms * 1_000_000, "{cost_us} us a wake-up");
        }
    }

    #[test]
    fn the_thresholds_that_are_counted_are_bounds() {
        for us in [50, 200, 1_000] {
            assert!(BOUNDS_NANOS.contains(&(us * 1_000)));
        }
        assert!(BOUNDS_NANOS.is_sorted());
        assert_eq!(BOUNDS_NANOS.last(), Some(&100_000_000));
    }

    #[test]
    fn a_real_probe_counts_and_ends_and_one_without_cpus_does_not_start() {
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).collect();
        let probe = Probe::start("probe".to_owned(), &cpus, MAX_SHARE).expect("a probe");
        let begun = Instant::now();
        while probe.delays().count() < 3 {
            assert!(begun.elapsed() < Duration::from_secs(60), "no wake-up");
            thread::sleep(Duration::from_millis(5));
        }
        assert!(PERIODS_NANOS.contains(&probe.period_nanos()));
        assert_eq!(
            Probe::start("probe".to_owned(), &[], MAX_SHARE).err(),
            Some(Miss::Unsupported)
        );
    }
}
