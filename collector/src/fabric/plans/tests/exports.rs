//! Exports name uncertain data instead of guessing it.

use super::super::{Placement, Site, export};
use super::*;

const RAILS: &str = include_str!("../../../../../tests/fabrics/rail-2tier.ibnetdiscover");
const FAT_TREE: &str = include_str!("../../../../../tests/fabrics/fat-tree-3tier.ibnetdiscover");

fn nccl(text: &str) -> String {
    let site = Site::of(vec![document("f", text)]);
    let verdict = site.verdict.as_ref().expect("a verdict");
    export::nccl_hints(&site.fabric, verdict)
}

#[test]
fn nccl_hints_have_known_devices_and_rails_or_name_missing_data() {
    let rails = RAILS;
    let hints = nccl(rails);
    assert!(hints.contains("NCCL_IB_HCA==mlx5_0:1,"), "{hints}");
    assert_eq!(export::missing(&hints).count(), 0, "{hints}");

    let hints = nccl(&rails.replace("mlx5_", "HCA-"));
    assert!(!hints.contains("NCCL_IB_HCA=="), "{hints}");
    let missing: Vec<_> = export::missing(&hints).collect();
    assert!(
        missing[0].starts_with("device names of ")
            && missing[0].contains("words of node descriptions"),
        "{hints}"
    );

    let hints = nccl(FAT_TREE);
    assert!(
        !hints.contains("NCCL_IB_HCA==") && !hints.contains("\nNCCL_CROSS_NIC="),
        "{hints}"
    );
    assert!(
        hints.starts_with("# missing: rails: this fabric has none"),
        "{hints}"
    );
}

#[test]
fn a_node_without_device_names_does_not_affect_the_others() {
    let rails = RAILS;
    let host = rails.lines().find_map(|line| {
        let (_, description) = line.split_once("# \"")?;
        description
            .split_once(" mlx5_0\"")
            .map(|(host, _)| host.to_owned())
    });
    let host = host.expect("a host");
    let hints = nccl(&rails.replace(&format!("{host} mlx5_"), &format!("{host} HCA-")));
    assert!(hints.contains("NCCL_IB_HCA==mlx5_0:1,"), "{hints}");
    assert_eq!(export::missing(&hints).count(), 1, "{hints}");
    assert!(
        export::missing(&hints)
            .next()
            .expect("a line")
            .contains(&host),
        "{hints}"
    );
    assert!(
        !Placement::of(&Site::of(vec![document("f", rails)]).fabric)
            .nodes()
            .is_empty()
    );
}

#[test]
fn slurms_tree_omits_and_names_entries_that_break_it() {
    let tree = "SwitchName=a Switches=b,s9\nSwitchName=b Switches=c\nSwitchName=c Switches=a,l1\nSwitchName=l1 Nodes=n[1-2]\n\
                SwitchName=l2 Nodes=n2,n3\nSwitchName=d Switches=l1,l2\n";
    let own = placement(tree);
    assert_eq!(own.levels(), 4, "the ring is traversed once");
    let written = export::slurm_tree(&own);
    let missing: Vec<&str> = export::missing(&written).collect();
    assert_eq!(
        missing,
        [
            "switch b below a, which is also above it: a ring",
            "switch s9 below a, which is undefined",
            "switch c below b, which is also above it: a ring",
            "switch a below c, which is also above it: a ring",
            "node n2 below l2, which already has another switch",
            "switch l1 below d, which already has another parent",
            "a: no children are left",
            "b: no children are left",
        ]
    );
    let back = placement(&written);
    assert_eq!(
        back.defects(),
        ["2 switches at the top that nothing joins: c, d"]
    );
    // Names that differ only in special characters.
    let names = export::slurm_tree(&placement(
        "switches:\n  'a b':\n    nodes: [n1]\n  a_b:\n    nodes: [n2]\n",
    ));
    assert_eq!(
        names.lines().skip(1).collect::<Vec<_>>(),
        ["SwitchName=a_b Nodes=n1", "SwitchName=a_b__2 Nodes=n2"]
    );
    let labels = export::node_labels(&own);
    assert_eq!(labels.matches("/core: b").count(), 2, "{labels}");
}
