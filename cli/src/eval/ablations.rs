//! Variants with stages of the collector's method disabled, beside the full method: `--without`.

use railscope_collector::stages::{LeftOut, Step};

/// The name that means every step, one after the other.
const EACH: &str = "each";

/// A method without some of its steps, and its name in tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ablation {
    /// `without parents`.
    pub(super) name: String,
    /// What is omitted.
    pub(super) left_out: LeftOut,
}

/// The steps of one `--without`.
pub(super) type Ablations = Vec<Ablation>;

/// Reads an option's value.
///
/// # Errors
/// A step that there is not.
pub(super) fn parse(text: &str) -> Result<Ablations, String> {
    let one = |names: &[&str]| -> Result<Ablation, String> {
        let steps: Result<LeftOut, String> = names.iter().map(|name| step(name)).collect();
        Ok(Ablation {
            name: format!("without {}", names.join(" and ")),
            left_out: steps?,
        })
    };
    if text == EACH {
        let steps = Step::ALL.iter();
        return steps.map(|(_, name, _)| one(&[name])).collect();
    }
    let names: Vec<&str> = text.split(',').map(str::trim).collect();
    Ok(vec![one(&names)?])
}

fn step(name: &str) -> Result<Step, String> {
    Step::named(name).ok_or_else(|| {
        let known = Step::ALL.iter();
        let known: Vec<_> = known
            .map(|(_, name, what)| format!("{name} ({what})"))
            .collect();
        format!(
            "{name:?} is no step: expected {EACH}, or of {}",
            known.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_left_out_one_by_one_or_together() {
        let names = |text: &str| -> Vec<String> {
            let ablations = parse(text).expect(text);
            ablations.into_iter().map(|one| one.name).collect()
        };
        assert_eq!(names("parents"), ["without parents"]);
        assert_eq!(
            names("parents, persistence"),
            ["without parents and persistence"]
        );
        assert_eq!(names(EACH).len(), Step::ALL.len());
        let error = parse("parent").expect_err("no step");
        assert!(error.contains("parents (findings of components"), "{error}");
    }
}
