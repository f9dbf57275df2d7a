//! The training job: synchronous steps over all nodes, each as long as its slowest GPU and NIC make it.
//!
//! Step time is the maximum over ranks, all ranks share it, and the straggler is the one that waits
//! least (physics of synchronous data parallelism, as every straggler study finds it).

/// What a healthy step is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Time that a GPU at full clock computes in each step.
    pub compute_seconds: f64,
    /// Bytes that each NIC sends, and as many that it receives, in each step, where nothing overlaps
    /// them: the exposed part of the collective.
    pub bytes_per_step: f64,
}

impl Default for Workload {
    /// 0.45 s of compute and 0.15 s of exposed communication at 49 GB/s: a quarter of the step, as in
    /// large data-parallel jobs (an engineering choice, so that a fault of one link can be felt).
    fn default() -> Self {
        Self {
            compute_seconds: 0.45,
            bytes_per_step: 7.35e9,
        }
    }
}

/// What a step is made of under the conditions of the moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Time until the slowest GPU has computed.
    pub compute_seconds: f64,
    /// Bytes per second at which every NIC moves data in the collective: that of the slowest one.
    pub bytes_per_second: f64,
}

impl Pace {
    /// Length of a step; none if data stands still.
    pub fn step_seconds(&self, workload: &Workload) -> Option<f64> {
        (self.bytes_per_second > 0.0)
            .then(|| self.compute_seconds + workload.bytes_per_step / self.bytes_per_second)
    }
}

/// What the job did in a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    /// Time in which GPUs computed or waited for the slowest GPU.
    pub compute_seconds: f64,
    /// Time in the collective.
    pub collective_seconds: f64,
    /// Bytes that each NIC sent, and as many that it received.
    pub bytes: f64,
    /// Steps that were finished.
    pub steps: u64,
}

impl Progress {
    /// All the time.
    pub fn seconds(&self) -> f64 {
        self.compute_seconds + self.collective_seconds
    }
}

/// Where in its step the job is: what is still to be done, as a share of the phase.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Compute(f64),
    Collective(f64),
}

/// The job, somewhere in a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    workload: Workload,
    phase: Phase,
}

impl Job {
    /// A job at the start of a step.
    pub const fn new(workload: Workload) -> Self {
        Self {
            workload,
            phase: Phase::Compute(1.0),
        }
    }

    /// What a healthy step is made of.
    pub const fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Goes on for some seconds at a pace. A pace that changes in the middle of a phase changes only
    /// what is left of it.
    pub fn advance(&mut self, seconds: f64, pace: &Pace) -> Progress {
        let mut progress = Progress::default();
        let mut left = seconds;
        while left > 0.0 {
            match self.phase {
                Phase::Compute(share) => {
                    let spent = left.min(share * pace.compute_seconds);
                    progress.compute_seconds += spent;
                    let rest = share - spent / pace.compute_seconds;
                    // Below a billionth of a phase is rounding, and would loop for ever.
                    self.phase = if rest > 1e-9 {
                        Phase::Compute(rest)
                    } else {
                        Phase::Collective(1.0)
                    };
                    left -= spent;
                }
                Phase::Collective(_) if pace.bytes_per_second <= 0.0 => {
                    progress.collective_seconds += left;
                    left = 0.0;
                }
                Phase::Collective(share) => {
                    let whole = self.workload.bytes_per_step / pace.bytes_per_second;
                    let spent = left.min(share * whole);
                    progress.collective_seconds += spent;
                    progress.bytes += spent * pace.bytes_per_second;
                    let rest = share - spent / whole;
                    if rest > 1e-9 {
                        self.phase = Phase::Collective(rest);
                    } else {
                        self.phase = Phase::Compute(1.0);
                        progress.steps += 1;
                    }
                    left -= spent;
                }
            }
        }
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_bytes_are_conserved_however_the_time_is_cut() {
        let pace = Pace {
            compute_seconds: 0.45,
            bytes_per_second: 49e9,
        };
        let mut whole = Job::new(Workload::default());
        let all = whole.advance(60.0, &pace);
        assert_eq!(all.steps, 100);
        assert!((all.seconds() - 60.0).abs() < 1e-6);
        assert!((all.bytes / 100.0 / 7.35e9 - 1.0).abs() < 1e-6);

        let mut cut = Job::new(Workload::default());
        let bytes: f64 = (0..600).map(|_| cut.advance(0.1, &pace).bytes).sum();
        assert!((bytes / all.bytes - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_job_without_bandwidth_waits_in_its_collective() {
        let pace = Pace {
            compute_seconds: 0.45,
            bytes_per_second: 0.0,
        };
        let mut job = Job::new(Workload::default());
        let progress = job.advance(10.0, &pace);
        assert_eq!((progress.steps, progress.bytes), (0, 0.0));
        assert!((progress.collective_seconds - 9.55).abs() < 1e-9);
        assert_eq!(pace.step_seconds(job.workload()), None);
    }
}
