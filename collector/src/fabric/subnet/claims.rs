//! A subnet out of what its devices answered, compared with itself by the same rules as text.

use railscope_model::identity::Guid;
use railscope_model::units::LinkSpeed;

use super::join::{Claim, join};
use super::parse::{Draft, Problems};
use super::{Completeness, Counts, End, Header, Node, Subnet};

/// What one port reports it is cabled to. Ports are the place of the node in [`Survey::nodes`], and a
/// number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PortClaim {
    /// The port that reports it.
    pub near: (usize, u16),
    /// The port at the other end.
    pub far: (usize, u16),
    /// Width and speed, as the near port reports.
    pub speed: Option<LinkSpeed>,
}

/// What the devices of a subnet have answered.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Survey {
    /// Node GUID of the sweeping host.
    pub started_at: Option<Guid>,
    /// Devices that answered, each once.
    pub nodes: Vec<Node>,
    /// What their ports are cabled to.
    pub claims: Vec<PortClaim>,
    /// LIDs of adapters' ports.
    pub lids: Vec<(End, u16)>,
    /// Ports behind which a device did not respond.
    pub silent: Vec<End>,
    /// Contradictions: field, what was expected, what was found.
    pub problems: Vec<(&'static str, &'static str, String)>,
}

impl From<Survey> for Subnet {
    fn from(survey: Survey) -> Self {
        let mut problems = Problems::default();
        for (field, expected, found) in &survey.problems {
            problems.push(0, None, (field, expected), found);
        }
        let drafts = survey.nodes.into_iter().map(|node| Draft {
            node,
            guid_known: true,
            first_line: 0,
        });
        let claims: Vec<_> = survey
            .claims
            .iter()
            .map(|claim| Claim {
                near: claim.near,
                far: claim.far,
                speed: claim.speed,
                line: 0,
            })
            .collect();
        let joined = join(drafts.collect(), &claims, &mut problems);
        let mut subnet = Self {
            header: Header {
                generated: None,
                started_at: survey.started_at,
            },
            nodes: joined.nodes,
            links: joined.cables,
            lids: survey.lids,
            forwarding: None,
            silent: survey.silent,
            counts: Counts {
                problems: problems.all,
                dropped_cables: joined.dropped,
                ..Counts::default()
            },
            problems: problems.kept,
            completeness: Completeness::of(joined.gaps),
        };
        subnet.take_complaints(Vec::new());
        subnet
    }
}
