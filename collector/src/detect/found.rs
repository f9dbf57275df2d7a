//! A synthetic finding for tests: detector, class and part, and nothing else.

use railscope_model::identity::Part;

use super::detector::{Evidence, Explanation};
use crate::classes::Class;
use crate::diagnose::incident::Finding;

pub(crate) fn part(text: &str) -> Part {
    text.parse().expect(text)
}

pub(crate) fn found(
    detector: &'static str,
    class: &'static Class,
    named: &str,
    alike: &[&str],
) -> Finding {
    Finding {
        evidence: Evidence {
            detector,
            signal: "",
            part: part(named),
            class,
            effect: 0.1,
            statement: String::new(),
            victims: Vec::new(),
            related: Vec::new(),
            alike: alike.iter().map(|text| part(text)).collect(),
        },
        explanation: Explanation {
            check: "",
            threshold: String::new(),
            clears: "",
        },
    }
}
