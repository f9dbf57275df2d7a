//! A node's RDMA devices as sysfs shows them: a folder below the PCI function, a link below `class/infiniband`.

use railscope_model::identity::Guid;

use super::files::{LiveFile, Tree, TreeError};
use crate::parts::efa::{DEVICE_COUNTERS, EfaCounter, port_guid};
use crate::parts::ethernet::{EthernetCounter, Netdev, Source, gids};
use crate::parts::port::{COUNTERS, Port};
use crate::wiring::Nic;

/// Live files of one port.
#[derive(Debug, Clone)]
pub(super) struct PortFiles {
    firmware: LiveFile,
    state: LiveFile,
    physical_state: LiveFile,
    rate: LiveFile,
    lid: LiveFile,
    counters: Vec<LiveFile>,
}

impl PortFiles {
    pub(super) fn set(&mut self, port: &Port) -> Result<(), TreeError> {
        if let Some(version) = &port.firmware {
            self.firmware.set(version)?;
        }
        self.state.set(port.state.logical())?;
        self.physical_state.set(port.state.physical())?;
        self.rate.set(&port.rate())?;
        self.lid.set(&format!("{:#x}", port.lid))?;
        for (file, (.., value)) in self.counters.iter_mut().zip(counters(port)) {
            file.set(&value.to_string())?;
        }
        Ok(())
    }
}

/// Folder, file and value of each counter of a port.
fn counters(port: &Port) -> Vec<(&'static str, &'static str, u64)> {
    if let Some(efa) = &port.efa {
        let of = |counter: &EfaCounter| ("hw_counters", counter.name(), efa.get(*counter));
        return EfaCounter::ALL.iter().map(of).collect();
    }
    let every = COUNTERS.iter().zip(port.values());
    let every = every.map(|(file, value)| (file.folder, file.name, *value));
    let more = of_ethernet(port).map(|(name, value)| ("hw_counters", name, value));
    every.chain(more).collect()
}

/// What an Ethernet port counts below the RDMA port besides what every port does.
fn of_ethernet(port: &Port) -> impl Iterator<Item = (&'static str, u64)> {
    port.netdev.iter().flat_map(|netdev| {
        let counters = EthernetCounter::ALL.iter();
        let counters = counters.filter(|counter| counter.source() == Source::Rdma);
        counters.map(|counter| (counter.name(), netdev.get(*counter)))
    })
}

/// Writes one device with its port, by the number of its NIC in the node. `function` is the folder of its PCI
/// function below `sys`.
pub(super) fn write(
    tree: &Tree,
    function: &str,
    (nic, slot): (&Nic, usize),
    port: &Port,
) -> Result<PortFiles, TreeError> {
    let folder = format!("{function}/infiniband/{}", nic.device);
    let model = &nic.kind.shape().nic;
    let guid = grouped(nic.guid);
    for (name, text) in [
        ("node_guid", guid.as_str()),
        // The driver returns values from its cache for so many milliseconds.
        ("ports/1/hw_counters/lifespan", "10"),
    ] {
        tree.line(&format!("{folder}/{name}"), text)?;
    }
    match &port.netdev {
        None if port.efa.is_some() => write_efa(tree, &folder, nic)?,
        None => {
            write_mlx5(tree, &folder, nic, &guid)?;
            write_infiniband(tree, &folder, &guid)?;
        }
        Some(netdev) => {
            write_mlx5(tree, &folder, nic, &guid)?;
            write_roce(tree, &folder, (nic, slot), netdev)?;
        }
    }
    tree.link(&format!("{folder}/device"), function)?;
    tree.link(&format!("{folder}/subsystem"), "class/infiniband")?;
    tree.link(&format!("class/infiniband/{}", nic.device), &folder)?;
    let live = |name: &str, text: &str| tree.live(&format!("{folder}/ports/1/{name}"), text);
    let files = counters(port).into_iter();
    let files =
        files.map(|(folder, name, value)| live(&format!("{folder}/{name}"), &value.to_string()));
    let counters = files.collect::<Result<_, _>>()?;
    Ok(PortFiles {
        firmware: tree.live(&format!("{folder}/fw_ver"), model.firmware)?,
        state: live("state", port.state.logical())?,
        physical_state: live("phys_state", port.state.physical())?,
        rate: live("rate", &port.rate())?,
        lid: live("lid", &format!("{:#x}", port.lid))?,
        counters,
    })
}

/// Four groups of four digits.
fn grouped(guid: Guid) -> String {
    let digits = format!("{:016x}", guid.0);
    [0, 4, 8, 12].map(|at| &digits[at..at + 4]).join(":")
}

/// What a device of mlx5 has besides.
fn write_mlx5(tree: &Tree, folder: &str, nic: &Nic, guid: &str) -> Result<(), TreeError> {
    let model = &nic.kind.shape().nic;
    for (name, text) in [
        ("board_id", model.board_id),
        ("hca_type", model.hca_type),
        ("hw_rev", "0"),
        ("node_type", "1: CA"),
        ("sys_image_guid", guid),
        ("node_desc", &nic.description()),
        ("ports/1/lid_mask_count", "0"),
        ("ports/1/sm_sl", "0"),
        ("ports/1/pkeys/0", "0xffff"),
    ] {
        tree.line(&format!("{folder}/{name}"), text)?;
    }
    Ok(())
}

/// What an EFA device has instead: one address, and counters of its command queue.
fn write_efa(tree: &Tree, folder: &str, nic: &Nic) -> Result<(), TreeError> {
    let gid = format!("fe80:0000:0000:0000:{}", grouped(port_guid(nic.guid)));
    for (name, text) in [
        ("ports/1/link_layer", "Unknown"),
        ("ports/1/gids/0", gid.as_str()),
        ("hw_counters/lifespan", "10"),
    ] {
        tree.line(&format!("{folder}/{name}"), text)?;
    }
    for (name, value) in DEVICE_COUNTERS {
        tree.line(&format!("{folder}/hw_counters/{name}"), &value.to_string())?;
    }
    Ok(())
}

/// What an InfiniBand port has of its subnet.
fn write_infiniband(tree: &Tree, folder: &str, guid: &str) -> Result<(), TreeError> {
    for (name, text) in [
        ("link_layer", "InfiniBand"),
        ("sm_lid", "0x1"),
        ("cap_mask", "0xa751e848"),
        ("gids/0", &format!("fe80:0000:0000:0000:{guid}")),
        ("gid_attrs/types/0", "IB/RoCE v1"),
    ] {
        tree.line(&format!("{folder}/ports/1/{name}"), text)?;
    }
    Ok(())
}

/// What a RoCE port has instead: addresses of its Ethernet interface.
fn write_roce(
    tree: &Tree,
    folder: &str,
    (nic, slot): (&Nic, usize),
    netdev: &Netdev,
) -> Result<(), TreeError> {
    for (name, text) in [
        ("link_layer", "Ethernet"),
        ("sm_lid", "0x0"),
        ("cap_mask", "0x04010000"),
    ] {
        tree.line(&format!("{folder}/ports/1/{name}"), text)?;
    }
    for (index, (gid, version)) in gids(nic.guid, nic.node, slot).iter().enumerate() {
        for (name, text) in [
            ("gids", gid.as_str()),
            ("gid_attrs/types", version),
            ("gid_attrs/ndevs", &netdev.name),
        ] {
            tree.line(&format!("{folder}/ports/1/{name}/{index}"), text)?;
        }
    }
    Ok(())
}
