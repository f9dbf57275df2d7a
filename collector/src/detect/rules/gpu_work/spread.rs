//! How much healthy GPUs differ: those of a job, or of all of a model.

use std::cell::OnceCell;

use super::{MIN_ALL, STANDARD, WIDEST_SPREAD, Worker};
use crate::detect::cohort::Usual;
use crate::detect::gpus::Listed;
use crate::detect::peers::median;

/// Standard deviation of what GPUs do, as a share of what the middle one of their node does; known once it is asked for,
/// which is only where one stands out.
pub(super) struct Spread<F> {
    workers: F,
    known: OnceCell<Usual<String>>,
}

impl<'a, 'b: 'a, I, F> Spread<F>
where
    I: Iterator<Item = &'a Worker<'b>>,
    F: Fn() -> I,
{
    pub(super) const fn new(workers: F) -> Self {
        Self {
            workers,
            known: OnceCell::new(),
        }
    }

    /// That of the peers of a GPU; 0 where they are too few, and at most [`WIDEST_SPREAD`].
    pub(super) fn of(&self, gpu: &Listed<'_>) -> f64 {
        let known = self.known.get_or_init(|| {
            let differences = (self.workers)().map(|worker| {
                let differs = (worker.usual - 1.0).abs();
                (worker.gpu.job, worker.gpu.product.to_owned(), differs)
            });
            Usual::new(differences, |differences| {
                let enough = differences.len() >= MIN_ALL;
                enough.then(|| median(differences))?
            })
        });
        let middle = known.of(gpu.job, &gpu.product.to_owned());
        (STANDARD * middle.unwrap_or(0.0)).min(WIDEST_SPREAD)
    }
}
