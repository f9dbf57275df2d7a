//! XIDs of GPUs and SXids of NVSwitches, as NVIDIA's drivers write them into the kernel log.

use railscope_model::identity::PciAddress;

/// A fault that the driver wrote into the kernel log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Of a GPU: `NVRM: Xid (PCI:0000:3b:00): 119, pid=...`.
    Xid { pci: PciAddress, code: u32 },
    /// Of an NVSwitch: `nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link 28 ...`.
    Sxid {
        pci: PciAddress,
        code: u32,
        severity: &'static str,
    },
}

impl Fault {
    /// The fault of a message, if it is one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix("NVRM: Xid (") {
            let (pci, code, _) = address_and_code(rest)?;
            return Some(Self::Xid { pci, code });
        }
        let (driver, rest) = text.split_once(": SXid (")?;
        let (pci, code, rest) = address_and_code(rest)?;
        let severity = match rest.split(',').next().unwrap_or_default().trim() {
            "Fatal" => "fatal",
            "Non-fatal" => "nonfatal",
            // The second and third line about the same fault.
            more if more.starts_with("Severity") || more.starts_with("Data") => return None,
            _ => "",
        };
        driver.starts_with("nvidia-nvswitch").then_some(Self::Sxid {
            pci,
            code,
            severity,
        })
    }
}

/// Reads `PCI:0000:3b:00): 119, ...`; older drivers leave `PCI:` out, and most the function. Behind the address of a GPU
/// in MIG mode stands the instance: `PCI:0000:3b:00 GPU-I:05): 94, ...`.
fn address_and_code(text: &str) -> Option<(PciAddress, u32, &str)> {
    let (address, rest) = text.split_once("): ")?;
    let address = address.strip_prefix("PCI:").unwrap_or(address);
    let address = address.split(' ').next()?;
    let address = if address.contains('.') {
        address.parse()
    } else {
        format!("{address}.0").parse()
    };
    let digits = rest.find(|char: char| !char.is_ascii_digit());
    let (code, rest) = rest.split_at(digits.unwrap_or(rest.len()));
    let rest = rest.trim_start_matches([',', ' ']);
    Some((address.ok()?, code.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_in_every_spelling_and_nothing_else_is_one() {
        let xid = |pci: &str, code| {
            let pci = pci.parse().expect("an address");
            Some(Fault::Xid { pci, code })
        };
        let sxid = |code, severity| {
            let pci = "0000:c3:00.0".parse().expect("an address");
            Some(Fault::Sxid {
                pci,
                code,
                severity,
            })
        };
        for (text, expected) in [
            (
                "NVRM: Xid (PCI:0000:3b:00): 119, pid=7, name=x, Timeout",
                xid("0000:3b:00.0", 119),
            ),
            (
                "NVRM: Xid (PCI:0000:3B:00.0): 79, GPU has fallen off the bus.",
                xid("0000:3b:00.0", 79),
            ),
            ("NVRM: Xid (0008:01:00): 31", xid("0008:01:00.0", 31)),
            (
                "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
                xid("0000:9b:00.0", 79),
            ),
            (
                "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=71, name=python, Contained: SM (0x1)",
                xid("0000:3b:00.0", 94),
            ),
            (
                "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link 28 RX",
                sxid(20009, "nonfatal"),
            ),
            (
                "nvidia-nvswitch12: SXid (PCI:0000:c3:00.0): 00123, Fatal, Link 46",
                sxid(123, "fatal"),
            ),
            (
                "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 11001",
                sxid(11001, ""),
            ),
            (
                "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 28006, Severity 0 Engine instance 46",
                None,
            ),
            (
                "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 28006, Data {0x00140004}",
                None,
            ),
            ("NVRM: Xid (PCI:0000:3b:00): fell, off", None),
            ("NVRM: Xid (PCI:nowhere): 79", None),
            ("NVRM: GPU at PCI:0000:9b:00: GPU-509665ad", None),
            (
                "NVRM: GPU at 0000:9b:00.0 has software scheduler DISABLED",
                None,
            ),
            ("audit: comm=\"NVRM: Xid (PCI:0000:3b:00): 79\"", None),
            ("x: SXid (PCI:0000:c3:00.0): 20009, Fatal", None),
        ] {
            assert_eq!(Fault::parse(text), expected, "{text}");
        }
    }
}
