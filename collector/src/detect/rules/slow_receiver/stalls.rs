//! NICs that count how long their PCIe link took too little of what they received.

use railscope_model::metric::NIC_PCIE_STALLED_SECONDS;
use railscope_model::reading::Labels;

use super::pauses::sent_pause;
use super::{ABOVE_PEERS, Holds, MIN_PAUSE, MIN_STALLED, WINDOW_SECONDS};
use crate::assemble::netdev::nic_of;
use crate::detect::detector::View;
use crate::detect::peers::{MIN_PEERS, median};
use crate::store::{Increase, Window};

/// Share of the seconds in which a NIC lacked credits for writes for much of the second; none of other series.
pub(super) fn stalled((labels, window): (&Labels, Window<'_>)) -> Option<f64> {
    let writes = labels.values().nth(1) == Some("write");
    let rise = writes.then(|| window.newest_increase(WINDOW_SECONDS))?;
    rise.map(Increase::rate)
}

/// NICs whose PCIe link stalls, and that send no pause.
pub(super) fn stalling<'a>(view: &View<'a>) -> Vec<Holds<'a>> {
    let stalls = |found: Option<f64>| found.is_some_and(|share| share >= MIN_STALLED);
    let mut nodes = view.history.fresh_nodes(view.now);
    let any = nodes.any(|(_, history)| {
        let mut moving = history.moving(&NIC_PCIE_STALLED_SECONDS);
        moving.any(|series| stalls(stalled(series)))
    });
    if !any {
        return Vec::new();
    }
    let nodes = view.history.fresh_nodes(view.now);
    let shares = nodes.flat_map(|(node, history)| {
        let series = history.series(&NIC_PCIE_STALLED_SECONDS);
        series.filter_map(move |series| {
            let netdev = series.0.values().next()?;
            Some((node, history, netdev, stalled(series)?))
        })
    });
    let shares: Vec<_> = shares.collect();
    if shares.len() < MIN_PEERS {
        return Vec::new();
    }
    let usual = median(shares.iter().map(|(.., share)| *share)).unwrap_or(0.0);
    let holds = shares.into_iter().filter_map(|(node, history, netdev, share)| {
        let is_far = share >= MIN_STALLED && share > ABOVE_PEERS * usual;
        // Pause shows what its NIC does to others, and whether that is a storm.
        let paused = || sent_pause(history, WINDOW_SECONDS, |of| of == netdev);
        let pauses = || paused().is_some_and(|share| share > MIN_PAUSE);
        if !is_far || pauses() {
            return None;
        }
        let (pci, device) = nic_of(history, netdev)?;
        Some(Holds {
            node,
            pci,
            signal: &NIC_PCIE_STALLED_SECONDS,
            // The counter does not show how much of each such second it is.
            share: None,
            ticks: 0.0,
            storm: false,
            words: format!(
                "{device} of {node} lacked credits of its PCIe link in {:.0} % of the last {WINDOW_SECONDS:.0} s, for more than 30 % of each of these seconds; the median NIC does so in {:.1} %",
                100.0 * share.min(1.0),
                100.0 * usual
            ),
            device,
        })
    });
    holds.collect()
}
