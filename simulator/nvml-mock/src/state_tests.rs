//! The state file: valid input, reported errors, and that text and types are equivalent.

use crate::state::{
    Effect, Event, Fault, GpuState, LinkState, MAX_GPUS, MAX_LINKS, MigDevice, NodeGpus, Process,
    ProcessKind, Vgpu,
};

fn parse(text: &str) -> NodeGpus {
    let (node, errors) = NodeGpus::parse(text);
    assert_eq!(errors, [], "in {text}");
    node
}

/// `line` in the middle of a file is the only one reported, with what was expected.
fn refuse(line: &str, expected: &str) {
    let (node, errors) = NodeGpus::parse(&format!("gpus 2\n\n{line}\ngpu 1 links 4\n"));
    let [error] = errors.as_slice() else {
        panic!("{line}: {errors:?}")
    };
    assert_eq!((error.line, error.text.as_str()), (3, line));
    assert!(
        error.expected.contains(expected),
        "{line}: {}",
        error.expected
    );
    let mut otherwise = NodeGpus::h100(2);
    otherwise.gpus[1].set_link_count(1, 4);
    assert_eq!(
        node, otherwise,
        "{line}: the other lines hold, and this one changed nothing"
    );
}

#[test]
fn an_empty_file_is_a_node_of_eight_h100() {
    let node = parse("");
    assert_eq!(node, NodeGpus::h100(8));
    assert_eq!(node.gpus[7].links.len(), 18);
    assert_ne!(node.gpus[0].uuid, node.gpus[7].uuid);
    assert_eq!(node.render(), "gpus 8\n");
}

const EVERY_KIND_OF_LINE: &str = "# a node with trouble\n\
    gpus 4\n\
    driver 570.12\n\
    gpu * name NVIDIA  Test #1\n\
    gpu 0 clocks_event_reasons 0x40\n\
    gpu 0 pci_address 00000001:1B:00.0\n\
    gpu 0 numa_node_id 3\n\
    gpu 1 retired_pages_pending unsupported\n\
    \tgpu 1 pcie_lane_errors 0 7\n\
    gpu 2 links 12\n\
    nvlink * 5 state 0\n\
    nvlink 3 * crc_flit_errors 9\n\
    gpu 3 process graphics 77 4096\n\
    gpu 3 xid 79 1\n\
    gpu 3 event 0x4000 0 2\n\
    gpu 3 fail * 15\n\
    gpu 3 hang nvmlDeviceGetName\n\
    gpu 3 fail field.186 3\n\
    delay nvmlDeviceGetCount_v2 40\n\
    crash\n";

#[test]
fn a_person_can_write_every_kind_of_line() {
    let node = parse(EVERY_KIND_OF_LINE);
    let [first, second, third, last] = node.gpus.as_slice() else {
        panic!("four GPUs")
    };
    assert_eq!(
        (node.driver.as_str(), first.name.as_str()),
        ("570.12", "NVIDIA  Test #1")
    );
    assert_eq!(
        (first.clocks_event_reasons, first.numa_node_id),
        (0x40, Some(3))
    );
    assert_eq!(first.pci_address.to_string(), "0001:1b:00.0");
    assert_eq!(
        (second.retired_pages_pending, second.pcie_lane_errors[1]),
        (None, 7)
    );
    assert_eq!(
        (
            third.links.len(),
            third.links[5].state,
            third.links[4].state
        ),
        (12, 0, 1)
    );
    assert!(last.links.iter().all(|link| link.crc_flit_errors == 9));
    assert_eq!(
        last.processes,
        [Process {
            kind: ProcessKind::Graphics,
            pid: 77,
            used_bytes: 4096
        }]
    );
    assert_eq!(
        last.events,
        [
            Event::xid(79, 1),
            Event {
                kind: 0x4000,
                data: 0,
                sequence: 2
            }
        ]
    );
    assert_eq!(
        last.faults[..2],
        [Fault::fail("*", 15), Fault::hang("nvmlDeviceGetName")]
    );
    assert_eq!(node.faults[0].effect, Effect::Delay(40));
    assert!(node.crash);
}

#[test]
fn a_bad_line_is_reported_with_its_number_and_changes_nothing() {
    refuse(
        "gpu 0 temprature_celsius 40",
        "did you mean `temperature_celsius`",
    );
    refuse("nvlnk 0 0 state 1", "did you mean `nvlink`");
    refuse("nvlink 0 0 stat 1", "did you mean `state`");
    refuse("gpu 0 temperature_celsius warm", "a u32");
    refuse("gpu 0 temperature_celsius", "a u32");
    refuse("gpu 2 name x", "a GPU below 2");
    refuse("nvlink 0 18 state 1", "a link below 18");
    refuse("gpu 0 links 37", "at most 36");
    refuse("gpus 65", "at most 64");
    refuse("gpu 0 pci_address 1b", "a PCI address");
    refuse("gpu 0 pci_address 0000:1b:20.0", "a PCI address");
    refuse("gpu 0 fail everything 3", "a function");
    refuse("gpu 0 fail nvmlDeviceGetName", "a u32");
    refuse("gpu 0 hang nvmlDeviceGetName 3", "hang");
    refuse("gpu 0 xid 79", "<sequence>");
    refuse("gpu 0 process compute 1", "<bytes>");
    refuse("gpu 0 vgpu 1 a b c 5 GRID", "a u64");
    refuse("gpu 0 vgpu 1", "<type name>");
    refuse("gpu 0 mig 1 0 1g.10gb 1 1", "<permille>");
    refuse("gpu 0 mig_mode maybe", "true or false");
    refuse(
        "gpu 0 pcie_lane_errors 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17",
        "at most 16",
    );
    refuse("gpu", "a GPU below 2");
    refuse("crash now", "did you mean `crash`");
}

#[test]
fn text_and_types_say_the_same() {
    let mut node = NodeGpus::b200(MAX_GPUS);
    node.driver = "570.12".into();
    node.faults.push(Fault::delay("*", 5));
    node.gpus[3].set_link_count(3, MAX_LINKS);
    node.gpus[4].set_link_count(4, 0);
    node.gpus[5] = GpuState {
        retired_pages_pending: Some(true),
        fabric_cluster_uuid: [7; 16],
        ..GpuState::h100(5)
    };
    node.gpus[6].links[2] = LinkState {
        ecc_data_errors: Some(1),
        fec_history: [9; 16],
        ..LinkState::hgx(6, 2)
    };
    node.gpus[7].events = vec![
        Event::xid(48, 1),
        Event {
            kind: 0x8000,
            data: 1,
            sequence: 2,
        },
    ];
    node.gpus[7].faults = vec![Fault::fail("field.83", 3), Fault::hang("*")];
    node.gpus[8].mig.push(MigDevice {
        gpu_instance: 3,
        compute_instance: 1,
        profile: "1c.3g.40gb".into(),
        total_bytes: 1 << 35,
        used_bytes: 7,
        active_permille: 850,
    });
    node.gpus[9].vgpus = [Some(5), None]
        .map(|license_state| Vgpu {
            instance: 3251,
            uuid: "1f2e3d4c-0000-4000-8000-0123456789ab".into(),
            vm: "12".into(),
            used_bytes: 1 << 30,
            license_state,
            name: "GRID A100-10C".into(),
        })
        .to_vec();
    node.crash = true;
    assert_eq!(parse(&node.render()), node);
}

#[test]
fn more_gpus_than_a_node_can_have_are_cut() {
    assert_eq!(NodeGpus::h100(MAX_GPUS + 1).gpus.len(), MAX_GPUS);
}
