//! What the exporters of a whole cluster would say.

use railscope_model::identity::NodeName;
use railscope_model::reading::NodeReading;

use super::NodeRows;
use crate::cluster::Cluster;

/// The rows of every node of a cluster, in its order.
#[derive(Debug)]
pub struct Exporters {
    names: Vec<NodeName>,
    rows: Vec<NodeRows>,
}

impl Exporters {
    /// Those of a cluster as it was built.
    pub fn of(cluster: &Cluster) -> Self {
        let plan = cluster.plan();
        let nodes = cluster.nodes().iter().zip(&plan.hosts);
        let rows = nodes.map(|(node, host)| NodeRows::new(node, &plan.nics[host.nics.clone()]));
        Self {
            rows: rows.collect(),
            names: cluster
                .nodes()
                .iter()
                .map(|node| node.name.clone())
                .collect(),
        }
    }

    /// Names of the nodes.
    pub fn names(&self) -> &[NodeName] {
        &self.names
    }

    /// What one of them says now.
    pub fn read_one(&self, node: usize, cluster: &Cluster) -> NodeReading {
        self.rows[node].read(&cluster.nodes()[node])
    }

    /// What each of them says now, those of nodes that are switched off too.
    pub fn read<'a>(
        &'a self,
        cluster: &'a Cluster,
    ) -> impl Iterator<Item = (&'a NodeName, NodeReading)> {
        let nodes = self.names.iter().enumerate();
        nodes.map(|(node, name)| (name, self.read_one(node, cluster)))
    }
}
