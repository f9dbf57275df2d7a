//! Reads job logs: collectives that timed out (PyTorch's watchdog), failed RDMA operations (NCCL WARN) and NCCL's network setup
//! (NCCL INFO).

use std::collections::{BTreeMap, BTreeSet};

use super::unlabeled;

/// Data from the logs of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobLog {
    /// Ranks that timed out, by number and kind of the operation.
    pub timeouts: BTreeMap<(u64, String), BTreeSet<u32>>,
    /// Last operation that a rank enqueued and last that it completed, as reported by the watchdog.
    pub progress: BTreeMap<u32, (i64, i64)>,
    /// NICs that NCCL uses, in its notation: `mlx5_0:1/IB`.
    pub nics: BTreeSet<String>,
    /// Number of network connections: with GPUDirect RDMA, without it, over TCP.
    pub connections: [usize; 3],
    /// NICs for which NCCL reports that GPUDirect RDMA is disabled.
    pub without_gdr: BTreeSet<String>,
    /// Whether NCCL reports that NVLink SHARP is available.
    pub nvls: Option<bool>,
    /// Whether NCCL uses TCP.
    pub uses_tcp: bool,
    /// Failed RDMA operations by host and status.
    pub failures: BTreeMap<(String, u32), Failures>,
    /// Ranks that finished one collective and did not join the next, by PyTorch's analysis: rank and that next one.
    pub not_joined: BTreeSet<(u32, i64)>,
}

/// Failed RDMA operations of one host with the same status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Number of operations.
    pub count: usize,
    /// Addresses of the peers.
    pub peers: BTreeSet<String>,
    /// RDMA devices.
    pub nics: BTreeSet<String>,
}

/// Status of operations that were canceled because another one failed.
const FLUSHED: u32 = 5;

/// Meaning of a status (`enum ibv_wc_status`) and what to check.
fn meaning(status: u32) -> (&'static str, &'static str) {
    match status {
        4 => (
            "local protection error",
            "check GPUDirect RDMA (nvidia-peermem, dma-buf) and memory limits",
        ),
        FLUSHED => (
            "canceled after another failure",
            "find the first failure in the logs of all nodes",
        ),
        9..=11 => (
            "rejected by the peer",
            "look for the first failure at the peer",
        ),
        12 => (
            "no acknowledgment after all retries",
            "check links, NICs and switches on the path to the peer, and whether its process ended first",
        ),
        13 => (
            "the receiver was not ready after all retries",
            "check whether the peer is slow or its process hangs",
        ),
        _ => (
            "see enum ibv_wc_status",
            "check links and NICs of both nodes",
        ),
    }
}

/// Whether a text is a job log.
pub fn is_job_log(text: &str) -> bool {
    text.contains("Watchdog caught collective operation timeout")
        || text.contains("last enqueued work:")
        || text.contains(" NCCL INFO ")
        || text.contains("NCCL WARN ")
        || text.contains(NOT_JOINED)
}

/// Words of PyTorch's analysis about a rank that did not join.
const NOT_JOINED: &str = "but didn't join collective #";

impl JobLog {
    /// Adds the lines of a log.
    pub fn take(&mut self, text: &str) {
        for line in text.lines() {
            if line.contains("Watchdog caught collective operation timeout") {
                self.timeout(line);
            } else if line.contains("last enqueued work:") {
                self.enqueued(line);
            } else if let Some((_, message)) = line.split_once(" NCCL INFO ") {
                self.info(message);
            } else if let Some((head, message)) = line.split_once("NCCL WARN ") {
                self.failure(unlabeled(head), message);
            } else if let Some(next) = number(line, NOT_JOINED) {
                let rank = number(line, "[").and_then(|rank| u32::try_from(rank).ok());
                self.not_joined.extend(rank.map(|rank| (rank, next)));
            }
        }
    }

    fn timeout(&mut self, line: &str) {
        let sequence = number(line, "SeqNum=").and_then(|number| u64::try_from(number).ok());
        let kind = between(line, "OpType=").unwrap_or("a collective");
        if let (Some(rank), Some(sequence)) = (rank(line), sequence) {
            let ranks = self
                .timeouts
                .entry((sequence, kind.to_owned()))
                .or_default();
            ranks.insert(rank);
        }
    }

    /// `n1:123:456 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.2.0.5<33092> with error 12, ...`;
    /// newer versions report `with status=IBV_WC_RETRY_EXC_ERR(12)` and name the device behind
    /// `hca`.
    fn failure(&mut self, head: &str, message: &str) {
        let Some((_, rest)) = message.split_once("Got completion ") else {
            return;
        };
        let status = number(rest, "error ").or_else(|| {
            let word = between(rest, "status=")?;
            number(&format!("{word} "), "(").or_else(|| word.parse().ok())
        });
        let Some(status) = status.and_then(|status| u32::try_from(status).ok()) else {
            return;
        };
        // The process stands before the number of its GPU.
        let process = head.split_once(" [").map_or("", |(process, _)| process);
        let process = process.split_whitespace().last().unwrap_or_default();
        let host = process.split(':').next().unwrap_or_default();
        let of = self.failures.entry((host.to_owned(), status)).or_default();
        of.count += 1;
        let peer = between(rest, "from peer ").and_then(|peer| peer.split('<').next());
        of.peers.extend(peer.map(str::to_owned));
        of.nics.extend(between(rest, " hca ").map(str::to_owned));
    }

    fn enqueued(&mut self, line: &str) {
        let enqueued =
            number(line, "last enqueued work: ").or_else(|| number(line, "last enqueued work:"));
        let completed =
            number(line, "last completed work: ").or_else(|| number(line, "last completed work:"));
        if let (Some(rank), Some(enqueued), Some(completed)) = (rank(line), enqueued, completed) {
            self.progress.insert(rank, (enqueued, completed));
        }
    }

    fn info(&mut self, message: &str) {
        if let Some((_, used)) = message.split_once("NET/IB : Using ") {
            let nics = used.split_whitespace().filter(|word| word.starts_with('['));
            let names =
                nics.filter_map(|word| word.split_once(']').map(|(_, name)| name.to_owned()));
            self.nics.extend(
                names.filter(|name| name.starts_with(|sign: char| sign.is_ascii_alphanumeric())),
            );
        } else if message.contains("NET/Socket : Using") || message.contains("Using network Socket")
        {
            self.uses_tcp = true;
        } else if message.contains("via NET/Socket") {
            self.connections[2] += 1;
        } else if message.contains("via NET/") {
            self.connections[usize::from(!message.contains("GDRDMA"))] += 1;
        } else if let Some((_, rest)) = message.split_once("GPU Direct RDMA Disabled for ") {
            self.without_gdr.insert(rest.trim().to_owned());
        } else if message.contains("NVLS multicast support is ") {
            self.nvls = Some(!message.contains("not available"));
        }
    }

    /// Whether anything was found.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Findings as sentences; the flag marks those that need attention.
    pub fn judge(&self) -> Vec<(String, bool)> {
        let mut findings = Vec::new();
        let timed_out: BTreeSet<u32> = self.timeouts.values().flatten().copied().collect();
        for ((sequence, kind), ranks) in &self.timeouts {
            findings.push((
                format!("{kind} number {sequence} timed out on {}", list(ranks)),
                true,
            ));
        }
        findings.extend(self.divergence());
        let last = self.progress.values().map(|(enqueued, _)| *enqueued).max();
        let late: BTreeSet<u32> = self
            .progress
            .iter()
            .filter(|(_, (enqueued, _))| Some(*enqueued) < last)
            .map(|(rank, _)| *rank)
            .collect();
        if let (Some(last), false) = (last, late.is_empty()) {
            findings.push((format!("{} never reached operation {last}, and the others wait for it; check that process first", list(&late)), true));
        } else if let Some(highest) = timed_out.last()
            // Of a log of few ranks with high numbers most ranks are not known.
            && (*highest as usize) < 2 * timed_out.len()
        {
            let quiet = (0..*highest).filter(|rank| !timed_out.contains(rank));
            let quiet: BTreeSet<u32> = quiet.collect();
            if !quiet.is_empty() {
                findings.push((
                    format!(
                        "no timeout from {}: ranks that do not time out may delay the others",
                        list(&quiet)
                    ),
                    true,
                ));
            }
        }
        findings.extend(self.failed_operations());
        findings.extend(self.network());
        findings
    }

    /// Ranks that left the common order of collectives.
    fn divergence(&self) -> Vec<(String, bool)> {
        let mut findings = Vec::new();
        let mut kinds: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for ((sequence, kind), ranks) in &self.timeouts {
            let of = kinds.entry(*sequence).or_default();
            of.push(format!("{kind} on {}", list(ranks)));
        }
        for (sequence, kinds) in kinds.iter().filter(|(_, kinds)| kinds.len() > 1) {
            findings.push((format!("different operations have number {sequence} ({}): if these ranks are of one process group, their programs diverged, and the network is not the cause", kinds.join(", ")), true));
        }
        let mut by_next: BTreeMap<i64, BTreeSet<u32>> = BTreeMap::new();
        for (rank, next) in &self.not_joined {
            by_next.entry(*next).or_default().insert(*rank);
        }
        for (next, ranks) in by_next {
            findings.push((format!("{} did not join collective {next}, and the others wait; check that process first", list(&ranks)), true));
        }
        findings
    }

    /// Failed RDMA operations; those that were canceled only if nothing else failed.
    fn failed_operations(&self) -> Vec<(String, bool)> {
        let only_flushed = self.failures.keys().all(|(_, status)| *status == FLUSHED);
        let told = self.failures.iter();
        let told = told.filter(|((_, status), _)| only_flushed || *status != FLUSHED);
        let sentence = |((host, status), failures): (&(String, u32), &Failures)| {
            let Failures { count, peers, nics } = failures;
            let host = if host.is_empty() { "a node" } else { host };
            let (what, check) = meaning(*status);
            let on = |word: &str, names: &BTreeSet<String>| match names.len() {
                0 => String::new(),
                1..=8 => format!(
                    "{word}{}",
                    names.iter().cloned().collect::<Vec<_>>().join(", ")
                ),
                many => format!("{word}{many} different ones"),
            };
            let at = on(", device ", nics) + &on(", peer ", peers);
            (
                format!(
                    "{host}: {count} RDMA operations failed with status {status}, {what}{at}: {check}"
                ),
                true,
            )
        };
        told.map(sentence).collect()
    }

    fn network(&self) -> Vec<(String, bool)> {
        let mut findings = Vec::new();
        if !self.nics.is_empty() {
            let nics: Vec<&str> = self.nics.iter().map(String::as_str).collect();
            findings.push((
                format!("NCCL uses {} NICs: {}", nics.len(), nics.join(" ")),
                false,
            ));
        }
        let [direct, staged, tcp] = self.connections;
        if direct + staged + tcp > 0 {
            findings.push((
                format!("{direct} connections with GPUDirect RDMA, {staged} through host memory, {tcp} over TCP"),
                tcp > 0 || (staged > 0 && direct > 0),
            ));
        }
        if self.uses_tcp && self.nics.is_empty() {
            findings.push(("NCCL found no RDMA NIC and uses TCP: check \"ibv_devinfo\" in the job's container, NCCL_IB_DISABLE and NCCL_IB_HCA".to_owned(), true));
        }
        for nic in &self.without_gdr {
            findings.push((format!("GPUDirect RDMA is disabled for {nic}: load nvidia-peermem or use dma-buf, check ACS and NCCL_NET_GDR_LEVEL"), true));
        }
        if let Some(there) = self.nvls {
            let there = if there { "available" } else { "not available" };
            findings.push((format!("NVLink SHARP is {there}"), false));
        }
        findings
    }
}

fn list(ranks: &BTreeSet<u32>) -> String {
    let names: Vec<String> = ranks.iter().take(24).map(ToString::to_string).collect();
    let more = match ranks.len().saturating_sub(names.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{} {}{more}",
        if ranks.len() == 1 { "rank" } else { "ranks" },
        names.join(", ")
    )
}

/// The rank in `[Rank 3]`, in `Rank 3]` after a process group, or in `[rank3]`.
fn rank(line: &str) -> Option<u32> {
    let number = number(line, "Rank ").or_else(|| number(line, "[rank"))?;
    u32::try_from(number).ok()
}

/// The integer after a prefix.
fn number(line: &str, word: &str) -> Option<i64> {
    let (_, rest) = line.split_once(word)?;
    let end = rest
        .char_indices()
        .find(|(at, sign)| !(sign.is_ascii_digit() || *at == 0 && *sign == '-'));
    rest[..end.map_or(rest.len(), |(at, _)| at)].parse().ok()
}

/// The word after a prefix, up to a comma or bracket.
fn between<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(word)?;
    rest.split([',', ')', ' '])
        .next()
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let mut log = JobLog::default();
        log.take(text);
        log.judge()
            .into_iter()
            .map(|(finding, _)| finding)
            .collect()
    }

    #[test]
    fn a_rank_that_never_joined_is_reported() {
        let timeout = |rank: u32| {
            format!(
                "[rank{rank}]:[E P.cpp:1] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000) ran for 600081 milliseconds before timing out.\n"
            )
        };
        let failure = |rank: u32, enqueued: i64| {
            format!(
                "[PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: 9 PG status: last enqueued work: {enqueued}, last completed work: -1\n"
            )
        };
        let text = timeout(0)
            + &timeout(1)
            + &timeout(3)
            + &failure(0, 9)
            + &failure(1, 9)
            + &failure(2, 8);
        let found = findings(&text);
        assert_eq!(found[0], "ALLREDUCE number 9 timed out on ranks 0, 1, 3");
        assert!(
            found[1].starts_with("rank 2 never reached operation 9"),
            "{found:?}"
        );
        let found = findings(&(timeout(0) + &timeout(1) + &timeout(3)));
        assert!(found[1].starts_with("no timeout from rank 2"), "{found:?}");
        let found = findings(&(timeout(0) + &timeout(4_000_000_000)));
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn failed_rdma_operations_name_host_status_and_peer() {
        let old = "[1,0]<stderr>: n2:5776:5902 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.2.0.5<33092> with error 12, opcode 0, len 0, vendor err 129 (Recv)\n";
        let new = "1: n3:7:8 [1] transport/net_ib.cc:1 NCCL WARN NET/IB: Got completion from peer 10.2.0.6<1> with status=IBV_WC_RNR_RETRY_EXC_ERR(13) opcode=IBV_WC_SEND(0) len=0 vendor err 135 (Send) hca mlx5_4\n";
        let flushed = old.replace("error 12", "error 5");
        let found = findings(&(old.repeat(2) + new + &flushed));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("n2: 2 RDMA operations failed with status 12, no acknowledgment after all retries, peer 10.2.0.5: check links"),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("n3: 1 RDMA operations failed with status 13, the receiver was not ready after all retries, device mlx5_4, peer 10.2.0.6: "),
            "{found:?}"
        );
        assert!(findings(&flushed)[0].contains("find the first failure"));
        let cut = "NCCL WARN NET/IB : Got completion from peer 10.2.0.7<55921> with status=12 opcode=1 len=0 vendor err 129 (Send) localGid ::ffff:10.2.0.1\n";
        assert!(
            findings(cut)[0].starts_with("a node: 1 RDMA operations failed with status 12, no acknowledgment after all retries, peer 10.2.0.7: "),
            "{:?}",
            findings(cut)
        );
        let very_old = "n1:1:2 [0] transport/net_ib.cu:788 NCCL WARN NET/IB : Got completion with error 4, opcode 1, len 21938, vendor err 81\n";
        assert!(
            findings(very_old)[0].starts_with(
                "n1: 1 RDMA operations failed with status 4, local protection error: "
            )
        );
        assert_eq!(
            findings(
                "x NCCL WARN Got completion with status=(\nx NCCL WARN Got completion error -\n"
            ),
            [""; 0]
        );
    }

    #[test]
    fn ranks_that_left_the_common_order_are_reported() {
        let timeout = |rank: u32, kind: &str| {
            format!(
                "[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType={kind}, NumelIn=1) ran\n"
            )
        };
        let found = findings(&(timeout(0, "ALLREDUCE") + &timeout(1, "BROADCAST")));
        assert!(
            found[2].starts_with(
                "different operations have number 9 (ALLREDUCE on rank 0, BROADCAST on rank 1): "
            ),
            "{found:?}"
        );
        let found = findings(
            &(timeout(0, "ALLREDUCE")
                + "     [1] finished collective #2, but didn't join collective #3 (count from 1)\n"),
        );
        assert_eq!(
            found[1],
            "rank 1 did not join collective 3, and the others wait; check that process first"
        );
    }

    #[test]
    fn nccl_without_gpudirect_or_without_any_nic_is_reported() {
        let found = findings(
            "n1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>\nn1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA\n\
             n1:1:2 [0] NCCL INFO Channel 01/0 : 1[1] -> 9[1] [send] via NET/IB/1\nn1:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_1'\n\
             n1:1:2 [0] NCCL INFO NVLS multicast support is not available on dev 0\n",
        );
        assert_eq!(found[0], "NCCL uses 2 NICs: mlx5_0:1/IB mlx5_1:1/IB");
        assert_eq!(
            found[1],
            "1 connections with GPUDirect RDMA, 1 through host memory, 0 over TCP"
        );
        assert!(
            found[2].contains("disabled for HCA 1 'mlx5_1'")
                && found[3] == "NVLink SHARP is not available",
            "{found:?}"
        );
        let found = findings("n1:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n");
        assert!(
            found[0].starts_with("NCCL found no RDMA NIC and uses TCP"),
            "{found:?}"
        );
    }
}
