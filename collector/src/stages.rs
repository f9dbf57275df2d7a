//! Steps of the method that can be omitted: what each is worth is measured by its absence
//! (`railscope eval --without`).

use super::analyzer::Analyzer;

/// A step of the method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// GPUs and ports are compared with those of the same product, shape and place only.
    RoleCohort,
    /// Findings of components below a failed switch or host are merged into it, as is the other end of one fault.
    Parents,
    /// A host can be the root cause of its components' findings.
    HostComponent,
    /// An incident opens after two consecutive cycles.
    Persistence,
    /// Findings with immediate proof open an incident in their first cycle.
    Proof,
    /// Only sufficiently probable incidents page.
    Belief,
    /// Maintenance windows explain findings of their parts.
    Maintenance,
    /// A rank is named only for missing wait that it spends computing, or else gets no more than a hint: a step is
    /// waiting, compute and the rest, and nothing of it is lost.
    Conservation,
    /// Pause is traced to the receiver that does not drain, along the lanes that wait for each
    /// other.
    PauseWalk,
    /// Parts that continue more slowly page only if they delay a job; on idle nodes nothing does.
    ImpactGate,
    /// Probes between NICs report which part loses them.
    Probes,
    /// On InfiniBand, the paths of probes are those of the forwarding tables.
    ForwardingTables,
}

impl Step {
    /// Every step, with the name that options use and what it does.
    pub const ALL: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::RoleCohort,
            "role-cohort",
            "peers are parts of the same product, shape and place",
        ),
        (
            Self::Parents,
            "parents",
            "findings of components below a failed switch or host are merged into it",
        ),
        (
            Self::HostComponent,
            "host-component",
            "a host can be the root cause of its components' findings",
        ),
        (
            Self::Persistence,
            "persistence",
            "an incident opens after two consecutive cycles",
        ),
        (
            Self::Proof,
            "proof",
            "findings with immediate proof open in their first cycle",
        ),
        (
            Self::Belief,
            "belief",
            "only incidents with a sufficient probability page",
        ),
        (
            Self::Maintenance,
            "maintenance",
            "maintenance windows explain findings of their components",
        ),
        (
            Self::Conservation,
            "conservation",
            "a rank's wait deficit is explained by its compute time",
        ),
        (
            Self::PauseWalk,
            "pause-walk",
            "pause is traced to the receiver that does not drain",
        ),
        (
            Self::ImpactGate,
            "impact-gate",
            "incidents that delay no job do not page, and cables of idle nodes may be reseated",
        ),
        (
            Self::Probes,
            "probes",
            "probes between NICs locate the component that drops them",
        ),
        (
            Self::ForwardingTables,
            "forwarding-tables",
            "paths of probes on InfiniBand follow the switches' forwarding tables",
        ),
    ];

    /// The step of a name.
    pub fn named(name: &str) -> Option<Self> {
        let row = Self::ALL.iter().find(|(_, known, _)| *known == name);
        row.map(|(step, ..)| *step)
    }
}

/// The steps that are omitted: none, except in measurements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut(u32);

impl LeftOut {
    /// Whether a step is omitted.
    pub const fn has(self, step: Step) -> bool {
        self.0 & (1 << step as u32) != 0
    }
}

impl FromIterator<Step> for LeftOut {
    fn from_iter<I: IntoIterator<Item = Step>>(steps: I) -> Self {
        let add = |sum: u32, step: Step| sum | (1 << step as u32);
        Self(steps.into_iter().fold(0, add))
    }
}

impl Analyzer {
    /// Omits steps of the method, in place of the previous ones: for measuring, never for use.
    pub const fn leave_out(&mut self, steps: LeftOut) {
        self.tracker.left_out = steps;
        self.waits.left_out = steps;
        self.impact.left_out = steps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_left_out_by_its_name_alone() {
        for (step, name, _) in Step::ALL {
            assert_eq!(Step::named(name), Some(*step));
            let out: LeftOut = Step::named(name).into_iter().collect();
            for (other, ..) in Step::ALL {
                assert_eq!(out.has(*other), other == step, "{name}");
            }
        }
        assert_eq!(Step::named("nothing"), None);
    }
}
