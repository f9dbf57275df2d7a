//! What the exporters of a whole cluster would report.

use railscope_model::identity::NodeName;
use railscope_model::reading::NodeReading;

use super::NodeRows;
use super::probes::{Probes, Probing};
use crate::cluster::Cluster;

/// The rows of every node of a cluster, in its order.
#[derive(Debug)]
pub struct Exporters {
    names: Vec<NodeName>,
    rows: Vec<NodeRows>,
    probes: Option<Probes>,
}

impl Exporters {
    /// Those of a cluster as it was built.
    pub fn of(cluster: &Cluster) -> Self {
        let plan = cluster.plan();
        let nodes = cluster.nodes().iter().zip(&plan.hosts);
        let rows = nodes.map(|(node, host)| NodeRows::new(node, &plan.nics[host.nics.clone()]));
        Self {
            rows: rows.collect(),
            probes: None,
            names: cluster
                .nodes()
                .iter()
                .map(|node| node.name.clone())
                .collect(),
        }
    }

    /// The same, and all of them probe each other.
    #[must_use]
    pub fn probing(mut self, cluster: &Cluster, probing: Probing) -> Self {
        self.probes = Some(Probes::new(cluster, probing));
        self
    }

    /// Sends the probes of the time since this was called last: to be called each time the cluster has moved.
    pub fn probe(&mut self, cluster: &Cluster) {
        if let Some(probes) = &mut self.probes {
            probes.follow(cluster);
        }
    }

    /// Names of the nodes.
    pub fn names(&self) -> &[NodeName] {
        &self.names
    }

    /// What one of them reports now.
    pub fn read_one(&self, node: usize, cluster: &Cluster) -> NodeReading {
        let mut reading = self.rows[node].read(&cluster.nodes()[node]);
        if let Some(probes) = &self.probes {
            probes.push(&mut reading, node);
        }
        reading
    }

    /// What each of them reports now, those of nodes that are switched off too.
    pub fn read<'a>(
        &'a self,
        cluster: &'a Cluster,
    ) -> impl Iterator<Item = (&'a NodeName, NodeReading)> {
        let nodes = self.names.iter().enumerate();
        nodes.map(|(node, name)| (name, self.read_one(node, cluster)))
    }
}
