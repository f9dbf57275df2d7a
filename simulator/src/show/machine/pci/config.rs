//! The configuration space of a PCI function: the parts that describe how the function is set up.
//!
//! Offsets are those of the PCI Express Base Specification 6.0, chapter 7 (and of Linux'
//! `include/uapi/linux/pci_regs.h`).

use super::super::files::{BinaryFile, Tree, TreeError};
use crate::spec::pci_layout::{Function, FunctionKind};

/// Bytes of the file: all that a PCI Express function has.
const BYTES: usize = 4096;
const HAS_CAPABILITIES: u16 = 1 << 4;
/// Where the PCI Express capability stands, and where access control does.
const EXPRESS: usize = 0x60;
const ACCESS_CONTROL: usize = 0x100;
/// Offset of the control register below access control.
const CONTROL: usize = 6;
/// Capabilities and control of the device: payloads of up to 512 bytes, and 256 in use; reads of up to 4096 bytes,
/// relaxed ordering and extended tags, as servers for GPUs are set up.
const DEVICE_CAPABILITIES: u32 = 0x8002;
const DEVICE_CONTROL: u16 = 0x5930;
/// What Linux switches on where the IOMMU is to keep functions apart (`pci_std_enable_acs`): source validation,
/// request and completion redirect, upstream forwarding.
const ISOLATED: u16 = 0x1d;

/// The space of one function, written.
#[derive(Debug, Clone)]
pub(in super::super) struct Space(BinaryFile);

impl Space {
    /// Writes it. Ports that lead down have access control, switched off.
    pub(super) fn write(tree: &Tree, folder: &str, function: &Function) -> Result<Self, TreeError> {
        let mut bytes = vec![0; BYTES];
        let mut put =
            |place: usize, value: &[u8]| bytes[place..place + value.len()].copy_from_slice(value);
        put(0x00, &function.ids.0.to_le_bytes());
        put(0x02, &function.ids.1.to_le_bytes());
        put(0x06, &HAS_CAPABILITIES.to_le_bytes());
        put(0x34, &[EXPRESS as u8]);
        put(EXPRESS, &[0x10, 0]);
        put(EXPRESS + 4, &DEVICE_CAPABILITIES.to_le_bytes());
        put(EXPRESS + 8, &DEVICE_CONTROL.to_le_bytes());
        if let FunctionKind::RootPort | FunctionKind::SwitchDownstream = function.kind {
            put(ACCESS_CONTROL, &[0x0d, 0, 1, 0]);
        }
        tree.binary(&format!("{folder}/config"), &bytes).map(Self)
    }

    /// Has the bridge send packets between functions below it up, or not.
    pub(in super::super) fn redirect(&mut self, redirected: bool) -> Result<(), TreeError> {
        let control = if redirected { ISOLATED } else { 0 };
        self.0.set(ACCESS_CONTROL + CONTROL, &control.to_le_bytes())
    }
}
