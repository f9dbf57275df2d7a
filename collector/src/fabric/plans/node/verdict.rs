//! Evaluates the topology inside a node: summary in one sentence, findings, text report.

use std::collections::BTreeMap;
use std::fmt;

use super::{Distance, NodeTopology};
use crate::fabric::subnet::counted;

impl NodeTopology {
    /// Summary in one sentence: the path of the GPUs to the fabric.
    pub fn verdict(&self) -> String {
        if self.gpus.is_empty() {
            return match self.unknown {
                0 => "no GPU".to_owned(),
                many => format!("no verdict: {many} PCI functions without a type (GPU or NIC)"),
            };
        }
        if !self.tells_nics {
            return self.of_links();
        }
        if self.nics.is_empty() {
            return "no RDMA NIC: no GPUDirect path out of the node".to_owned();
        }
        let near: Vec<_> = (0..self.gpus.len())
            .filter_map(|gpu| self.nearest(gpu))
            .collect();
        let without_distance = self.without_distance();
        let Some(worst) = near.iter().map(|(distance, _)| *distance).max() else {
            return "no verdict: no distance between a GPU and a NIC is given".to_owned();
        };
        let about = match without_distance.len() {
            0 => String::new(),
            _ => format!(
                "{} of {} GPUs (no data for {}): ",
                near.len(),
                self.gpus.len(),
                without_distance.join(", ")
            ),
        };
        if worst > Distance::Pxb {
            let through = near
                .iter()
                .filter(|(distance, _)| *distance > Distance::Pxb);
            return format!(
                "{about}{} of {} GPUs reach their nearest NIC through the CPU ({})",
                through.count(),
                near.len(),
                worst.word()
            );
        }
        about + &self.shares(&near, worst)
    }

    /// Summary of a text about NVLinks only.
    fn of_links(&self) -> String {
        let gpus = counted(self.gpus.len(), "GPU", "GPUs");
        let what = if self.tells_errors && self.switched.is_empty() {
            format!("NVLink error counters of {gpus}")
        } else if self.inactive.len() == self.gpus.len() {
            format!("no active NVLink at {gpus}")
        } else {
            "links between GPUs only".to_owned()
        };
        what + ", no data about NICs"
    }

    /// Inactive NVLinks where none of the GPUs has another state, and errors of NVLinks.
    fn link_findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        let has_links = (0..self.gpus.len()).any(|gpu| self.links_of(gpu) > 0);
        let wrong = self
            .inactive
            .iter()
            .filter(|(_, wrong)| **wrong && !has_links);
        let names: Vec<&str> = wrong
            .map(|(gpu, _)| self.gpus[*gpu].name.as_str())
            .collect();
        if !names.is_empty() {
            findings.push(format!(
                "all NVLinks of {} are inactive: check that the fabric manager runs, Xid 74 and the fabric state (nvidia-smi -q), then reset the GPU",
                names.join(", ")
            ));
        }
        for (gpu, endpoint) in self.gpus.iter().enumerate() {
            let of = self.link_errors.range((gpu, 0)..=(gpu, u8::MAX));
            let links: Vec<String> = of
                .map(|((_, link), errors)| {
                    let kinds = errors.iter().map(|(kind, count)| format!("{count} {kind}"));
                    format!("link {link}: {}", kinds.collect::<Vec<_>>().join(", "))
                })
                .collect();
            if !links.is_empty() {
                findings.push(format!(
                    "{} has NVLink errors ({}): if they grow, check Xid 74 in the kernel log and reset the GPU",
                    endpoint.name,
                    links.join("; ")
                ));
            }
        }
        findings
    }

    /// How GPUs share NICs that they reach without the CPU.
    fn shares(&self, near: &[(Distance, Vec<usize>)], worst: Distance) -> String {
        let mut users = vec![0usize; self.nics.len()];
        for (_, nics) in near {
            nics.iter().for_each(|nic| users[*nic] += 1);
        }
        let idle = users.iter().filter(|users| **users == 0).count();
        let most = users.iter().copied().max().unwrap_or(0);
        let mut verdict = if near.iter().all(|(_, nics)| nics.len() == 1) && most == 1 {
            "each GPU has its own NIC".to_owned()
        } else {
            format!("up to {most} GPUs share their nearest NIC")
        };
        verdict += &format!(", reached without the CPU ({})", worst.word());
        if idle > 0 {
            verdict += &format!("; {idle} NICs are not the nearest of any GPU");
        }
        verdict
    }

    /// GPUs without a distance to any NIC, although the text lists NICs.
    fn without_distance(&self) -> Vec<&str> {
        if !self.tells_nics || self.nics.is_empty() {
            return Vec::new();
        }
        let without = (0..self.gpus.len()).filter(|gpu| self.nearest(*gpu).is_none());
        without.map(|gpu| self.gpus[gpu].name.as_str()).collect()
    }

    /// Differences between the GPUs of the node, one sentence each; each is a fault or can hide one.
    pub fn findings(&self) -> Vec<String> {
        let mut findings = self.link_findings();
        let links: Vec<u16> = (0..self.gpus.len()).map(|gpu| self.links_of(gpu)).collect();
        if let Some(usual) = usual(&links) {
            for (gpu, own) in self.gpus.iter().zip(&links) {
                match own {
                    0 if usual > 0 => findings.push(format!(
                        "{} has none of the {usual} NVLinks of the other GPUs: reset it, check Xid 74 and its fabric state (nvidia-smi -q)",
                        gpu.name
                    )),
                    own if *own != usual => findings.push(format!(
                        "{} has {own} NVLinks; the other GPUs have {usual}",
                        gpu.name
                    )),
                    _ => {}
                }
            }
        } else if let (Some(least), Some(most)) = (links.iter().min(), links.iter().max()) {
            findings.push(format!(
                "the number of NVLinks differs between GPUs, from {least} to {most}, without a value shared by two thirds"
            ));
        }
        let near: Vec<_> = (0..self.gpus.len()).map(|gpu| self.nearest(gpu)).collect();
        let distances: Vec<Distance> = near
            .iter()
            .flatten()
            .map(|(distance, _)| *distance)
            .collect();
        if let Some(usual) = usual(&distances) {
            for (gpu, near) in self.gpus.iter().zip(&near) {
                if let Some((distance, _)) = near.as_ref().filter(|(distance, _)| *distance > usual)
                {
                    findings.push(format!(
                        "{} reaches its nearest NIC over {}; the other GPUs over {}",
                        gpu.name,
                        distance.word(),
                        usual.word()
                    ));
                }
            }
        }
        let without_distance = self.without_distance();
        if !without_distance.is_empty() {
            findings.push(format!(
                "no data for {}: the text is truncated, or the driver no longer lists {}",
                without_distance.join(", "),
                if without_distance.len() == 1 {
                    "it"
                } else {
                    "them"
                }
            ));
        }
        findings
    }

    /// Values by which nodes are compared.
    pub fn identity(&self) -> BTreeMap<String, String> {
        let near = self.affinity().into_iter().zip(&self.gpus);
        let near: Vec<String> = near
            .map(|((distance, nics), gpu)| {
                let distance = distance.map_or("none", Distance::word);
                format!("{} {distance} {}", gpu.name, nics.join(" "))
            })
            .collect();
        [
            ("GPUs", self.gpus.len().to_string()),
            ("RDMA NICs", self.nics.len().to_string()),
            (
                "NVLinks",
                self.nvlinks().unwrap_or_else(|| "none".to_owned()),
            ),
            ("nearest NICs", near.join(", ")),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// NVLinks of each GPU in one line; `None` if there are none.
    fn nvlinks(&self) -> Option<String> {
        let mut by_number: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
        for (gpu, endpoint) in self.gpus.iter().enumerate() {
            by_number
                .entry(self.links_of(gpu))
                .or_default()
                .push(&endpoint.name);
        }
        let usual = by_number
            .iter()
            .max_by_key(|(_, gpus)| gpus.len())
            .map(|(links, _)| *links)?;
        if by_number.len() == 1 {
            return (usual > 0).then(|| format!("{usual} at each GPU"));
        }
        let others = by_number.iter().filter(|(links, _)| **links != usual);
        let others: Vec<_> = others
            .map(|(links, gpus)| format!("{links} at {}", gpus.join(", ")))
            .collect();
        Some(format!("{usual} at most GPUs, {}", others.join("; ")))
    }
}

/// Minimum ratio of equal values for a usual value (2 of 3).
const USUAL_SHARE: f64 = 2.0 / 3.0;

/// The value shared by at least two thirds; `None` if there is no such value.
fn usual<T: Ord + Copy>(values: &[T]) -> Option<T> {
    let mut count: BTreeMap<T, usize> = BTreeMap::new();
    for value in values {
        *count.entry(*value).or_default() += 1;
    }
    let (value, most) = count.into_iter().max_by_key(|(_, count)| *count)?;
    (most as f64 >= USUAL_SHARE * values.len() as f64).then_some(value)
}

impl fmt::Display for NodeTopology {
    /// Several lines; the first is the summary.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.verdict())?;
        for finding in self.findings() {
            writeln!(f, "  WRONG      {finding}")?;
        }
        writeln!(
            f,
            "  devices    {}, {}",
            counted(self.gpus.len(), "GPU", "GPUs"),
            counted(self.nics.len(), "RDMA NIC", "RDMA NICs")
        )?;
        if self.other_ports > 0 {
            writeln!(
                f,
                "  no NICs    {}: NVSwitch management, or without an RDMA device",
                counted(self.other_ports, "network port", "network ports")
            )?;
        }
        if self.unknown > 0 {
            writeln!(
                f,
                "  unknown    {} PCI functions without a type",
                self.unknown
            )?;
        }
        for (gpu, endpoint) in self.gpus.iter().enumerate() {
            let Some((distance, nics)) = self.nearest(gpu) else {
                continue;
            };
            let names: Vec<_> = nics
                .iter()
                .map(|nic| self.nics[*nic].name.as_str())
                .collect();
            writeln!(
                f,
                "  nearest    {} {} {}",
                endpoint.name,
                distance.word(),
                names.join(" ")
            )?;
        }
        match self.nvlinks() {
            Some(links) => writeln!(f, "  nvlink     {links}"),
            None => Ok(()),
        }
    }
}
