//! A fabric in the words of other tools: graphs, schedulers' files, node labels, hints for NCCL.

mod graph;
mod nccl;
mod scheduler;

pub use graph::{dot, graphml, json};
pub use nccl::nccl_hints;
pub use scheduler::{node_labels, slurm_block, slurm_tree};
