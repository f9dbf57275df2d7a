//! What the exporter would report about a NIC's board and its slot: firmware may be new, and bridges set up
//! otherwise.

use railscope_model::metric::RDMA_DEVICE;
use railscope_model::reading::Labels;

use super::From;
use crate::spec::pci_layout::{Function, FunctionKind};

/// The labels of a NIC's board with what the firmware of now is called.
pub(super) fn with_firmware(labels: &Labels, firmware: Option<&str>) -> Labels {
    let Some(firmware) = firmware else {
        return labels.clone();
    };
    let place = RDMA_DEVICE
        .labels
        .iter()
        .position(|label| *label == "firmware");
    let values = (0..).zip(labels.values());
    Labels::new(values.map(|(number, value)| {
        if Some(number) == place {
            firmware
        } else {
            value
        }
    }))
}

/// What of a node reports whether the bridges above a function redirect: only those right above NICs ever
/// do.
pub(super) fn redirected(function: &Function, all: &[Function]) -> From {
    let is_nic = |other: &&Function| matches!(other.kind, FunctionKind::Nic(..));
    let mut nics = all.iter().filter(is_nic);
    let slot = nics.position(|nic| nic.parent == function.parent);
    slot.map_or(From::Fixed(0.0), From::Redirected)
}
