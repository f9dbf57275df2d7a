//! Fills the actual node and device into the action of a fault class.

use railscope_model::identity::Part;

use crate::classes::Class;
use crate::serve::layout::Layout;
use crate::serve::phrases;

/// The action of a class for this component. If its text names neither node nor device, the component is prepended.
pub(crate) fn action(class: &Class, part: &Part, layout: &Layout) -> String {
    let mut text = class.action.to_owned();
    let mut is_named = false;
    if let Some((words, name)) = device(part, layout) {
        for word in words {
            if let Some(filled) = fill(&text, word, &name, 1) {
                (text, is_named) = (filled, true);
                break;
            }
        }
    }
    if let Some(node) = part.node() {
        for word in ["the node", "this node", "the host", "the machine"] {
            if let Some(filled) = fill(&text, word, &node.to_string(), usize::MAX) {
                (text, is_named) = (filled, true);
            }
        }
    }
    if is_named {
        text
    } else {
        format!("{}: {text}", phrases::part(part, layout))
    }
}

/// The phrases for the device in action texts, most frequent first, and their replacement.
fn device(part: &Part, layout: &Layout) -> Option<(&'static [&'static str], String)> {
    let lower = |text: String| {
        let mut chars = text.chars();
        let first = chars.next().map(|first| first.to_ascii_lowercase());
        first.into_iter().chain(chars).collect::<String>()
    };
    let name = || format!("the {}", lower(phrases::part(part, layout)));
    match part {
        Part::Host(_) | Part::SharedStorage => None,
        Part::Gpu(_, gpu) => Some((&["the GPU"], format!("GPU {gpu}"))),
        Part::NvLink(_, link) => Some((&["the GPU", "its GPUs"], format!("GPU {}", link.gpu))),
        Part::PcieLink(_, pci) => {
            let name = layout.function(part.node()?, *pci);
            let name =
                name.map_or_else(|| format!("the card at {pci}"), |f| format!("{f} ({pci})"));
            Some((&["the card", "card"], name))
        }
        Part::Nic(_, device) => Some((&["the NIC", "this NIC"], format!("NIC {device}"))),
        Part::HostLink(..) | Part::SwitchLink(..) => Some((&["the cable", "the link"], name())),
        Part::Switch(switch) => Some((&["the switch"], format!("switch {switch}"))),
    }
}

/// Replaces up to `most` occurrences of a phrase with a name; `None` if there are none.
fn fill(text: &str, word: &str, name: &str, most: usize) -> Option<String> {
    let is_whole = |at: usize| {
        let next = text[at + word.len()..].chars().next();
        let before = text[..at].chars().next_back();
        !next.is_some_and(char::is_alphanumeric) && !before.is_some_and(char::is_alphanumeric)
    };
    let places = text.match_indices(word).map(|(at, _)| at);
    let places: Vec<usize> = places.filter(|at| is_whole(*at)).take(most).collect();
    let (mut filled, mut end) = (String::new(), 0);
    for at in &places {
        filled.push_str(&text[end..*at]);
        filled.push_str(name);
        end = at + word.len();
    }
    filled.push_str(&text[end..]);
    (!places.is_empty()).then_some(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::{
        CLASSES, GPU_ERROR, HOST_POWER, PCIE_DEGRADED, PORT_DOWN, STORAGE_STALL, SWITCH_DOWN,
    };

    fn text_of(class: &Class, part: &str) -> String {
        action(class, &part.parse().expect("a part"), &Layout::default())
    }

    #[test]
    fn node_and_device_are_filled_in() {
        for (class, part, begins) in [
            (
                &GPU_ERROR,
                "gpu/n7:3",
                "Drain n7 and reset GPU 3; if the error returns, power-cycle n7,",
            ),
            (&HOST_POWER, "host/n7", "Check n7's power supplies"),
            (
                &SWITCH_DOWN,
                "switch/leaf-03",
                "Check switch leaf-03's power, console",
            ),
            (
                &PORT_DOWN,
                "link/n7:mlx5_4/1",
                "Reseat the cable from n7 mlx5_4/1 at both ends;",
            ),
            (
                &PCIE_DEGRADED,
                "pcie/n7:0000:1a:00.0",
                "Drain n7 and power-cycle it",
            ),
        ] {
            let text = text_of(class, part);
            assert!(text.starts_with(begins), "{text}");
        }
        for (part, begins) in [
            ("host/n7", "Host n7: Check the storage"),
            ("storage/shared", "Shared storage: Check the storage"),
        ] {
            assert!(text_of(&STORAGE_STALL, part).starts_with(begins), "{part}");
        }
    }

    #[test]
    fn every_class_names_the_component() {
        for class in CLASSES {
            for part in [
                "host/n7",
                "gpu/n7:3",
                "nic/n7:mlx5_4",
                "link/n7:mlx5_4/1",
                "switch/leaf-03",
                "link/leaf-03:1",
            ] {
                let text = text_of(class, part);
                assert!(
                    text.contains("n7")
                        || text.contains("leaf-03")
                        || text.contains("GPU 3")
                        || text.contains("mlx5_4"),
                    "{part}: {text}"
                );
                assert!(
                    !part.contains("n7") || !text.contains("the node "),
                    "{part}: {text}"
                );
            }
        }
    }
}
