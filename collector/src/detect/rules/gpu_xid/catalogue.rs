//! XIDs that concern hardware, with NVIDIA's actions (Xid catalog for Ampere and newer; actions as NVSentinel maps them).
//!
//! Not here: XIDs of applications ([`super::applications`]), and those that need no action (92: many corrected errors) or refer to
//! another one (45, 154).

use super::applications::RESTART_APPLICATION;
use crate::classes::{Class, GPU_ERROR, GPU_LOST, GPU_MEMORY, NVLINK_ERRORS};

/// One XID.
#[derive(Debug, Clone, Copy)]
pub(super) struct Xid {
    pub(super) xid: u16,
    pub(super) class: &'static Class,
    pub(super) meaning: &'static str,
    pub(super) action: &'static str,
}

impl Xid {
    /// Share of its work that the GPU loses, as far as the catalog shows.
    pub(super) fn effect(&self) -> f64 {
        let stops = self.class == &GPU_LOST || self.class == &GPU_ERROR;
        f64::from(u8::from(
            stops && self.action != REPORT && self.action != UPDATE,
        ))
    }
}

const RESET: &str = "reset the GPU";
const RESTART: &str = "restart the node";
const REPORT: &str = "report it to the vendor";
const UPDATE: &str = "update the vGPU software";
const INVESTIGATE: &str = "run the field diagnostic if it repeats";

const fn row(xid: u16, class: &'static Class, meaning: &'static str, action: &'static str) -> Xid {
    Xid {
        xid,
        class,
        meaning,
        action,
    }
}

const fn nvlink(xid: u16, meaning: &'static str) -> Xid {
    row(xid, &NVLINK_ERRORS, meaning, INVESTIGATE)
}

/// All of them.
pub(super) const CATALOGUE: &[Xid] = &[
    row(46, &GPU_ERROR, "the GPU stopped processing", RESET),
    row(48, &GPU_MEMORY, "uncorrectable memory error", RESET),
    row(
        54,
        &GPU_ERROR,
        "auxiliary power is not connected",
        "check the power cables",
    ),
    row(62, &GPU_ERROR, "the power management unit halted", RESET),
    // NVIDIA, GPU Memory Error Management: a row remap takes effect with the next reset.
    row(
        63,
        &GPU_MEMORY,
        "a row of its memory is remapped at the next reset",
        "reset the GPU when its job ends",
    ),
    row(
        64,
        &GPU_MEMORY,
        "a row of its memory could not be remapped",
        RESET,
    ),
    nvlink(74, "NVLink error"),
    row(78, &GPU_ERROR, "a vGPU could not be started", UPDATE),
    row(79, &GPU_LOST, "the GPU fell off the bus", RESTART),
    row(
        94,
        &GPU_MEMORY,
        "contained memory error",
        "restart the application, and reset the GPU when it ends",
    ),
    row(95, &GPU_MEMORY, "uncontained memory error", RESET),
    row(109, &GPU_ERROR, "a context switch timed out", RESET),
    row(110, &GPU_ERROR, "security fault", RESET),
    row(
        119,
        &GPU_ERROR,
        "its system processor (GSP) does not answer",
        RESET,
    ),
    row(120, &GPU_ERROR, "its system processor (GSP) failed", RESET),
    row(136, &GPU_ERROR, "NVLink training failed", RESET),
    row(140, &GPU_ERROR, "unrecovered ECC error", RESET),
    row(143, &GPU_ERROR, "initialization failed", RESET),
    nvlink(144, "NVLink 5: error of the switch or link layer (SAW)"),
    nvlink(145, "NVLink 5: error of the link layer (RLW)"),
    nvlink(146, "NVLink 5: error of the transport layer (TLW)"),
    nvlink(147, "NVLink 5: error of the transport layer (TREX)"),
    nvlink(148, "NVLink 5: error of the port (NVLPW)"),
    nvlink(149, "NVLink 5: error of the network layer (NETIR)"),
    nvlink(150, "NVLink 5: error of the memory system (MSE)"),
    row(
        151,
        &GPU_ERROR,
        "key rotation failed (confidential computing)",
        "restart the virtual machine",
    ),
    row(155, &GPU_ERROR, "NVLink software definition error", RESET),
    row(156, &GPU_ERROR, "a resource was retired", RESET),
    row(158, &GPU_ERROR, "fatal timeout of the GPU", RESET),
    row(160, &GPU_ERROR, "channels were retired", RESTART),
    row(162, &GPU_ERROR, "power smoothing fault", RESET),
];

/// The last XID of the catalog.
const LAST: u16 = 162;
/// XIDs that need no action, or that refer to another one (45, 154).
const NO_ACTION: &[u16] = &[
    14, 37, 38, 43, 44, 45, 66, 67, 92, 93, 106, 107, 121, 137, 141, 152, 153, 154, 157, 161,
];

/// The row of an XID that concerns hardware, or a row made for one that the catalog does not expect.
pub(super) fn find(xid: f64) -> Option<Xid> {
    let number = (1..=LAST).find(|number| f64::from(*number) == xid)?;
    let known = CATALOGUE.iter().find(|row| row.xid == number).copied();
    known.or_else(|| {
        let is_expected = NO_ACTION.contains(&number) || RESTART_APPLICATION.contains(&number);
        let meaning = "the catalog does not expect it";
        (!is_expected).then(|| row(number, &GPU_ERROR, meaning, REPORT))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_in_order_and_without_applications() {
        assert!(CATALOGUE.is_sorted_by_key(|row| row.xid));
        for application in [13.0, 31.0, 43.0, 45.0] {
            assert!(find(application).is_none(), "{application}");
        }
        assert!(find(79.0).is_some_and(|row| row.effect() == 1.0));
        assert!(find(78.0).is_some_and(|row| row.effect() == 0.0));
        let unexpected = find(90.0).expect("one that NVIDIA asks to report");
        assert_eq!((unexpected.action, unexpected.effect()), (REPORT, 0.0));
        for xid in [0.0, 92.0, 154.0, 163.0, 79.5, f64::NAN] {
            assert!(find(xid).is_none(), "{xid}");
        }
    }

    #[test]
    fn the_alert_rules_of_the_exporter_alone_have_the_xids_of_the_catalogue() {
        let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../alerts/railscope.rules.yml");
        let rules = std::fs::read_to_string(rules).expect("the alert rules");
        for (alert, action) in [
            ("RailscopeGpuXidNeedsReset", RESET),
            ("RailscopeGpuXidNeedsNodeRestart", RESTART),
        ] {
            let xids = CATALOGUE.iter().filter(|row| row.action == action);
            let xids: Vec<_> = xids.map(|row| row.xid.to_string()).collect();
            let rule = rules.split("- alert: ").find(|rule| {
                rule.strip_prefix(alert)
                    .is_some_and(|rest| rest.starts_with('\n'))
            });
            let matcher = format!("{{xid=~\"{}\"}}", xids.join("|"));
            assert!(
                rule.expect(alert).contains(&matcher),
                "{alert}: expected {matcher}"
            );
        }
    }
}
