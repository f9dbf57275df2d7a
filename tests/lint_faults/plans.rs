//! Faults of the plan: what was built is right.

use super::{By::Plan, Fault, check, fault, row};

/// What was built is right, and the plan is not.
pub(super) const PLANS: &[Fault] = &[
    fault(
        "rail-optimized",
        Plan,
        "unplanned-device",
        &["host/gpu-node-03"],
        |_, plan| {
            plan.cables.retain(|cable| {
                !cable.ends[0]
                    .part
                    .to_string()
                    .starts_with("nic/gpu-node-03:")
            });
        },
    ),
    fault(
        "rail-optimized",
        Plan,
        "wrong-plan",
        &["host/gpu-node-03", "host/gpu-node-04"],
        |_, plan| {
            let name = |text: &str| {
                text.replace("node-03", "node-XX")
                    .replace("node-04", "node-03")
                    .replace("node-XX", "node-04")
            };
            for cable in &mut plan.cables {
                cable.ends[0].part = name(&cable.ends[0].part.to_string())
                    .parse()
                    .expect("a part");
            }
        },
    ),
    fault(
        "dragonfly",
        Plan,
        "wrong-plan",
        &["switch/router-x", "switch/router-2-1"],
        |_, plan| {
            for end in plan.cables.iter_mut().flat_map(|cable| &mut cable.ends) {
                if end.part.to_string() == "switch/router-2-1" {
                    end.part = "switch/router-x".parse().expect("a part");
                }
            }
        },
    ),
    fault(
        "rail-optimized",
        Plan,
        "wrong-plan",
        &["link/gpu-node-03:mlx5_2/1", "link/gpu-node-05:mlx5_4/1"],
        |_, plan| {
            // Two rows of the table exchanged: by the plan each of the two NICs is connected to a leaf of the other's rail.
            let (one, other) = (
                row(plan, "nic/gpu-node-03:mlx5_2 port 1"),
                row(plan, "nic/gpu-node-05:mlx5_4 port 1"),
            );
            let far = plan.cables[one].ends[1].clone();
            plan.cables[one].ends[1] = std::mem::replace(&mut plan.cables[other].ends[1], far);
        },
    ),
    fault(
        "rail-optimized-3tier",
        Plan,
        "wrong-plan",
        &["link/leaf-su0-r0:17"],
        |_, plan| {
            let (one, other) = (
                row(plan, "switch/leaf-su0-r0 port 17"),
                row(plan, "switch/leaf-su2-r0 port 18"),
            );
            let far = plan.cables[one].ends[1].clone();
            plan.cables[one].ends[1] = std::mem::replace(&mut plan.cables[other].ends[1], far);
        },
    ),
];

#[test]
fn where_the_plan_is_wrong_the_plan_is_blamed() {
    check(PLANS);
}
