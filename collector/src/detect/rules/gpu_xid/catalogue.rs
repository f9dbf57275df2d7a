//! XIDs that concern hardware, with NVIDIA's actions (Xid catalog for Ampere and newer; actions as NVSentinel maps them).
//!
//! Not here: XIDs of applications (13, 31, 43, 45 and others), which concern hardware only if they follow one GPU through
//! several jobs, and those that need no action (92: many corrected errors).

use crate::classes::{Class, GPU_ERROR, GPU_LOST, GPU_MEMORY, NVLINK_ERRORS};

/// One XID.
#[derive(Debug)]
pub(super) struct Xid {
    pub(super) xid: u16,
    pub(super) class: &'static Class,
    pub(super) meaning: &'static str,
    pub(super) action: &'static str,
}

impl Xid {
    /// Share of its work that the GPU loses.
    pub(super) fn effect(&self) -> f64 {
        let stops = self.class == &GPU_LOST || self.class == &GPU_ERROR;
        f64::from(u8::from(stops))
    }
}

const RESET: &str = "reset the GPU";
const RESTART: &str = "restart the node";
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

/// The row of an XID, if it concerns hardware.
pub(super) fn find(xid: f64) -> Option<&'static Xid> {
    CATALOGUE.iter().find(|row| f64::from(row.xid) == xid)
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
