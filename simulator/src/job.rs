//! A running job: synchronous steps over its nodes, each as long as its slowest GPU and cable make it.
//!
//! Step time is the maximum over ranks, all ranks share it, and the straggler is the one that waits
//! least (physics of synchronous data parallelism, as every straggler study finds it).

/// What a step is made of under the conditions of the moment: how long each phase takes. The first is
/// compute, the others are the collectives in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    phases: Vec<f64>,
}

impl Pace {
    /// Time until the slowest GPU has computed, and that of each collective; infinite where data stands
    /// still.
    pub fn new(compute_seconds: f64, collectives: impl IntoIterator<Item = f64>) -> Self {
        Self {
            phases: std::iter::once(compute_seconds)
                .chain(collectives)
                .collect(),
        }
    }

    /// Time until the slowest GPU has computed.
    pub fn compute_seconds(&self) -> f64 {
        self.phases[0]
    }

    /// The same with another length of compute.
    #[must_use]
    pub fn with_compute(&self, seconds: f64) -> Self {
        Self::new(seconds, self.collectives().iter().copied())
    }

    /// The same without communication.
    #[must_use]
    pub fn without_collectives(&self) -> Self {
        let collectives = self.collectives().iter();
        Self::new(self.compute_seconds(), collectives.map(|_| 0.0))
    }

    /// Length of each collective.
    pub fn collectives(&self) -> &[f64] {
        &self.phases[1..]
    }

    /// Length of a step; none if data stands still.
    pub fn step_seconds(&self) -> Option<f64> {
        let step: f64 = self.phases.iter().sum();
        step.is_finite().then_some(step)
    }
}

/// What the job did in a stretch of time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Progress {
    /// Time in which GPUs computed or waited for the slowest GPU.
    pub compute_seconds: f64,
    /// Time in collectives.
    pub collective_seconds: f64,
    /// How often each collective was done, in parts too.
    pub collectives: Vec<f64>,
    /// Steps that were finished.
    pub steps: u64,
}

impl Progress {
    /// All the time.
    pub fn seconds(&self) -> f64 {
        self.compute_seconds + self.collective_seconds
    }
}

/// Where in its step a job is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clockwork {
    phase: usize,
    /// Share of the phase that is still to be done.
    left: f64,
}

impl Default for Clockwork {
    /// At the start of a step.
    fn default() -> Self {
        Self {
            phase: 0,
            left: 1.0,
        }
    }
}

impl Clockwork {
    /// Goes on for some seconds at a pace. A pace that changes in the middle of a phase changes only
    /// what is left of it.
    pub fn advance(&mut self, seconds: f64, pace: &Pace) -> Progress {
        let mut progress = Progress {
            collectives: vec![0.0; pace.phases.len() - 1],
            ..Progress::default()
        };
        let mut left = seconds;
        while left > 0.0 {
            if (self.phase, self.left) == (0, 1.0) {
                left -= whole_steps(left, pace, &mut progress);
            }
            let whole = pace.phases[self.phase];
            let spent = left.min(self.left * whole);
            // An infinite phase makes no progress, and one of no length is done at once.
            let done = if whole > 0.0 {
                spent / whole
            } else {
                self.left
            };
            progress.add(self.phase, spent, done);
            self.left -= done;
            left -= spent;
            // Below a billionth of a phase is rounding, and would loop for ever.
            if self.left <= 1e-9 {
                self.phase = (self.phase + 1) % pace.phases.len();
                self.left = 1.0;
                progress.steps += u64::from(self.phase == 0);
            } else if left <= 1e-12 {
                break;
            }
        }
        progress
    }
}

impl Progress {
    fn add(&mut self, phase: usize, seconds: f64, done: f64) {
        match phase.checked_sub(1) {
            None => self.compute_seconds += seconds,
            Some(collective) => {
                self.collective_seconds += seconds;
                self.collectives[collective] += done;
            }
        }
    }
}

/// All steps but the last that fit, at once: hours of history cost no more than a step.
fn whole_steps(seconds: f64, pace: &Pace, progress: &mut Progress) -> f64 {
    let Some(step) = pace.step_seconds() else {
        return 0.0;
    };
    let steps = (seconds / step).floor() - 1.0;
    if steps < 1.0 {
        return 0.0;
    }
    for (phase, length) in pace.phases.iter().enumerate() {
        progress.add(phase, steps * length, steps);
    }
    progress.steps += steps as u64;
    steps * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_bytes_are_conserved_however_the_time_is_cut() {
        let pace = Pace::new(0.45, [0.1, 0.05]);
        let mut whole = Clockwork::default();
        let all = whole.advance(60.0, &pace);
        assert!((99..=100).contains(&all.steps), "{all:?}");
        assert!((all.seconds() - 60.0).abs() < 1e-6);
        for done in &all.collectives {
            assert!((done - 100.0).abs() < 1e-6, "{all:?}");
        }

        let mut cut = Clockwork::default();
        let mut done = [0.0; 2];
        for _ in 0..600 {
            let progress = cut.advance(0.1, &pace);
            for (sum, part) in done.iter_mut().zip(progress.collectives) {
                *sum += part;
            }
        }
        for (cut, whole) in done.iter().zip(&all.collectives) {
            assert!((cut / whole - 1.0).abs() < 1e-6, "{cut} {whole}");
        }
    }

    #[test]
    fn a_job_whose_data_stands_still_waits_in_its_collective() {
        let pace = Pace::new(0.45, [f64::INFINITY]);
        let progress = Clockwork::default().advance(10.0, &pace);
        assert_eq!((progress.steps, progress.collectives), (0, vec![0.0]));
        assert!((progress.collective_seconds - 9.55).abs() < 1e-9);
        assert_eq!(pace.step_seconds(), None);
    }

    #[test]
    fn a_job_without_communication_only_computes() {
        let progress = Clockwork::default().advance(10.0, &Pace::new(0.5, []));
        assert!((19..=20).contains(&progress.steps), "{progress:?}");
        assert!((progress.compute_seconds - 10.0).abs() < 1e-9);
    }
}
