//! A node's PCIe as sysfs shows it: one folder for each function, below the bridge above it.

use std::collections::{BTreeSet, HashMap};

use railscope_model::identity::PciAddress;

use super::files::{LiveFile, Tree, TreeError};
use crate::conditions::PcieLink;
use crate::spec::pci_layout::{Function, FunctionKind, PcieGeneration};

pub(super) mod config;

/// Rows of a function's AER files, as the kernel's drivers/pci/pcie/aer.c names them.
const CORRECTABLE: &[&str] = &[
    "RxErr",
    "BadTLP",
    "BadDLLP",
    "Rollover",
    "Timeout",
    "NonFatalErr",
    "CorrIntErr",
    "HeaderOF",
];
const UNCORRECTABLE: &[&str] = &[
    "Undefined",
    "DLP",
    "SDES",
    "TLP",
    "FCP",
    "CmpltTO",
    "CmpltAbrt",
    "UnxCmplt",
    "RxOF",
    "MalfTLP",
    "ECRC",
    "UnsupReq",
    "ACSViol",
    "UncorrIntErr",
    "BlockedTLP",
    "AtomicOpBlocked",
    "TLPBlockedErr",
    "PoisonTLPBlocked",
];

/// Files of both ends of one PCIe link that can degrade, and of the errors of its lower end.
#[derive(Debug, Clone)]
pub(super) struct LinkFiles {
    files: Vec<(LiveFile, LiveFile)>,
    errors: LiveFile,
}

impl LinkFiles {
    pub(super) fn set(&mut self, link: PcieLink, errors: u64) -> Result<(), TreeError> {
        self.errors.set(&aer(CORRECTABLE, "COR", errors))?;
        for (speed, width) in &mut self.files {
            speed.set(&speed_text(link.generation))?;
            width.set(&link.lanes.to_string())?;
        }
        Ok(())
    }
}

/// As the kernel's pci_speed_string prints it, always with one decimal.
fn speed_text(generation: PcieGeneration) -> String {
    format!("{:.1} GT/s PCIe", generation.gigatransfers())
}

/// The table of one severity, without its last line end: all errors are of the second kind, `BadTLP`.
fn aer(rows: &[&str], total: &str, errors: u64) -> String {
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let count = if number == 1 { errors } else { 0 };
        text.push_str(&format!("{row} {count}\n"));
    }
    text.push_str(&format!("TOTAL_ERR_{total} {errors}"));
    text
}

/// The functions of a node, written.
pub(super) struct PciTree {
    /// Folder of each function below `sys`.
    pub(super) folders: HashMap<PciAddress, String>,
    /// By NIC ordinal: both ends of the link above it.
    pub(super) nic_links: Vec<LinkFiles>,
    /// By NIC ordinal: the configuration space of the bridge above it.
    pub(super) nic_bridges: Vec<config::Space>,
}

/// Writes all functions. `tree` is rooted at `sys`; `cpu_lists` are the processors of each NUMA node.
pub(super) fn write(
    tree: &Tree,
    functions: &[Function],
    cpu_lists: &[&str],
) -> Result<PciTree, TreeError> {
    let drivers: BTreeSet<_> = functions.iter().map(Function::driver).collect();
    for driver in drivers {
        tree.folder(&format!("bus/pci/drivers/{driver}"))?;
    }
    let mut folders: HashMap<PciAddress, String> = HashMap::new();
    let mut links: HashMap<PciAddress, (LiveFile, LiveFile)> = HashMap::new();
    let (mut nic_links, mut nic_bridges) = (Vec::new(), Vec::new());
    let mut spaces: HashMap<PciAddress, config::Space> = HashMap::new();
    for function in functions {
        let pci = function.pci;
        let above = function
            .parent
            .and_then(|parent| folders.get(&parent))
            .map_or_else(
                || format!("devices/pci{:04x}:{:02x}", pci.domain, pci.bus),
                Clone::clone,
            );
        let folder = format!("{above}/{pci}");
        let (files, errors) = write_function(tree, &folder, function, cpu_lists)?;
        spaces.insert(pci, config::Space::write(tree, &folder, function)?);
        if let FunctionKind::Nic(..) = function.kind {
            let bridge = function.parent.and_then(|parent| spaces.get(&parent));
            nic_bridges.extend(bridge.cloned());
            let upper = function.parent.and_then(|parent| links.get(&parent));
            nic_links.push(LinkFiles {
                files: upper.cloned().into_iter().chain([files.clone()]).collect(),
                errors,
            });
        }
        links.insert(pci, files);
        folders.insert(pci, folder);
    }
    Ok(PciTree {
        folders,
        nic_links,
        nic_bridges,
    })
}

fn write_function(
    tree: &Tree,
    folder: &str,
    function: &Function,
    cpu_lists: &[&str],
) -> Result<((LiveFile, LiveFile), LiveFile), TreeError> {
    let [vendor, device] = [function.ids.0, function.ids.1].map(|id| format!("{id:#06x}"));
    let driver = function.driver();
    let speed = speed_text(function.generation);
    let lanes = function.lanes.to_string();
    for (name, text) in [
        ("class", function.class()),
        ("vendor", &vendor),
        ("device", &device),
        ("revision", "0x00"),
        ("numa_node", &function.numa_node.to_string()),
        (
            "local_cpulist",
            cpu_lists
                .get(usize::from(function.numa_node))
                .copied()
                .unwrap_or_default(),
        ),
        ("max_link_speed", &speed),
        ("max_link_width", &lanes),
        ("enable", "1"),
    ] {
        tree.line(&format!("{folder}/{name}"), text)?;
    }
    for (name, text) in [
        ("aer_dev_nonfatal", aer(UNCORRECTABLE, "NONFATAL", 0)),
        ("aer_dev_fatal", aer(UNCORRECTABLE, "FATAL", 0)),
    ] {
        tree.line(&format!("{folder}/{name}"), &text)?;
    }
    tree.file(
        &format!("{folder}/uevent"),
        &format!("DRIVER={driver}\nPCI_SLOT_NAME={}\n", function.pci),
    )?;
    tree.link(
        &format!("{folder}/driver"),
        &format!("bus/pci/drivers/{driver}"),
    )?;
    tree.link(&format!("{folder}/subsystem"), "bus/pci")?;
    tree.link(&format!("bus/pci/devices/{}", function.pci), folder)?;
    let live = |name: &str, text: &str| tree.live(&format!("{folder}/{name}"), text);
    Ok((
        (
            live("current_link_speed", &speed)?,
            live("current_link_width", &lanes)?,
        ),
        live("aer_dev_correctable", &aer(CORRECTABLE, "COR", 0))?,
    ))
}
