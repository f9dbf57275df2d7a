//! The latency of slow probes.

use super::{Prober, RECOVERY_SECONDS, Way, retraining};
use crate::cluster::Cluster;

impl Prober {
    /// How long a probe took that came back later than after so many seconds: by one of the causes that [`Self::slow`]
    /// counts, drawn as often as it makes probes slow. `index` distinguishes the times of asking.
    pub fn slow_seconds(&self, cluster: &Cluster, way: &Way, seconds: f64, index: u64) -> f64 {
        let now = cluster.conditions();
        let beyond = |longest: f64| (1.0 - seconds / longest).max(0.0);
        let (mut causes, mut all) = (Vec::new(), 0.0);
        let mut add = |chance: f64, shortest: f64, longest: f64| {
            all += chance;
            causes.push((all, shortest, longest));
        };
        for (lane, share) in way.out.iter().chain(&way.back) {
            add(
                share * retraining(now, *lane) * beyond(RECOVERY_SECONDS),
                seconds,
                RECOVERY_SECONDS,
            );
            let delays = now
                .delays
                .iter()
                .filter(|(cable, ..)| *cable == lane.cable());
            for (_, part, delay) in delays.filter(|(_, _, delay)| *delay > seconds) {
                add(share * part, *delay, *delay);
            }
        }
        let host = usize::from(self.wiring.nics[way.from].node);
        for one in &now.hosts[host].standstills {
            add(
                one.per_second * one.seconds * beyond(one.seconds),
                seconds,
                one.seconds,
            );
        }
        let noise = way.noise(cluster).part(index).part(3);
        let drawn = noise.uniform(0) * all;
        let cause = causes.into_iter().find(|(until, ..)| drawn < *until);
        let (_, shortest, longest) = cause.unwrap_or((0.0, seconds, seconds));
        shortest + noise.uniform(1) * (longest - shortest)
    }
}
