//! Detects switches that differ from their tier: leaves without hosts, and switches with few cables to the next tier.

use std::collections::BTreeMap;

use railscope_model::identity::SwitchName;

use super::classifier::Court;
use crate::fabric::subnet::counted;

/// Ratio of the median cables of its tier to the next tier below which a switch has few.
const FEW: f64 = 0.5;
/// Minimum number of switches in a tier for the comparison.
const MIN_PEERS: usize = 3;

impl Court<'_> {
    /// These switches by name, one sentence each.
    pub(crate) fn odd_switches(&self) -> Vec<String> {
        let mut odd: BTreeMap<SwitchName, String> = BTreeMap::new();
        let several = self.leaves().nth(1).is_some();
        for leaf in self
            .leaves()
            .filter(|_| several && self.dragonfly.is_none())
        {
            let switch = &self.survey.switches[leaf];
            if switch.nics.is_empty() {
                odd.insert(
                    switch.name.clone(),
                    format!(
                        "{} has no hosts but is cabled as a leaf: a spare, or its hosts are off",
                        switch.name
                    ),
                );
            }
        }
        let highest = self.tiers.iter().flatten().copied().max().unwrap_or(0);
        for tier in 1..=highest {
            // For the top tier count the cables down, for the others the cables up.
            let (towards, what) = if tier == highest {
                (tier.saturating_sub(1), "downwards")
            } else {
                (tier + 1, "upwards")
            };
            self.with_few(tier, towards, what, &mut odd);
        }
        odd.into_values().collect()
    }

    fn with_few(&self, tier: u8, towards: u8, what: &str, odd: &mut BTreeMap<SwitchName, String>) {
        let own = (0..self.tiers.len()).filter(|switch| self.tiers[*switch] == Some(tier));
        let cables: Vec<(usize, usize)> = own
            .map(|switch| {
                let trunks = self.survey.switches[switch].trunks.iter();
                let count = trunks
                    .filter(|(peer, _)| self.tiers[*peer] == Some(towards))
                    .count();
                (switch, count)
            })
            .collect();
        let mut sorted: Vec<usize> = cables.iter().map(|(_, count)| *count).collect();
        sorted.sort_unstable();
        let usual = sorted.get(sorted.len() / 2).copied().unwrap_or(0);
        if cables.len() < MIN_PEERS {
            return;
        }
        for (switch, count) in cables {
            if (count as f64) < FEW * usual as f64 {
                let name = &self.survey.switches[switch].name;
                let sentence = format!(
                    "{name} has {} {what}; others of its tier have {usual}",
                    counted(count, "cable", "cables")
                );
                odd.entry((*name).clone()).or_insert(sentence);
            }
        }
    }
}
