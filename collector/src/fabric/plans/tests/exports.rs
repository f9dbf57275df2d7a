//! Exports: what they cannot be sure of they say instead of guessing.

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
fn nccl_gets_devices_and_rails_that_are_known_or_is_told_what_is_missing() {
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
fn one_node_without_device_names_does_not_take_them_from_the_others() {
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
fn slurms_tree_leaves_out_what_would_be_none_and_says_so() {
    let tree = "SwitchName=a Switches=b,s9\nSwitchName=b Switches=c\nSwitchName=c Switches=a,l1\nSwitchName=l1 Nodes=n[1-2]\n\
                SwitchName=l2 Nodes=n2,n3\nSwitchName=d Switches=l1,l2\n";
    let own = placement(tree);
    assert_eq!(own.levels(), 4, "the ring is gone round once");
    let written = export::slurm_tree(&own);
    let missing: Vec<&str> = export::missing(&written).collect();
    assert_eq!(
        missing,
        [
            "switch b below a, which stands above it, too: a ring",
            "switch s9 below a, which is nowhere described",
            "switch c below b, which stands above it, too: a ring",
            "switch a below c, which stands above it, too: a ring",
            "node n2 behind l2: it hangs behind another switch already",
            "switch l1 below d, which stands below another switch already",
            "a: nothing is left below it",
            "b: nothing is left below it",
        ]
    );
    let back = placement(&written);
    assert_eq!(
        back.defects(),
        ["2 switches at the top that nothing joins: c, d"]
    );
    // Names that only signs told apart.
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
