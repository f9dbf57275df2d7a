//! The catalogue: its tables, in the order of the page.

use super::Metric;

mod collector;
mod ethernet;
mod gpu;
mod host;
mod node;
mod nvlink;
mod pcie;
mod rdma;
mod workload;

pub use collector::*;
pub use ethernet::*;
pub use gpu::*;
pub use host::*;
pub use node::*;
pub use nvlink::*;
pub use pcie::*;
pub use rdma::*;
pub use workload::*;

const TABLES: &[&[&Metric]] = &[
    node::ROWS,
    gpu::ROWS,
    nvlink::ROWS,
    pcie::ROWS,
    rdma::ROWS,
    ethernet::ROWS,
    workload::ROWS,
    host::ROWS,
    collector::ROWS,
];

/// Every metric that Railscope writes.
pub static CATALOGUE: &[&Metric] = &joined::<{ collector::END as usize }>(TABLES);

const fn joined<const N: usize>(tables: &[&[&'static Metric]]) -> [&'static Metric; N] {
    let mut all = [tables[0][0]; N];
    let (mut filled, mut table) = (0, 0);
    while table < tables.len() {
        let mut row = 0;
        while row < tables[table].len() {
            all[filled] = tables[table][row];
            filled += 1;
            row += 1;
        }
        table += 1;
    }
    all
}
