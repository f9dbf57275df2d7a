//! The catalogue: its tables, in the order of the exposition.

use super::Metric;

pub(super) mod collector;
pub(super) mod ethernet;
pub(super) mod gpu;
pub(super) mod host;
pub(super) mod node;
pub(super) mod nvlink;
pub(super) mod pcie;
pub(super) mod probe;
pub(super) mod rdma;
pub(super) mod switch;
pub(super) mod workload;

const TABLES: &[&[&Metric]] = &[
    node::ROWS,
    gpu::ROWS,
    nvlink::ROWS,
    pcie::ROWS,
    rdma::ROWS,
    ethernet::ROWS,
    workload::ROWS,
    host::ROWS,
    probe::ROWS,
    collector::ROWS,
    switch::ROWS,
];

/// Every metric that Railscope writes.
pub static CATALOGUE: &[&Metric] = &joined::<{ switch::END as usize }>(TABLES);

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
