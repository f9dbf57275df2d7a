//! Which NVML calls a GPU supports: a call that it refused is repeated only occasionally.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use railscope_model::metric::{NVML_CALL_SECONDS, NVML_CALLS};
use railscope_model::reading::{Labels, NodeReading, Status};

use super::raw::{Field, Number, field_values};

/// A call that the GPU does not support is repeated after this time: a mode (MIG, ECC) may have changed.
const ASK_AGAIN: Duration = Duration::from_secs(600);

/// `NVML_ERROR_ARGUMENT_VERSION_MISMATCH` and `NVML_ERROR_DEPRECATED`, for which the wrapper has no names.
const NO_SUCH_VERSION: [u32; 2] = [25, 26];

/// A call, and its subject.
pub(super) type Call = (&'static str, Of);

/// The subject of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Of {
    /// The GPU, for something that all boards have.
    Gpu,
    /// The GPU, for something that only some boards have: a refusal does not color its status.
    Feature,
    /// One link: boards leave links unused, so a refusal does not color the GPU's status either.
    Link(u32),
}

/// State of one GPU's calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    refused: HashMap<Call, Refusal>,
    failures: u64,
    lost: Option<NvmlError>,
    section: &'static str,
    spent: BTreeMap<&'static str, Spent>,
}

/// Calls into NVML and the time they took, since the worker started.
#[derive(Debug, Default)]
struct Spent {
    calls: u64,
    time: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Refusal {
    status: Status,
    /// None: never, because the library has no such function.
    ask_again: Option<Instant>,
}

impl Calls {
    /// Begins a sample: forgets what failed in the last one, not what was refused.
    pub(super) fn begin(&mut self) {
        self.failures = 0;
        self.lost = None;
    }

    /// Makes the call, unless the GPU refused it recently or is lost.
    pub(super) fn ask<T>(
        &mut self,
        call: Call,
        ask: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Option<T> {
        if !self.wants(call) {
            return None;
        }
        let answer = self.timed(ask);
        self.note(call, answer)
    }

    /// Sets the subject of the following calls, for the account of their time.
    pub(super) fn section(&mut self, name: &'static str) {
        self.section = name;
    }

    /// Makes one call and measures its time.
    pub(super) fn timed<T>(&mut self, ask: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let answer = ask();
        let spent = self.spent.entry(self.section).or_default();
        spent.calls += 1;
        spent.time += begun.elapsed();
        answer
    }

    /// Reads something that comes and goes, so that a refusal is not remembered.
    pub(super) fn try_once<T>(&mut self, ask: impl FnOnce() -> Result<T, NvmlError>) -> Option<T> {
        if self.lost.is_some() {
            return None;
        }
        match self.timed(ask) {
            Ok(value) => Some(value),
            Err(error) if is_lost(&error) => {
                self.lost = Some(error);
                None
            }
            Err(NvmlError::NotSupported | NvmlError::NotFound | NvmlError::InvalidArg) => None,
            Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::NoPermission) => None,
            Err(_) => {
                self.failures += 1;
                None
            }
        }
    }

    /// Reads fields, all those that the GPU did not refuse in one call. A call that fails as a whole (one
    /// field that a driver does not know, or two that do not go together: NVIDIA/DCGM#581) is made again
    /// in halves, so that only the refused fields are missing. Each value is in its field's place.
    pub(super) fn fields(
        &mut self,
        device: &Device<'_>,
        wanted: &[(Call, Field)],
    ) -> Vec<Option<Number>> {
        let mut answers = vec![None; wanted.len()];
        let open: Vec<_> = (0..wanted.len())
            .filter(|index| self.wants(wanted[*index].0))
            .collect();
        self.read_fields(device, wanted, &open, &mut answers);
        answers
    }

    fn read_fields(
        &mut self,
        device: &Device<'_>,
        wanted: &[(Call, Field)],
        chosen: &[usize],
        answers: &mut [Option<Number>],
    ) {
        let Some(first) = chosen.first() else {
            return;
        };
        if self.lost.is_some() {
            return;
        }
        let fields: Vec<_> = chosen.iter().map(|index| wanted[*index].1).collect();
        match self.timed(|| field_values(device, &fields)) {
            Ok(values) => {
                for (index, value) in chosen.iter().zip(values) {
                    answers[*index] = self.note(wanted[*index].0, value);
                }
            }
            // Halves of a call without a response would only block again.
            Err(error)
                if chosen.len() == 1 || is_lost(&error) || matches!(error, NvmlError::Timeout) =>
            {
                self.note::<Number>(wanted[*first].0, Err(error));
            }
            Err(_) => {
                let (left, right) = chosen.split_at(chosen.len() / 2);
                self.read_fields(device, wanted, left, answers);
                self.read_fields(device, wanted, right, answers);
            }
        }
    }

    /// Adds how many calls were made and how long they took.
    pub(super) fn account(&self, gpu: &Labels, reading: &mut NodeReading) {
        for (section, spent) in &self.spent {
            let labels = gpu.with(section);
            reading.push(&NVML_CALLS, &labels, spent.calls);
            reading.push(&NVML_CALL_SECONDS, &labels, spent.time.as_secs_f64());
        }
    }

    /// Whether it is worth asking.
    pub(super) fn wants(&self, call: Call) -> bool {
        self.lost.is_none()
            && self
                .refused
                .get(&call)
                .is_none_or(|refusal| refusal.ask_again.is_some_and(|time| time <= Instant::now()))
    }

    /// Notes how a call was answered.
    pub(super) fn note<T>(&mut self, call: Call, answer: Result<T, NvmlError>) -> Option<T> {
        let error = match answer {
            Ok(value) => {
                self.refused.remove(&call);
                return Some(value);
            }
            Err(error) => error,
        };
        let soon = Some(Instant::now() + ASK_AGAIN);
        let refusal = |status, ask_again| Refusal { status, ask_again };
        match error {
            lost if is_lost(&lost) => self.lost = Some(lost),
            // The wrapper allocates a String each time a missing function is called.
            NvmlError::FailedToLoadSymbol(_) => {
                self.refused
                    .insert(call, refusal(Status::Unsupported, None));
            }
            // InvalidArg is drivers' reply to unknown field ids and links.
            NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::InvalidArg => {
                self.refused
                    .insert(call, refusal(Status::Unsupported, soon));
            }
            NvmlError::UnexpectedVariant(code) if NO_SUCH_VERSION.contains(&code) => {
                self.refused
                    .insert(call, refusal(Status::Unsupported, soon));
            }
            NvmlError::NoPermission => {
                self.refused.insert(call, refusal(Status::Denied, soon));
            }
            // Nothing to report now.
            NvmlError::NoData => {}
            _ => self.failures += 1,
        }
        None
    }

    /// Forgets what a link refused: it went up or down and may accept them now.
    pub(super) fn forget_link(&mut self, link: u32) {
        self.refused
            .retain(|(_, of), refusal| *of != Of::Link(link) || refusal.ask_again.is_none());
    }

    /// What the board or driver does not have, and why, in the order of their names.
    pub(super) fn missing_features(&self) -> Vec<(String, Status)> {
        let of_features = self
            .refused
            .iter()
            .filter(|((_, of), _)| *of == Of::Feature);
        let mut missing: Vec<_> = of_features
            .map(|((name, _), refusal)| ((*name).to_owned(), refusal.status))
            .collect();
        missing.sort_unstable();
        missing
    }

    /// Counts a value that came but made no sense.
    pub(super) fn count_failure(&mut self) {
        self.failures += 1;
    }

    /// Values that failed in this sample.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    /// Why the GPU no longer responds.
    pub(super) fn lost(&self) -> Option<&NvmlError> {
        self.lost.as_ref()
    }

    /// Status of the source from the replies: `failed` if the GPU is lost, `denied` or `unsupported` if it refused some
    /// call about itself.
    pub(super) fn status(&self) -> Status {
        if self.lost.is_some() {
            return Status::Failed;
        }
        let of_gpu = self.refused.iter().filter(|((_, of), _)| *of == Of::Gpu);
        let worst = of_gpu.map(|(_, refusal)| refusal.status).max();
        worst.unwrap_or(Status::Ok)
    }
}

/// Whether the GPU, or the whole driver, no longer responds.
fn is_lost(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::GpuLost
            | NvmlError::ResetRequired
            | NvmlError::Uninitialized
            | NvmlError::DriverNotLoaded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_call_is_not_asked_again_soon_and_others_are() {
        let mut calls = Calls::default();
        let mut asked = 0;
        for _ in 0..3 {
            calls.begin();
            let answer: Option<u32> = calls.ask(("a", Of::Gpu), || {
                asked += 1;
                Err(NvmlError::NotSupported)
            });
            assert_eq!((answer, calls.failures()), (None, 0));
            assert_eq!(calls.ask(("b", Of::Gpu), || Ok(7)), Some(7));
            assert_eq!(calls.status(), Status::Unsupported);
        }
        assert_eq!(asked, 1);
    }

    #[test]
    fn a_lost_gpu_is_asked_once_a_sample() {
        let mut calls = Calls::default();
        calls.begin();
        assert_eq!(
            calls.ask::<u32>(("a", Of::Gpu), || Err(NvmlError::GpuLost)),
            None
        );
        assert_eq!(calls.ask(("b", Of::Gpu), || Ok(1)), None, "not asked");
        assert_eq!(calls.status(), Status::Failed);
        calls.begin();
        assert_eq!(calls.ask(("a", Of::Gpu), || Ok(1)), Some(1));
        assert_eq!(calls.status(), Status::Ok);
    }

    #[test]
    fn a_link_that_changed_is_asked_again_and_never_colors_its_gpu() {
        let mut calls = Calls::default();
        let refuse =
            |calls: &mut Calls| calls.ask::<u32>(("a", Of::Link(3)), || Err(NvmlError::InvalidArg));
        refuse(&mut calls);
        assert_eq!(calls.status(), Status::Ok);
        assert!(!calls.wants(("a", Of::Link(3))));
        calls.forget_link(3);
        assert!(calls.wants(("a", Of::Link(3))));
    }

    #[test]
    fn an_unexpected_error_is_counted_and_asked_again() {
        let mut calls = Calls::default();
        assert_eq!(
            calls.ask::<u32>(("a", Of::Gpu), || Err(NvmlError::Unknown)),
            None
        );
        assert_eq!(calls.failures(), 1);
        assert!(calls.wants(("a", Of::Gpu)));
    }
}
