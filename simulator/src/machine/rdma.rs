//! A node's RDMA devices as sysfs shows them: a folder below the PCI function, a link below `class/infiniband`.

use super::files::{LiveFile, Tree, TreeError};
use crate::port::{COUNTERS, Port};
use crate::wiring::Nic;

/// Live files of one port.
#[derive(Debug, Clone)]
pub(super) struct PortFiles {
    state: LiveFile,
    physical_state: LiveFile,
    rate: LiveFile,
    lid: LiveFile,
    counters: Vec<LiveFile>,
}

impl PortFiles {
    pub(super) fn set(&mut self, port: &Port) -> Result<(), TreeError> {
        self.state.set(port.state.logical())?;
        self.physical_state.set(port.state.physical())?;
        self.rate.set(&port.rate())?;
        self.lid.set(&format!("{:#x}", port.lid))?;
        for (file, value) in self.counters.iter_mut().zip(port.values()) {
            file.set(&value.to_string())?;
        }
        Ok(())
    }
}

/// Writes one device with its port. `function` is the folder of its PCI function below `sys`.
pub(super) fn write(
    tree: &Tree,
    function: &str,
    nic: &Nic,
    port: &Port,
) -> Result<PortFiles, TreeError> {
    let folder = format!("{function}/infiniband/{}", nic.device);
    let model = &nic.kind.shape().nic;
    let guid = {
        let digits = format!("{:016x}", nic.guid.0);
        [0, 4, 8, 12]
            .map(|at| digits[at..at + 4].to_owned())
            .join(":")
    };
    for (name, text) in [
        ("board_id", model.board_id),
        ("fw_ver", model.firmware),
        ("hca_type", model.hca_type),
        ("hw_rev", "0"),
        ("node_type", "1: CA"),
        ("node_guid", &guid),
        ("sys_image_guid", &guid),
        ("node_desc", &nic.description()),
        ("ports/1/link_layer", "InfiniBand"),
        ("ports/1/lid_mask_count", "0"),
        ("ports/1/sm_lid", "0x1"),
        ("ports/1/sm_sl", "0"),
        ("ports/1/cap_mask", "0xa751e848"),
        ("ports/1/gids/0", &format!("fe80:0000:0000:0000:{guid}")),
        ("ports/1/gid_attrs/types/0", "IB/RoCE v1"),
        ("ports/1/pkeys/0", "0xffff"),
        // The driver answers from its cache for so many milliseconds.
        ("ports/1/hw_counters/lifespan", "10"),
    ] {
        tree.line(&format!("{folder}/{name}"), text)?;
    }
    tree.link(&format!("{folder}/device"), function)?;
    tree.link(&format!("{folder}/subsystem"), "class/infiniband")?;
    tree.link(&format!("class/infiniband/{}", nic.device), &folder)?;
    let live = |name: &str, text: &str| tree.live(&format!("{folder}/ports/1/{name}"), text);
    Ok(PortFiles {
        state: live("state", port.state.logical())?,
        physical_state: live("phys_state", port.state.physical())?,
        rate: live("rate", &port.rate())?,
        lid: live("lid", &format!("{:#x}", port.lid))?,
        counters: COUNTERS
            .iter()
            .zip(port.values())
            .map(|(file, value)| {
                live(
                    &format!("{}/{}", file.folder, file.name),
                    &value.to_string(),
                )
            })
            .collect::<Result<_, _>>()?,
    })
}
