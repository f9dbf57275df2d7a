//! Nodes with a lower power limit than others of their model: one of them is a mistake, several with the same limit are the site's
//! choice.

use std::collections::BTreeMap;

use railscope_model::identity::NodeName;

use super::power::LOWER_LIMIT;
use super::{Held, POWER_CAP, power_limit};
use crate::detect::gpus::{Listed, by_node};
use crate::detect::peers::{MAJORITY, MIN_PEERS, median};

/// Power limits, in watts, of nodes most of whose GPUs have a lower limit than the median GPU of their model, busy or idle.
#[derive(Default)]
pub(super) struct Lowered<'a>(BTreeMap<&'a NodeName, u64>);

impl<'a> Lowered<'a> {
    pub(super) fn of(gpus: &[Listed<'a>]) -> Self {
        let mut by_model: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for gpu in gpus {
            let limits = by_model.entry(gpu.product).or_default();
            limits.extend(power_limit(gpu));
        }
        by_model.retain(|_, limits| limits.len() >= MIN_PEERS);
        let usual = by_model.into_iter();
        let usual: BTreeMap<&str, Option<f64>> = usual
            .map(|(model, limits)| (model, median(limits)))
            .collect();
        let lowered = |gpu: &Listed<'_>| {
            let usual = usual.get(gpu.product).copied().flatten()?;
            power_limit(gpu).filter(|watts| *watts <= (1.0 - LOWER_LIMIT) * usual)
        };
        let nodes = by_node(gpus).filter_map(|node| {
            let watts: Vec<f64> = node.iter().filter_map(lowered).collect();
            let are_most = watts.len() as f64 >= MAJORITY * node.len() as f64;
            let watts = median(watts).filter(|_| are_most)?;
            Some((node.first()?.node, watts.round() as u64))
        });
        Self(nodes.collect())
    }

    /// Whether the limit of a node explains why these of its busy GPUs are throttled, however few are busy.
    pub(super) fn explains(&self, held: &[&Held<'_>], busy: usize) -> bool {
        let is_capped = |held: &&Held<'_>| held.why.reason == POWER_CAP;
        let node = held.first().map(|held| held.gpu.node);
        held.iter().all(is_capped)
            && held.len() as f64 >= MAJORITY * busy as f64
            && node.is_some_and(|node| self.0.contains_key(node))
    }

    /// Whether another node has the same limit; none if that of this one is not known to be lowered.
    pub(super) fn is_shared(&self, node: &NodeName) -> Option<bool> {
        let own = self.0.get(node)?;
        Some(self.0.values().filter(|watts| *watts == own).count() > 1)
    }
}
