//! Which NVML calls a GPU answers: a call that it refused is asked again only now and then.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nvml_wrapper::error::NvmlError;
use railscope_model::reading::Status;

/// A call that the GPU does not support is asked again after this time: a mode (MIG, ECC) may have changed.
const ASK_AGAIN: Duration = Duration::from_secs(600);

/// A call, and the link it asks about; calls about the whole GPU have none.
pub(super) type Call = (&'static str, Option<u32>);

/// How one GPU answers calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    refused: HashMap<Call, Refusal>,
    failures: u64,
    lost: Option<NvmlError>,
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

    /// Asks, unless the GPU refused this call of late or is lost.
    pub(super) fn ask<T>(
        &mut self,
        call: Call,
        ask: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Option<T> {
        if !self.wants(call) {
            return None;
        }
        let answer = ask();
        self.note(call, answer)
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
            NvmlError::GpuLost
            | NvmlError::ResetRequired
            | NvmlError::Uninitialized
            | NvmlError::DriverNotLoaded => self.lost = Some(error),
            // The wrapper allocates a String each time a missing function is asked for.
            NvmlError::FailedToLoadSymbol(_) => {
                self.refused
                    .insert(call, refusal(Status::Unsupported, None));
            }
            // InvalidArg is how drivers answer field ids and links that they do not know.
            NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::InvalidArg => {
                self.refused
                    .insert(call, refusal(Status::Unsupported, soon));
            }
            NvmlError::NoPermission => {
                self.refused.insert(call, refusal(Status::Denied, soon));
            }
            // Nothing to tell at this moment.
            NvmlError::NoData => {}
            _ => self.failures += 1,
        }
        None
    }

    /// Forgets what a link refused: it went up or down and may answer otherwise now.
    pub(super) fn forget_link(&mut self, link: u32) {
        self.refused
            .retain(|(_, of), refusal| *of != Some(link) || refusal.ask_again.is_none());
    }

    /// Counts a value that came but made no sense.
    pub(super) fn count_failure(&mut self) {
        self.failures += 1;
    }

    /// Values that failed in this sample.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    /// Why the GPU answers nothing any more.
    pub(super) fn lost(&self) -> Option<&NvmlError> {
        self.lost.as_ref()
    }

    /// What the answers amount to: `failed` if the GPU is lost, `denied` or `unsupported` if it refused some
    /// call about itself. What a link refuses says nothing of the GPU: boards leave links unused.
    pub(super) fn status(&self) -> Status {
        if self.lost.is_some() {
            return Status::Failed;
        }
        let of_gpu = self.refused.iter().filter(|((_, link), _)| link.is_none());
        let worst = of_gpu.map(|(_, refusal)| refusal.status).max();
        worst.unwrap_or(Status::Ok)
    }
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
            let answer: Option<u32> = calls.ask(("a", None), || {
                asked += 1;
                Err(NvmlError::NotSupported)
            });
            assert_eq!((answer, calls.failures()), (None, 0));
            assert_eq!(calls.ask(("b", None), || Ok(7)), Some(7));
            assert_eq!(calls.status(), Status::Unsupported);
        }
        assert_eq!(asked, 1);
    }

    #[test]
    fn a_lost_gpu_is_asked_once_a_sample() {
        let mut calls = Calls::default();
        calls.begin();
        assert_eq!(
            calls.ask::<u32>(("a", None), || Err(NvmlError::GpuLost)),
            None
        );
        assert_eq!(calls.ask(("b", None), || Ok(1)), None, "not asked");
        assert_eq!(calls.status(), Status::Failed);
        calls.begin();
        assert_eq!(calls.ask(("a", None), || Ok(1)), Some(1));
        assert_eq!(calls.status(), Status::Ok);
    }

    #[test]
    fn a_link_that_changed_is_asked_again_and_never_colours_its_gpu() {
        let mut calls = Calls::default();
        let refuse =
            |calls: &mut Calls| calls.ask::<u32>(("a", Some(3)), || Err(NvmlError::InvalidArg));
        refuse(&mut calls);
        assert_eq!(calls.status(), Status::Ok);
        assert!(!calls.wants(("a", Some(3))));
        calls.forget_link(3);
        assert!(calls.wants(("a", Some(3))));
    }

    #[test]
    fn an_unexpected_error_is_counted_and_asked_again() {
        let mut calls = Calls::default();
        assert_eq!(
            calls.ask::<u32>(("a", None), || Err(NvmlError::Unknown)),
            None
        );
        assert_eq!(calls.failures(), 1);
        assert!(calls.wants(("a", None)));
    }
}
