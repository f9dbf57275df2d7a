//! What the site does to the cluster: which nodes have a job, which are switched off, whose
//! counters begin again.

use std::sync::Arc;

use railscope_model::identity::Part;

use super::{Cluster, Job, Node, ROOMS};
use crate::conditions::Conditions;
use crate::faults::place::{cables_at, nics_at};
use crate::faults::site;
use crate::faults::site::{Site, Work};
use crate::parts::port::Counter;
use crate::spec::SpecError;
use crate::work::schedule::Activity;

/// Work of the site's people on some parts: whatever these show meanwhile was announced.
#[derive(Debug, Clone, PartialEq)]
pub struct Maintenance {
    /// Begin and end, seconds after the start of the simulation.
    pub seconds: (f64, f64),
    /// A node, including everything in it, or a switch with its cables.
    pub parts: Vec<Part>,
}

impl Cluster {
    /// The same cluster at such a site, from the start of the simulation on.
    ///
    /// # Errors
    /// The site cannot be.
    pub fn with_site(mut self, site: Site) -> Result<Self, SpecError> {
        site.check()?;
        self.site = (site != Site::default()).then_some(site);
        self.update_site();
        Ok(self)
    }

    /// Maintenance that begins in the first so many seconds of the simulation.
    pub fn maintenance(&self, duration_seconds: f64) -> Vec<Maintenance> {
        let site = self.site.iter();
        let works = site.flat_map(|site| site.works(duration_seconds, &self.plan));
        let maintenance = works.map(|(work, begin, end)| Maintenance {
            seconds: (begin, end),
            parts: match work {
                Work::Node(node) => vec![Part::Host(self.nodes[node].name.clone())],
                Work::Switch(switch) => {
                    let name = self.plan.switches[switch].name.clone();
                    let cables = cables_at(&self.plan, switch);
                    let cables = cables.map(|cable| self.plan.cable_part(cable));
                    std::iter::once(Part::Switch(name)).chain(cables).collect()
                }
            },
        });
        maintenance.collect()
    }

    /// Whether the node of a NIC, by its place in the plan, is switched off.
    pub fn is_away(&self, nic: usize) -> bool {
        self.nodes[self.port_at(nic).0].away
    }

    /// What holds now, of the faults that are there and the site.
    pub(super) fn conditions_now(&self) -> Conditions {
        let active = self.faults.iter().filter(|injected| injected.active);
        let effects = active.map(|injected| (&injected.fault.effect, injected.target));
        Conditions::of(&self.built, effects, &self.site_now)
    }

    /// Applies the site's actions of this time.
    pub(super) fn update_site(&mut self) {
        let Some(site) = &self.site else { return };
        let now = site.at(self.seconds, &self.plan, self.noise.part(ROOMS));
        if now == self.site_now {
            return;
        }
        let before = std::mem::replace(&mut self.site_now, now);
        let moved = self.move_jobs();
        let conditions = self.conditions_now();
        if moved {
            // Paths found before are those of other nodes.
            self.conditions = conditions.clone();
            self.find_ways();
            let healthy = self.under(&self.healthy);
            for (job, under) in self.jobs.iter_mut().zip(healthy) {
                job.healthy = under.pace;
            }
        }
        self.change_to(conditions);
        self.show_links();
        self.show_work(&before);
    }

    /// Assigns the nodes that are not drained to jobs, and returns whether any assignment changed. A job of stages
    /// has whole replicas only; one without nodes stops.
    fn move_jobs(&mut self) -> bool {
        let now = &self.site_now.nodes;
        let launch = self.site.as_ref().map_or(0.0, Site::launch_seconds);
        let mut moved = false;
        for job in &mut self.jobs {
            let free = |node: &u16| !now[usize::from(*node)].drained;
            let mut nodes: Vec<u16> = job.all_nodes.iter().copied().filter(free).collect();
            nodes.truncate(nodes.len() - nodes.len() % usize::from(job.spec.workload.stages));
            let stopped = nodes.is_empty();
            if (stopped, &nodes) == (job.stopped, &job.spec.nodes) || (stopped && job.stopped) {
                continue;
            }
            moved = true;
            job.stopped = stopped;
            job.moves += 1;
            job.launches += 1;
            job.resumes_at = self.seconds + launch;
            if !stopped {
                job.spec.nodes = nodes;
            }
        }
        if moved {
            self.work_of.fill(None);
            for (number, job) in self.jobs.iter().enumerate().filter(|(_, job)| !job.stopped) {
                for (place, node) in job.spec.nodes.iter().enumerate() {
                    self.work_of[usize::from(*node)] = Some((number, place));
                }
            }
            self.show_jobs();
        }
        moved
    }

    /// Lets nodes know whose work they do.
    pub(super) fn show_jobs(&mut self) {
        let names: Vec<Arc<str>> = self
            .jobs
            .iter()
            .map(|job| job.spec.name.as_str().into())
            .collect();
        for (node, work) in self.nodes.iter_mut().zip(&self.work_of) {
            node.job = work.map(|(job, _)| Arc::clone(&names[job]));
        }
    }

    /// What work leaves on the parts that it was done on.
    fn show_work(&mut self, before: &site::Now) {
        let version = self
            .site
            .as_ref()
            .and_then(|site| site.nic_firmware.as_ref());
        let version: Option<Arc<str>> = version.map(|new| new.version.as_str().into());
        for (number, (node, now)) in self.nodes.iter_mut().zip(&self.site_now.nodes).enumerate() {
            let before = before.nodes.get(number);
            if before.is_some_and(|before| before.away) && !now.away {
                node.restart();
            }
            node.away = now.away;
            let upgraded = before.map_or(0, |before| before.upgraded);
            for port in node.ports.iter_mut().take(now.upgraded).skip(upgraded) {
                port.reset();
                port.firmware.clone_from(&version);
            }
        }
        if let Some(switch) = self
            .site_now
            .switch
            .filter(|_| self.site_now.switch != before.switch)
        {
            let nics: Vec<usize> = nics_at(&self.plan, switch).collect();
            for nic in nics {
                self.port_mut(nic).add(Counter::LinkDowned, 1);
            }
        }
    }
}

impl Node {
    /// A restart of the node: whatever counted, counts from zero.
    fn restart(&mut self) {
        self.ports
            .iter_mut()
            .for_each(crate::parts::port::Port::reset);
        self.gpus
            .iter_mut()
            .for_each(crate::parts::gpu::Gpu::restart);
        self.nic_link_errors.fill(0);
        self.stalls = [0; 3];
        (self.stolen_seconds, self.storage_seconds) = (0.0, 0.0);
    }
}

impl Job {
    /// What the job does at a given time.
    pub(super) fn activity(&self, seconds: f64) -> Activity {
        // As `Interval::place` has it.
        if self.stopped || seconds + 1e-6 < self.resumes_at {
            Activity::Launch
        } else {
            self.spec.schedule.at(seconds)
        }
    }

    /// The next time at which that may change.
    pub(super) fn next_change(&self, seconds: f64) -> f64 {
        let resumes = Some(self.resumes_at).filter(|at| *at > seconds + 1e-6);
        let scheduled = self.spec.schedule.next_change(seconds);
        let changes = resumes.into_iter().chain(scheduled);
        changes.fold(f64::INFINITY, f64::min)
    }

    /// How often it has been launched again.
    pub(super) fn launches_at(&self, seconds: f64) -> u64 {
        self.spec.schedule.launches(seconds) + self.moves
    }
}
