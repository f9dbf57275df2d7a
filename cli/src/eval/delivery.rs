//! How scrapes get from the nodes to the collector: late, twice or never, from agents that die and
//! counters that begin again.
//!
//! Nothing of it is a fault of the cluster, and all of it is drawn from the seed.

use railscope_model::reading::NodeReading;
use railscope_simulator::cluster::Cluster;
use railscope_simulator::noise::Noise;
use serde::Deserialize;

/// The stream of noise that deliveries are drawn from: not the cluster's own.
const DELIVERY: u64 = 0x1057;
/// Maximum delay of a late scrape after its request, in ticks.
const LATEST_TICKS: u64 = 2;
/// Scrape times within an interval: the collector spreads its scrapes over it.
pub(super) const TURNS: u64 = 5;

/// `[delivery]` of a scenario. All shares are from 0 to less than 1, and 0 if omitted.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Delivery {
    /// Share of the scrapes that bring nothing.
    pub(super) lost: f64,
    /// Share of the scrapes whose body comes one or two ticks later. As in production the scrape is
    /// stamped on arrival, and the node is not scraped again before.
    pub(super) late: f64,
    /// Share of the scrapes that come again with the next scrape, before or after the new one.
    pub(super) duplicated: f64,
    /// Share of the nodes that never had an agent.
    pub(super) missing: f64,
    /// Share of the nodes whose agent dies once and comes back after `away_seconds`.
    pub(super) dying: f64,
    /// Time for which an agent that died reports nothing.
    pub(super) away_seconds: f64,
    /// Most that the stamp of a node's scrapes is off, in either direction; each node has its own.
    pub(super) skew_seconds: f64,
    /// Maximum time by which one switch is read before another in the same round: a sweep reads one after another, and the
    /// agent of each for one port after another.
    pub(super) switch_skew_seconds: f64,
    /// Share of the NICs whose driver is reloaded once: all counters of the port begin at zero.
    pub(super) counter_resets: f64,
    /// Share of the NICs whose 32-bit counters stand shortly before their end when the run begins.
    pub(super) counter_wraps: f64,
    /// Share of the nodes whose exporter is restarted once: what it counted itself begins at zero.
    pub(super) restarts: f64,
}

impl Default for Delivery {
    /// Every scrape arrives, once and in time; switches are read within 0.2 s, as by a sweep
    /// with hundreds of requests in flight.
    fn default() -> Self {
        Self {
            lost: 0.0,
            late: 0.0,
            duplicated: 0.0,
            missing: 0.0,
            dying: 0.0,
            away_seconds: 180.0,
            skew_seconds: 0.0,
            switch_skew_seconds: 0.2,
            counter_resets: 0.0,
            counter_wraps: 0.0,
            restarts: 0.0,
        }
    }
}

impl Delivery {
    /// What is wrong with it: field, and what was expected.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        let shares = [
            ("delivery.lost", self.lost),
            ("delivery.late", self.late),
            ("delivery.duplicated", self.duplicated),
            ("delivery.missing", self.missing),
            ("delivery.dying", self.dying),
            ("delivery.counter_resets", self.counter_resets),
            ("delivery.counter_wraps", self.counter_wraps),
            ("delivery.restarts", self.restarts),
        ];
        let share = shares
            .into_iter()
            .find(|(_, share)| !(0.0..1.0).contains(share))
            .map(|(field, found)| {
                let expected = "expected a share from 0 to less than 1";
                (field, format!("found {found}, {expected}"))
            });
        let time = |field, found: f64| {
            let sound = (0.0..=86_400.0).contains(&found);
            (!sound).then(|| (field, format!("found {found} s, expected 0 to a day")))
        };
        share
            .or_else(|| time("delivery.away_seconds", self.away_seconds))
            .or_else(|| time("delivery.skew_seconds", self.skew_seconds))
            .or_else(|| time("delivery.switch_skew_seconds", self.switch_skew_seconds))
    }
}

/// The agent of a node, with its scrapes in flight.
#[derive(Debug)]
struct Agent {
    /// At which of the [`TURNS`] it is scraped.
    turn: u64,
    /// Time of its newest confirmation scrape, past or scheduled.
    again: Option<u64>,
    /// From when to when it reports nothing.
    away: Option<(f64, f64)>,
    restart: Option<f64>,
    skew: f64,
    /// A requested scrape, and the tick at which it arrives.
    late: Option<(u64, NodeReading)>,
    /// The copy of the last scrape that comes with the next scrape.
    copy: Option<NodeReading>,
}

/// Carries the scrapes of one run.
#[derive(Debug)]
pub(super) struct Post {
    delivery: Delivery,
    noise: Noise,
    agents: Vec<Agent>,
    /// NICs whose driver is reloaded, and when.
    reloads: Vec<(usize, f64)>,
}

impl Post {
    /// Draws what happens in a run of so many seconds, and lets counters be as old as they are.
    pub(super) fn new(
        delivery: Delivery,
        seed: u64,
        cluster: &mut Cluster,
        duration_seconds: f64,
    ) -> Self {
        let noise = Noise::new(seed).part(DELIVERY);
        let (of_nodes, of_nics) = (noise.part(0), noise.part(1));
        // Somewhere in the run, and early enough that there is something after it.
        let once = |noise: Noise, draw: u64, share: f64| {
            let moment = 0.9 * duration_seconds * noise.uniform(draw + 1);
            (noise.uniform(draw) < share).then_some(moment)
        };
        let agent = |node: u64| {
            let noise = of_nodes.part(node);
            let dies = once(noise, 2, delivery.dying).map(|at| (at, at + delivery.away_seconds));
            let missing = (noise.uniform(0) < delivery.missing).then_some((0.0, f64::INFINITY));
            Agent {
                turn: noise.bits(7) % TURNS,
                again: None,
                away: missing.or(dies),
                restart: once(noise, 4, delivery.restarts),
                skew: delivery.skew_seconds * (2.0 * noise.uniform(6) - 1.0),
                late: None,
                copy: None,
            }
        };
        let nics = cluster.plan().nics.len();
        let reload = |nic: usize| {
            let at = once(of_nics.part(nic as u64), 0, delivery.counter_resets);
            Some((nic, at?))
        };
        for nic in 0..nics {
            let noise = of_nics.part(nic as u64);
            if noise.uniform(2) < delivery.counter_wraps {
                cluster.age_counters(nic, noise.part(3));
            }
        }
        Self {
            delivery,
            noise: noise.part(2),
            agents: (0..cluster.nodes().len() as u64).map(agent).collect(),
            reloads: (0..nics).filter_map(reload).collect(),
        }
    }

    /// Reloads drivers and restarts exporters between two times.
    pub(super) fn upset(&self, cluster: &mut Cluster, after: f64, to: f64) {
        let now = |at: f64| after < at && at <= to;
        for (nic, _) in self.reloads.iter().filter(|(_, at)| now(*at)) {
            cluster.reload_driver(*nic);
        }
        for (node, agent) in self.agents.iter().enumerate() {
            if agent.restart.is_some_and(now) {
                cluster.restart_exporter(node);
            }
        }
    }

    /// Nodes that are scraped at a given time, in scrape slots since the run began.
    pub(super) fn nodes_at(&self, moment: u64) -> Vec<usize> {
        let agents = self.agents.iter().enumerate();
        let at_moment =
            agents.filter(|(_, agent)| agent.turn == moment % TURNS || agent.again == Some(moment));
        at_moment.map(|(node, _)| node).collect()
    }

    /// Requests a confirmation scrape of a node, as the collector does: once between two of its
    /// scrapes.
    pub(super) fn ask_again(&mut self, node: usize, moment: u64) {
        let agent = &mut self.agents[node];
        if agent.again.is_none_or(|before| moment >= before + TURNS) {
            agent.again = Some(moment);
        }
    }

    /// The timestamp of a node's scrapes.
    pub(super) fn stamp(&self, node: usize, seconds: f64) -> f64 {
        (seconds + self.agents[node].skew).max(0.0)
    }

    /// The scrapes of a node that come with a tick, in this order.
    pub(super) fn pages(
        &mut self,
        node: usize,
        (tick, seconds): (u64, f64),
        read: impl FnOnce() -> NodeReading,
    ) -> Vec<NodeReading> {
        let noise = self.noise.part(node as u64).part(tick);
        let Delivery {
            lost,
            late,
            duplicated,
            ..
        } = self.delivery;
        let agent = &mut self.agents[node];
        let copy = agent.copy.take();
        if agent
            .away
            .is_some_and(|(from, to)| from <= seconds && seconds < to)
        {
            agent.late = None;
            return Vec::new();
        }
        if let Some((due, page)) = agent.late.take() {
            if due <= tick {
                return vec![page];
            }
            agent.late = Some((due, page));
            return Vec::new();
        }
        if noise.uniform(0) < lost {
            return copy.into_iter().collect();
        }
        if noise.uniform(1) < late {
            agent.late = Some((tick + 1 + noise.bits(2) % LATEST_TICKS, read()));
            return copy.into_iter().collect();
        }
        let page = read();
        if noise.uniform(3) < duplicated {
            agent.copy = Some(page.clone());
        }
        let copy_first = noise.uniform(4) < 0.5;
        match copy {
            None => vec![page],
            Some(copy) if copy_first => vec![copy, page],
            Some(copy) => vec![page, copy],
        }
    }
}

#[cfg(test)]
mod tests {
    use railscope_model::metric::RDMA_PORT_UP;
    use railscope_model::reading::Labels;
    use railscope_simulator::parts::port::Counter;
    use railscope_simulator::spec::ClusterSpec;

    use super::*;

    const TICKS: u64 = 400;

    fn cluster() -> Cluster {
        Cluster::new(ClusterSpec::demo(8).expect("a spec"), 1).expect("a cluster")
    }

    fn reading(tick: u64) -> NodeReading {
        let mut reading = NodeReading::default();
        reading.push(&RDMA_PORT_UP, &Labels::new(["a", "1"]), tick);
        reading
    }

    /// By node and tick: the ticks at which the scrapes that came were made.
    fn delivered(delivery: Delivery) -> Vec<Vec<Vec<u64>>> {
        let seconds = TICKS as f64 * 10.0;
        let mut post = Post::new(delivery, 1000, &mut cluster(), seconds);
        let made = |page: &NodeReading| page.samples()[0].value.as_f64() as u64;
        let mut node = |node: usize| -> Vec<Vec<u64>> {
            let tick = |tick: u64| {
                let pages = post.pages(node, (tick, tick as f64 * 10.0), || reading(tick));
                pages.iter().map(made).collect()
            };
            (0..TICKS).map(tick).collect()
        };
        (0..8).map(&mut node).collect()
    }

    /// Share of the scrapes, or of the nodes' ticks, for which something holds.
    fn share(delivered: &[Vec<Vec<u64>>], test: impl Fn(u64, &[u64]) -> bool) -> f64 {
        let ticks = delivered.iter().flat_map(|node| (0..).zip(node));
        let hits = ticks.filter(|(tick, pages)| test(*tick, pages)).count();
        hits as f64 / (8 * TICKS) as f64
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 0.03, "{found} {expected}");
    }

    #[test]
    fn without_noise_each_page_comes_once_and_at_once() {
        let all = delivered(Delivery::default());
        near(share(&all, |tick, pages| *pages == [tick]), 1.0);
    }

    #[test]
    fn pages_are_lost_late_and_doubled_as_often_as_asked_for() {
        let tenth = |change: fn(&mut Delivery)| {
            let mut delivery = Delivery::default();
            change(&mut delivery);
            delivered(delivery)
        };
        let lost = tenth(|delivery| delivery.lost = 0.1);
        near(share(&lost, |_, pages| pages.is_empty()), 0.1);
        // 10 % of the scrapes, each of which replaces one or two others.
        let late = tenth(|delivery| delivery.late = 0.1);
        let is_late = |tick: u64, pages: &[u64]| pages.iter().any(|made| *made < tick);
        near(share(&late, is_late), 0.1 / 1.15);
        assert!(late.iter().flatten().all(|pages| pages.len() <= 1));
        let doubled = tenth(|delivery| delivery.duplicated = 0.1);
        near(share(&doubled, |_, pages| pages.len() == 2), 0.1);
        near(share(&doubled, |tick, pages| pages.contains(&tick)), 1.0);
        let both_orders = [[0, 1], [1, 0]].map(|order| {
            share(&doubled, |_, pages| {
                pages.len() == 2 && (pages[0] < pages[1]) == (order == [0, 1])
            })
        });
        assert!(
            both_orders.iter().all(|share| *share > 0.02),
            "{both_orders:?}"
        );
    }

    #[test]
    fn agents_are_missing_for_good_or_away_for_their_time() {
        let all = delivered(Delivery {
            missing: 0.5,
            ..Delivery::default()
        });
        let silent = |node: &[Vec<u64>]| node.iter().filter(|pages| pages.is_empty()).count();
        assert!(
            all.iter()
                .all(|node| [0, TICKS as usize].contains(&silent(node)))
        );
        assert!(all.iter().any(|node| silent(node) > 0));
        let dying = delivered(Delivery {
            dying: 0.999,
            away_seconds: 200.0,
            ..Delivery::default()
        });
        assert!(dying.iter().all(|node| (19..=21).contains(&silent(node))));
    }

    #[test]
    fn counters_begin_anew_near_their_end_and_after_a_reload() {
        let always = Delivery {
            counter_resets: 0.999,
            counter_wraps: 0.999,
            restarts: 0.999,
            ..Delivery::default()
        };
        let mut cluster = cluster();
        let post = Post::new(always, 1000, &mut cluster, 100.0);
        let of_port = |cluster: &Cluster, counter| cluster.nodes()[3].ports[2].get(counter);
        assert!(of_port(&cluster, Counter::PacketSeqErr) > (1 << 31));
        let before = of_port(&cluster, Counter::PortXmitData);
        cluster.advance(std::time::Duration::from_secs(100));
        assert!(of_port(&cluster, Counter::PortXmitData) > before);
        post.upset(&mut cluster, 0.0, 100.0);
        assert_eq!(of_port(&cluster, Counter::PortXmitData), 0);
    }
}
