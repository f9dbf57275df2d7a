//! A running job: synchronous steps over its nodes, each as long as its slowest GPU and cable make it.
//!
//! Step time is the maximum over ranks, all ranks share it, and the straggler is the one that waits
//! least (physics of synchronous data parallelism, as every straggler study finds it).

/// What a step is made of under the current conditions: how long each phase takes. The first is
/// compute, the others are what of the collectives is left to do after it, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    phases: Vec<f64>,
    /// By collective: its length if nothing else is done.
    collectives: Vec<f64>,
    /// Share of a collective that may move while GPUs compute.
    overlap: f64,
}

impl Pace {
    /// Time until the slowest GPU has computed, and that of each collective; infinite where traffic is
    /// stalled. Of each collective the share `overlap` moves while GPUs compute, as far as that lasts.
    pub fn new(
        compute_seconds: f64,
        collectives: impl IntoIterator<Item = f64>,
        overlap: f64,
    ) -> Self {
        let collectives: Vec<f64> = collectives.into_iter().collect();
        let mut room = compute_seconds;
        let mut phases = vec![compute_seconds];
        for seconds in &collectives {
            // Nothing of an infinite phase is done by then.
            let hidden = if seconds.is_finite() {
                (overlap * seconds).min(room)
            } else {
                0.0
            };
            room -= hidden;
            phases.push(seconds - hidden);
        }
        Self {
            phases,
            collectives,
            overlap,
        }
    }

    /// Time until the slowest GPU has computed.
    pub fn compute_seconds(&self) -> f64 {
        self.phases[0]
    }

    /// The same with another length of compute.
    #[must_use]
    pub fn with_compute(&self, seconds: f64) -> Self {
        Self::new(seconds, self.collectives.iter().copied(), self.overlap)
    }

    /// The same without communication.
    #[must_use]
    pub fn without_collectives(&self) -> Self {
        let none = self.collectives.iter().map(|_| 0.0);
        Self::new(self.compute_seconds(), none, 0.0)
    }

    /// Length of each collective, whatever is done beside it.
    pub fn collectives(&self) -> &[f64] {
        &self.collectives
    }

    /// Time for which all ranks communicate and none computes; infinite if the traffic is stalled.
    pub fn exposed_seconds(&self) -> f64 {
        self.phases[1..].iter().sum()
    }

    /// Share of a collective that moves while GPUs compute.
    fn hidden(&self, collective: usize) -> f64 {
        let (whole, exposed) = (self.collectives[collective], self.phases[collective + 1]);
        if whole > 0.0 && whole.is_finite() {
            1.0 - exposed / whole
        } else {
            0.0
        }
    }

    /// Length of a step; none if the traffic is stalled.
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
    /// Time in collectives, that which is hidden behind compute apart.
    pub collective_seconds: f64,
    /// Length of what of the collectives moved while GPUs computed.
    pub hidden_seconds: f64,
    /// How often each collective was done, in parts too.
    pub collectives: Vec<f64>,
    /// Of which steps, by number, how much of the compute was done.
    pub computed: Vec<(u64, f64)>,
    /// Steps that were finished.
    pub steps: u64,
    /// How long each of them took, seconds; not recorded for those that were gone through at
    /// once.
    pub step_seconds: Vec<f64>,
}

impl Progress {
    /// Nothing of so many collectives.
    pub fn none(collectives: usize) -> Self {
        Self {
            collectives: vec![0.0; collectives],
            ..Self::default()
        }
    }

    /// All the time.
    pub fn seconds(&self) -> f64 {
        self.compute_seconds + self.collective_seconds
    }

    /// Time in which NICs moved data, hidden or not.
    pub fn moving_seconds(&self) -> f64 {
        self.collective_seconds + self.hidden_seconds
    }

    fn add(&mut self, (step, phase): (u64, usize), seconds: f64, done: f64, pace: &Pace) {
        if let Some(collective) = phase.checked_sub(1) {
            self.collective_seconds += seconds;
            self.collectives[collective] += done * (1.0 - pace.hidden(collective));
            return;
        }
        self.compute_seconds += seconds;
        for (collective, times) in self.collectives.iter_mut().enumerate() {
            let hidden = pace.hidden(collective);
            *times += done * hidden;
            if hidden > 0.0 {
                self.hidden_seconds += done * hidden * pace.collectives[collective];
            }
        }
        match self.computed.last_mut() {
            Some((last, share)) if *last == step => *share += done,
            _ => self.computed.push((step, done)),
        }
    }
}

/// Where in which of its steps a job is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clockwork {
    step: u64,
    phase: usize,
    /// Share of the phase that is still to be done.
    left: f64,
    /// Time that the step has taken so far, seconds.
    spent: f64,
}

impl Default for Clockwork {
    /// At the start of the first step.
    fn default() -> Self {
        Self {
            step: 0,
            phase: 0,
            left: 1.0,
            spent: 0.0,
        }
    }
}

impl Clockwork {
    /// Number of the step that the job is in.
    pub const fn step(&self) -> u64 {
        self.step
    }

    /// Advances for some seconds at the speed of each step. A speed that changes in the middle of a phase
    /// changes only what is left of it.
    pub fn advance(&mut self, seconds: f64, mut pace_of: impl FnMut(u64) -> Pace) -> Progress {
        let mut pace = pace_of(self.step);
        let mut progress = Progress::none(pace.collectives.len());
        let mut left = seconds;
        while left > 0.0 {
            let whole = pace.phases[self.phase];
            let spent = left.min(self.left * whole);
            // An infinite phase makes no progress, and one of no length is done at once.
            let done = if whole > 0.0 {
                spent / whole
            } else {
                self.left
            };
            progress.add((self.step, self.phase), spent, done, &pace);
            self.left -= done;
            self.spent += spent;
            left -= spent;
            // Below a billionth of a phase is rounding, and would loop for ever.
            if self.left <= 1e-9 {
                self.phase = (self.phase + 1) % pace.phases.len();
                self.left = 1.0;
                if self.phase == 0 {
                    self.step += 1;
                    progress.steps += 1;
                    progress.step_seconds.push(std::mem::take(&mut self.spent));
                    pace = pace_of(self.step);
                }
            } else if left <= 1e-12 {
                break;
            }
        }
        progress
    }

    /// Simulates equal whole steps, as many as fit, at once: hours of history cost no more than
    /// a step. Returns what was done, and the number of steps.
    pub fn skip(&mut self, seconds: f64, pace: &Pace) -> Progress {
        let mut progress = Progress::none(pace.collectives.len());
        let steps = pace.step_seconds().map_or(0.0, |step| seconds / step);
        progress.compute_seconds = steps * pace.compute_seconds();
        if steps > 0.0 {
            progress.collective_seconds = steps * pace.exposed_seconds();
            let whole: f64 = pace.collectives.iter().sum();
            progress.hidden_seconds = steps * whole - progress.collective_seconds;
            progress.collectives.fill(steps);
            progress.steps = steps as u64;
            self.step += progress.steps;
        }
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_bytes_are_conserved_however_the_time_is_cut() {
        for overlap in [0.0, 0.6, 1.0] {
            let pace = Pace::new(0.45, [0.1, 0.05], overlap);
            let steps = 60.0 / pace.step_seconds().expect("finite");
            let mut whole = Clockwork::default();
            let all = whole.advance(60.0, |_| pace.clone());
            assert!((all.seconds() - 60.0).abs() < 1e-6);
            for done in &all.collectives {
                assert!((done - steps).abs() < 1.0, "{all:?}");
            }
            let mut cut = Clockwork::default();
            let (mut done, mut computed) = ([0.0; 2], 0.0);
            for _ in 0..600 {
                let progress = cut.advance(0.1, |_| pace.clone());
                computed += progress
                    .computed
                    .iter()
                    .map(|(_, share)| share)
                    .sum::<f64>();
                for (sum, part) in done.iter_mut().zip(progress.collectives) {
                    *sum += part;
                }
            }
            for (cut, whole) in done.iter().zip(&all.collectives) {
                assert!((cut / whole - 1.0).abs() < 1e-6, "{cut} {whole}");
            }
            assert!((computed - steps).abs() < 1.0, "{computed} {steps}");
        }
    }

    #[test]
    fn what_fits_behind_compute_costs_nothing_and_the_rest_all_of_its_time() {
        for (overlap, compute, expected) in [
            (0.0, 0.4, 0.6),
            (0.5, 0.4, 0.5),
            (1.0, 0.4, 0.4),
            // No more is hidden than compute lasts.
            (1.0, 0.05, 0.2),
        ] {
            let pace = Pace::new(compute, [0.15, 0.05], overlap);
            let step = pace.step_seconds().expect("finite");
            assert!((step - expected).abs() < 1e-12, "{overlap}: {step}");
        }
    }

    #[test]
    fn each_step_has_its_own_length_however_the_time_is_cut() {
        let length = |step: u64| Pace::new(0.5 + 0.01 * (step % 7) as f64, [0.1], 0.0);
        let run = |tick: f64, ticks: u64| {
            let mut clockwork = Clockwork::default();
            (0..ticks)
                .map(|_| clockwork.advance(tick, length).steps)
                .sum::<u64>()
        };
        assert_eq!(run(60.0, 1), run(0.5, 120));
    }

    #[test]
    fn a_job_whose_data_stands_still_waits_in_its_collective() {
        for overlap in [0.0, 0.9] {
            let pace = Pace::new(0.45, [f64::INFINITY], overlap);
            let progress = Clockwork::default().advance(10.0, |_| pace.clone());
            assert_eq!((progress.steps, progress.collectives), (0, vec![0.0]));
            assert!((progress.collective_seconds - 9.55).abs() < 1e-9);
            assert_eq!(pace.step_seconds(), None);
        }
    }

    #[test]
    fn a_job_without_communication_only_computes() {
        let pace = Pace::new(0.5, [], 0.0);
        let progress = Clockwork::default().advance(10.0, |_| pace.clone());
        assert!((19..=20).contains(&progress.steps), "{progress:?}");
        assert!((progress.compute_seconds - 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_history_has_the_time_and_the_bytes_of_its_steps() {
        let pace = Pace::new(0.45, [0.1, 0.05], 0.2);
        let mut clockwork = Clockwork::default();
        let all = clockwork.skip(3600.0, &pace);
        assert!((all.seconds() - 3600.0).abs() < 1e-6);
        assert_eq!(clockwork.step(), all.steps);
        let stopped = Pace::new(0.45, [f64::INFINITY], 0.0);
        assert_eq!(
            Clockwork::default().skip(3600.0, &stopped),
            Progress::none(1)
        );
    }
}
