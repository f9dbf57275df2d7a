//! Faults of a cluster: what is true of them, and what happens when they come and go.

use railscope_model::identity::Part;

use super::pacing::Under;
use super::{Cluster, Injected};
use crate::conditions::Conditions;
use crate::faults::place::{Target, nics_at};
use crate::faults::site as sites;
use crate::faults::{Fault, FaultError, Truth};
use crate::parts::port::Counter;
use crate::spec::Transport;
use crate::work::workload::JobSpec;

impl Cluster {
    /// Lets a fault happen when its time comes, and reports what will be true then. Each truth is that
    /// of the fault alone, whatever others last at the same time.
    ///
    /// # Errors
    /// The cluster has no such part, or its part cannot fail so.
    pub fn inject(&mut self, fault: Fault) -> Result<Truth, FaultError> {
        let target = self.find(&fault)?;
        let kind = fault.effect.kind();
        let alone = Conditions::of(
            &self.built,
            std::iter::once((&fault.effect, target)),
            &sites::Now::default(),
        );
        let under = self.under(&alone);
        let slowdowns = under.iter().zip(&self.jobs).map(|(under, job)| {
            let healthy = job.healthy.step_seconds();
            let now = under.pace.step_seconds();
            now.zip(healthy).map(|(step, healthy)| step / healthy)
        });
        // Of the job that it hurts most; a stalled one has no factor.
        let slowdown = slowdowns
            .into_iter()
            .try_fold(1.0_f64, |worst, of_job| Some(worst.max(of_job?)));
        let truth = Truth {
            part: fault.part.clone(),
            cause: fault.effect.cause(),
            class: fault.effect.class(),
            severity: kind.severity(&self.place().healthy(target)),
            slowdown,
            victims: self.victims(target, &under),
            accomplices: kind.accomplices(target, &self.place()),
        };
        self.faults.push(Injected {
            fault,
            target,
            active: false,
        });
        Ok(truth)
    }

    /// Ends the faults of this cause that a part has now. Returns whether there were any.
    pub fn end(&mut self, part: &Part, cause: &str) -> bool {
        let mut ended = false;
        for Injected { fault, .. } in &mut self.faults {
            if fault.part == *part && fault.effect.cause() == cause && fault.is_there(self.seconds)
            {
                fault.end_seconds = Some(self.seconds);
                ended = true;
            }
        }
        self.update_faults();
        ended
    }

    /// Finds what a fault names and checks its numbers.
    fn find(&self, fault: &Fault) -> Result<Target, FaultError> {
        let refuse = |problem: String| FaultError {
            cause: fault.effect.cause(),
            part: fault.part.clone(),
            problem,
        };
        let over = fault
            .end_seconds
            .is_some_and(|end| end <= fault.onset_seconds);
        if !fault.onset_seconds.is_finite() || over {
            return Err(refuse(
                "expected an onset_seconds before end_seconds".to_owned(),
            ));
        }
        let kind = fault.effect.kind();
        kind.target(&fault.part, &self.place()).map_err(refuse)
    }

    /// The senders to a NIC: NICs of the same number of the nodes before it in its job's
    /// collectives.
    pub(super) fn senders_to(&self, nic: usize) -> Vec<usize> {
        let (node, slot) = (self.plan.nics[nic].node, self.plan.slot(nic));
        let Some((job, place)) = self.work_of[usize::from(node)] else {
            return Vec::new();
        };
        let JobSpec {
            nodes, workload, ..
        } = &self.jobs[job].spec;
        let mut senders = Vec::new();
        if !self.plan.common_slots(nodes).contains(&slot) {
            return senders;
        }
        for collective in &workload.collectives {
            let groups = workload.groups(collective.pattern, nodes.len());
            let into = groups
                .into_iter()
                .flatten()
                .filter(|(_, to, _)| *to == place);
            senders.extend(into.map(|(from, ..)| self.plan.nic_index(nodes[from], slot)));
        }
        senders.sort_unstable();
        senders.dedup();
        senders
    }

    /// Cables at hosts that show symptoms of another part's fault.
    fn victims(&self, target: Target, under: &[Under]) -> Vec<Part> {
        let mut nics: Vec<usize> = match target {
            Target::Nic(_) | Target::Nics(..) => {
                let culprits = target.nics().into_iter();
                culprits.flat_map(|nic| self.senders_to(nic)).collect()
            }
            // All NICs of a node receive too slowly, so all that send to them wait.
            Target::Host(node) => {
                let own = self.plan.hosts[node].nics.clone();
                own.flat_map(|nic| self.senders_to(nic)).collect()
            }
            Target::Cable(_) => under
                .iter()
                .flat_map(|under| under.traffic.lossy.iter().flatten())
                .map(|lossy| lossy.sender)
                .collect(),
            Target::Switch(switch) => nics_at(&self.plan, switch)
                .flat_map(|nic| self.senders_to(nic).into_iter().chain([nic]))
                .collect(),
            Target::Gpu(_) | Target::FirstHosts(_) => Vec::new(),
        };
        nics.extend(self.held_up(target, under));
        nics.sort_unstable();
        nics.dedup();
        nics.into_iter()
            .map(|nic| self.plan.nics[nic].link_part())
            .collect()
    }

    /// NICs that pause, losses and marks reach on an Ethernet; the faulty component's own are not
    /// among them.
    fn held_up(&self, target: Target, under: &[Under]) -> Vec<usize> {
        if self.spec.transport != Transport::Roce {
            return Vec::new();
        }
        let lossy = under
            .iter()
            .flat_map(|under| under.traffic.lossy.iter().flatten());
        let lossy = lossy.flat_map(|lossy| [lossy.sender, lossy.receiver]);
        let strained = under
            .iter()
            .flat_map(|under| under.strains.iter().flat_map(|strains| &strains.nics));
        let is_own = |nic: usize| match target {
            Target::Host(node) => usize::from(self.plan.nics[nic].node) == node,
            _ => target.nics().contains(&nic),
        };
        lossy
            .chain(strained.map(|(nic, _)| *nic))
            .filter(|nic| !is_own(*nic))
            .collect()
    }

    pub(super) fn update_faults(&mut self) {
        let mut changed = Vec::new();
        for injected in &mut self.faults {
            let active = injected.fault.lasts_at(self.seconds);
            if active != injected.active {
                injected.active = active;
                changed.push((injected.fault.clone(), injected.target));
            }
        }
        if changed.is_empty() {
            return;
        }
        self.change_to(self.conditions_now());
        self.show_links();
        for (fault, target) in changed {
            // Not before the start of the simulation, and not when it is over.
            if fault.onset_seconds > 0.0 && fault.lasts_at(self.seconds) {
                self.begin(&fault, target);
            }
        }
    }

    /// What is counted once, when a fault begins.
    fn begin(&mut self, fault: &Fault, target: Target) {
        let kind = fault.effect.kind();
        if kind.replugs() {
            let nics = match target {
                Target::Switch(switch) => nics_at(&self.plan, switch).collect(),
                _ => target.nics(),
            };
            for nic in nics {
                self.port_mut(nic).add(Counter::LinkDowned, 1);
            }
        }
        if let (Some(xid), Target::Gpu(gpu)) = (kind.xid(), target) {
            let host = self.plan.host_of_gpu(gpu);
            let number = gpu - self.plan.hosts[host].gpus.start;
            self.nodes[host].gpus[number].xids.push(xid);
        }
    }
}
