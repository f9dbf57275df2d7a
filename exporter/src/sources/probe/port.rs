//! Source ports of flows: the same for the same flow after a restart, and apart from each other.

use std::collections::BTreeSet;

/// Ports that Linux by default assigns to no socket (`net.ipv4.ip_local_port_range` ends at 60999).
/// RoCE v2 takes its own from 49152 to 65535; a switch that hashes five-tuples makes no difference
/// between them.
const FIRST: u16 = 61_000;
const COUNT: u16 = u16::MAX - FIRST + 1;

/// Ports for a flow, best first: where its name hashes to, then those behind.
pub(super) fn candidates(words: &[&str], taken: &BTreeSet<u16>) -> impl Iterator<Item = u16> {
    let start = (hash(words) % u64::from(COUNT)) as u16;
    let ports = (0..COUNT).map(move |step| FIRST + (start + step) % COUNT);
    ports.filter(|port| !taken.contains(port))
}

/// FNV-1a: a hash that stays the same from version to version, for a port that is to stay the same.
pub(super) fn hash(words: &[&str]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_has_the_same_port_always_and_flows_have_ports_of_their_own() {
        let mut taken = BTreeSet::new();
        for flow in 0..256 {
            let words = ["mlx5_0", "gpu-2", "mlx5_0", &flow.to_string()];
            let port = candidates(&words, &taken).next().expect("a port");
            assert!(port >= FIRST);
            assert!(taken.insert(port));
        }
        let words = ["mlx5_0", "gpu-2", "mlx5_0", "0"];
        let none = BTreeSet::new();
        // Written down: another number would put the flows of a running cluster on other paths.
        assert_eq!(candidates(&words, &none).next(), Some(PINNED));
        assert_eq!(candidates(&words, &none).count(), usize::from(COUNT));
    }

    const PINNED: u16 = 62_462;
}
