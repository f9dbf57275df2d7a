//! The classification as the text that an operator reads.

use std::collections::BTreeMap;
use std::fmt;

use railscope_model::identity::RdmaDevice;
use railscope_model::units::LinkSpeed;

use super::rails::{AbsentLeaf, Misplaced, MissingRail};
use super::verdict::{Confidence, Kind, Speeds, Verdict};
use crate::fabric::subnet::counted;

/// Names printed in one list. A long list of names does not help; the rest is counted.
const MAX_NAMES: usize = 24;
/// Single points of failure printed; the API returns more.
const MAX_POINTS: usize = 4;

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RailOptimized => f.write_str("rail-optimized fat-tree"),
            Self::RailOnly => f.write_str("rail-only: no switch joins two rails"),
            Self::FatTree => f.write_str("fat-tree"),
            Self::HostGrouped => f.write_str("host-grouped fat-tree: each host on one switch"),
            Self::SingleSwitch => f.write_str("one switch"),
            Self::Direct => f.write_str(
                "direct network: switches with hosts joined to each other (torus, mesh or alike)",
            ),
            Self::Dragonfly => f.write_str("dragonfly"),
            Self::DragonflyPlus => f.write_str("dragonfly+: groups of leaves and spines"),
            Self::Irregular => f.write_str("irregular: switches joined in no known pattern"),
            Self::Unknown { why } => write!(f, "no verdict: {why}"),
        }
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        })
    }
}

impl fmt::Display for MissingRail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lacks rail {} ({})",
            self.host, self.rail, self.device
        )?;
        if self.has_device {
            f.write_str(", the device is there without a cable")?;
        }
        if self.unnamed_there > 0 {
            let nics = counted(self.unnamed_there, "unnamed NIC", "unnamed NICs");
            write!(f, ", {nics} on the leaf where it should be")?;
        }
        Ok(())
    }
}

impl fmt::Display for AbsentLeaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beside = names(&self.beside);
        write!(
            f,
            "no leaf of rail {} beside {beside}: {} without it",
            self.rail,
            counted(self.hosts, "host", "hosts")
        )
    }
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            device,
            rail,
            leaf,
            leaf_rail,
            ..
        } = self;
        write!(f, "{host} {device} of rail {rail} is connected to {leaf}")?;
        if let Some(leaf_rail) = leaf_rail {
            write!(f, " of rail {leaf_rail}")?;
        }
        if let Some(expected) = &self.expected_leaf {
            write!(f, ", not to {expected}")?;
        }
        if let Some((host, device)) = &self.swapped_with {
            write!(f, " (swapped with {host} {device})")?;
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    /// Several lines; the first is the result.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            kind @ Kind::Unknown { .. } => writeln!(f, "{kind}")?,
            kind => writeln!(
                f,
                "{kind}, {} (confidence {})",
                counted(self.levels, "level", "levels"),
                self.confidence
            )?,
        }
        if !self.sweep.gaps.is_empty() {
            writeln!(f, "PARTIAL SWEEP: what follows is not the whole fabric")?;
        }
        self.write_inventory(f)?;
        for sentence in &self.evidence {
            writeln!(f, "  evidence   {sentence}")?;
        }
        self.write_capacity(f)?;
        self.write_single_points(f)?;
        self.write_defects(f)?;
        for sentence in &self.ruled_out {
            writeln!(f, "  ruled out  {sentence}")?;
        }
        for sentence in &self.doubts {
            writeln!(f, "  doubt      {sentence}")?;
        }
        Ok(())
    }
}

impl Verdict {
    fn write_inventory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: usize = self.switches_by_tier.iter().sum::<usize>() + self.unplaced_switches;
        write!(f, "  switches   {total}")?;
        let tiers: Vec<_> = (1..)
            .zip(&self.switches_by_tier)
            .map(|(tier, count)| tier_in_words(tier, *count))
            .collect();
        if !tiers.is_empty() {
            write!(f, ": {}", tiers.join(", "))?;
        }
        match self.sweep.aggregation_nodes {
            0 => writeln!(f)?,
            nodes => writeln!(
                f,
                "; {} inside them",
                counted(nodes, "aggregation node", "aggregation nodes")
            )?,
        }
        write!(f, "  hosts      {}", self.hosts)?;
        let service = self.service_hosts.len();
        if service > 0 {
            write!(f, ": {} compute, {service} service", self.compute_hosts)?;
        }
        write!(f, "; {}", counted(self.nics, "NIC", "NICs"))?;
        if let Some(gpus) = self.gpus {
            write!(f, "; {}", counted(gpus, "GPU", "GPUs"))?;
        }
        writeln!(f)?;
        if service > 0 {
            let hosts = self.service_hosts.iter();
            let list: Vec<_> = hosts
                .map(|host| format!("{} ({})", host.host, host.nics))
                .collect();
            writeln!(f, "  service    few NICs by design: {}", names(&list))?;
        }
        Ok(())
    }

    fn write_capacity(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ratio) = &self.oversubscription {
            writeln!(
                f,
                "  leaves     {:.2} / {:.2} / {:.2} downlink/uplink bandwidth (min / median / max of {} leaves)",
                ratio.min, ratio.median, ratio.max, ratio.leaves
            )?;
        }
        for tier in self.structure.tiers.iter().skip(1) {
            if let Some(ratio) = tier.ratio() {
                writeln!(
                    f,
                    "  tier {}     {ratio:.2} downlink/uplink bandwidth",
                    tier.tier
                )?;
            }
        }
        if let Some(bisection) = &self.structure.bisection {
            write!(
                f,
                "  bisection  {} of {} that half of the hosts can send ({:.0} %)",
                terabits(bisection.bytes_per_second),
                terabits(bisection.wanted),
                100.0 * bisection.share()
            )?;
            match bisection.limited_by {
                Some(_) if !self.structure.groups.is_empty() => {
                    writeln!(f, ", limited by the cables between groups")?;
                }
                Some(tier) => writeln!(f, ", limited above tier {tier}")?,
                None => writeln!(f)?,
            }
        }
        let Speeds {
            hosts,
            switches,
            unknown,
        } = &self.speeds;
        if self.speeds.are_mixed() {
            writeln!(
                f,
                "  speeds     MIXED: hosts {}; between switches {}",
                speeds(hosts),
                speeds(switches)
            )?;
        } else if !hosts.is_empty() {
            writeln!(
                f,
                "  speeds     hosts {}; between switches {}",
                speeds(hosts),
                speeds(switches)
            )?;
        }
        if *unknown > 0 {
            writeln!(f, "  speeds     {unknown} cables without a known speed")?;
        }
        Ok(())
    }

    fn write_single_points(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points = &self.structure.single_points;
        if points.switches + points.trunks == 0 {
            return Ok(());
        }
        let worst: Vec<_> = points
            .worst
            .iter()
            .take(MAX_POINTS)
            .map(|point| format!("{} ({})", point.part, counted(point.hosts, "host", "hosts")))
            .collect();
        writeln!(
            f,
            "  single     {} and {} between switches cut off hosts: {}",
            counted(points.switches, "switch", "switches"),
            counted(points.trunks, "cable", "cables"),
            worst.join(", ")
                + if points.worst.len() > MAX_POINTS {
                    " …"
                } else {
                    ""
                }
        )
    }

    fn write_odd_switches(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for sentence in self.odd_switches.iter().take(MAX_NAMES) {
            writeln!(f, "  odd        {sentence}")?;
        }
        if self.odd_switches.len() > MAX_NAMES {
            writeln!(
                f,
                "  odd        {} more switches",
                self.odd_switches.len() - MAX_NAMES
            )?;
        }
        Ok(())
    }

    fn write_defects(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_odd_switches(f)?;
        for absent in &self.wiring.absent_leaves {
            writeln!(f, "  leaf gone  {absent}")?;
        }
        let mut by_rail: BTreeMap<(u16, &RdmaDevice), Vec<&MissingRail>> = BTreeMap::new();
        for missing in &self.wiring.missing {
            let key = (missing.rail, &missing.device);
            by_rail.entry(key).or_default().push(missing);
        }
        let what = if self.wiring.is_rail_wired() {
            "rail"
        } else {
            "NIC"
        };
        for ((rail, device), missing) in by_rail {
            let hosts: Vec<_> = missing
                .iter()
                .map(|missing| missing.host.as_str())
                .collect();
            let unnamed = missing
                .iter()
                .filter(|missing| missing.unnamed_there > 0)
                .count();
            let number = counted(hosts.len(), "host", "hosts");
            write!(
                f,
                "  missing    {what} {rail} ({device}) at {number}: {}",
                names(&hosts)
            )?;
            match unnamed {
                0 => writeln!(f)?,
                some => writeln!(
                    f,
                    "; at {some} of them a NIC without a name is connected to that leaf"
                )?,
            }
        }
        for misplaced in self.wiring.misplaced.iter().take(MAX_NAMES) {
            writeln!(f, "  misplaced  {misplaced}")?;
        }
        if self.wiring.misplaced.len() > MAX_NAMES {
            writeln!(
                f,
                "  misplaced  {} more NICs",
                self.wiring.misplaced.len() - MAX_NAMES
            )?;
        }
        for cable in &self.self_loops {
            let (low, high) = &cable.ports;
            writeln!(
                f,
                "  self-loop  {} port {low} to its own port {high}{}",
                cable.switch,
                at(cable.speed)
            )?;
        }
        for duplicate in self.sweep.duplicate_names.iter().take(MAX_NAMES) {
            writeln!(
                f,
                "  same name  {} nodes are called {:?}",
                duplicate.nodes, duplicate.description
            )?;
        }
        Ok(())
    }
}

/// Bytes per second as the bits per second in which links are sold.
fn terabits(bytes_per_second: f64) -> String {
    format!("{:.1} Tb/s", bytes_per_second * 8.0 / 1e12)
}

fn tier_in_words(tier: usize, switches: usize) -> String {
    match tier {
        1 => counted(switches, "leaf", "leaves"),
        2 => counted(switches, "spine", "spines"),
        3 => counted(switches, "core", "cores"),
        tier => format!("{switches} of tier {tier}"),
    }
}

fn at(speed: Option<LinkSpeed>) -> String {
    speed
        .map(|speed| format!(" at {speed}"))
        .unwrap_or_default()
}

fn speeds(speeds: &[(LinkSpeed, usize)]) -> String {
    if speeds.is_empty() {
        return "none".to_owned();
    }
    let list: Vec<_> = speeds
        .iter()
        .map(|(speed, cables)| format!("{cables} x {speed}"))
        .collect();
    list.join(" + ")
}

fn names<T: fmt::Display>(names: &[T]) -> String {
    let shown: Vec<_> = names
        .iter()
        .take(MAX_NAMES)
        .map(ToString::to_string)
        .collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
