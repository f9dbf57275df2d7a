//! What the exporter would say of a NIC's board: its firmware may be new.

use railscope_model::metric::RDMA_DEVICE;
use railscope_model::reading::Labels;

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
