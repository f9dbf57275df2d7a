//! What has no safe wrapper: scoped field values, versioned structs, and pointers that must be refused.

use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper_sys::bindings as sys;
use railscope_simulator::show::nvml::{Fault, NodeGpus};

use super::{Node, field};

#[test]
fn a_field_value_has_its_scope_its_type_and_its_own_failure() {
    let mut state = NodeGpus::h100(1);
    for (number, link) in (1..).zip(&mut state.gpus[0].links) {
        link.data_transmit_kibibytes = number << 33;
        link.crc_flit_errors = number;
    }
    state.gpus[0].sw_power_cap_nanoseconds = 11;
    state.gpus[0].hw_thermal_nanoseconds = 22;
    state.gpus[0].pcie_lane_errors[3] = 33;
    state.gpus[0].faults = vec![Fault::fail("field.186", 4)];
    let node = Node::with(&state);
    let gpu = node.gpu(0);
    assert_eq!(field(&gpu, 138, 17), Ok((3, 18 << 33)));
    assert_eq!(
        field(&gpu, 138, u32::MAX),
        Ok((3, 171 << 33)),
        "the sum of all links"
    );
    assert_eq!(field(&gpu, 163, 4), Ok((3, 5)));
    assert_eq!(
        gpu.link_wrapper_for(4)
            .error_counter(ErrorCounter::DlCrcFlit)
            .unwrap(),
        5
    );
    assert_eq!(
        (field(&gpu, 74, 0), field(&gpu, 270, 0)),
        (Ok((3, 11)), Ok((3, 22)))
    );
    assert_eq!(field(&gpu, 183, 3), Ok((1, 33)));
    assert_eq!(field(&gpu, 82, 0), Ok((1, 55)));
    assert_eq!(
        field(&gpu, 194, 0),
        Ok((5, (-2_i64).cast_unsigned())),
        "a margin is signed"
    );
    assert_eq!(
        (field(&gpu, 185, 0), field(&gpu, 185, 1)),
        (Ok((1, 629_450)), Err(3)),
        "no module without Grace"
    );
    assert_eq!(field(&gpu, 186, 0), Err(4), "the injected failure");
    assert_eq!(
        (field(&gpu, 138, 18), field(&gpu, 999, 0)),
        (Err(2), Err(2))
    );
    assert_eq!(
        (field(&gpu, 202, 0), field(&gpu, 32, 0)),
        (Err(3), Err(3)),
        "NVLink 5 only, and gone since Hopper"
    );
}

#[test]
fn a_blackwell_counts_nvlink_5_and_an_old_numbering_is_kept() {
    let mut state = NodeGpus {
        driver: "570.124.06".into(),
        ..NodeGpus::b200(1)
    };
    state.gpus[0].hw_thermal_nanoseconds = 22;
    state.gpus[0].links[2].receive_bytes = 44;
    state.gpus[0].links[2].fec_history[15] = 55;
    let node = Node::with(&state);
    let gpu = node.gpu(0);
    assert_eq!(
        (field(&gpu, 204, 2), field(&gpu, 250, 2)),
        (Ok((3, 44)), Ok((3, 55)))
    );
    assert_eq!(
        (field(&gpu, 161, 2), field(&gpu, 166, 2)),
        (Err(3), Ok((1, 7)))
    );
    assert_eq!(
        (field(&gpu, 252, 0), field(&gpu, 270, 0)),
        (Ok((3, 22)), Err(3)),
        "before 580.82"
    );
}

#[test]
fn calls_that_have_no_safe_wrapper_answer_too() {
    let mut state = NodeGpus::h100(1);
    state.gpus[0].remapped_rows_uncorrectable = 2;
    state.gpus[0].remapped_rows_pending = true;
    state.gpus[0].fabric_cluster_uuid[15] = 9;
    state.gpus[0].fabric_clique_id = 7;
    state.gpus[0].fabric_health_summary = 2;
    let node = Node::with(&state);
    let (lib, gpu) = (node.nvml.lib(), node.gpu(0));
    // SAFETY: every pointer is to a local of the type in nvml.h; versioned structs have their version set.
    unsafe {
        let mut fabric: sys::nvmlGpuFabricInfoV_t = std::mem::zeroed();
        let get = lib.nvmlDeviceGetGpuFabricInfoV.as_ref().unwrap();
        assert_eq!(
            get(gpu.handle(), &raw mut fabric),
            25,
            "a struct without its version"
        );
        fabric.version = u32::try_from(size_of_val(&fabric)).unwrap() | 3 << 24;
        assert_eq!(get(gpu.handle(), &raw mut fabric), 0);
        assert_eq!(
            (
                fabric.clusterUuid[15],
                fabric.cliqueId,
                fabric.state,
                fabric.healthSummary
            ),
            (9, 7, 3, 2)
        );

        let mut rows = [0_u32; 4];
        let [correctable, uncorrectable, pending, failed] = &mut rows;
        let get = lib.nvmlDeviceGetRemappedRows.as_ref().unwrap();
        assert_eq!(
            get(gpu.handle(), correctable, uncorrectable, pending, failed),
            0
        );
        assert_eq!(rows, [0, 2, 1, 0]);

        let mut temperature: sys::nvmlTemperature_t = std::mem::zeroed();
        temperature.version = u32::try_from(size_of_val(&temperature)).unwrap() | 1 << 24;
        assert_eq!(
            (lib.nvmlDeviceGetTemperatureV.as_ref().unwrap())(gpu.handle(), &raw mut temperature),
            0
        );
        assert_eq!(temperature.temperature, 59);

        let mut reasons = 1;
        assert_eq!(
            (lib.nvmlDeviceGetCurrentClocksEventReasons.as_ref().unwrap())(
                gpu.handle(),
                &raw mut reasons
            ),
            0
        );
        assert_eq!(reasons, 0);
    }
}

#[test]
fn null_pointers_and_foreign_handles_are_refused() {
    let (node, other) = (
        Node::with(&NodeGpus::h100(1)),
        Node::with(&NodeGpus::h100(1)),
    );
    let lib = node.nvml.lib();
    let name = lib.nvmlDeviceGetName.as_ref().unwrap();
    let power = lib.nvmlDeviceGetPowerUsage.as_ref().unwrap();
    let mut text = [0; 22];
    let (mut milliwatts, mut set) = (0, std::ptr::null_mut());
    // SAFETY: null and foreign handles are what the mock promises to refuse; the rest are pointers to locals.
    unsafe {
        let gpu = node.gpu(0).handle();
        assert_eq!(power(gpu, std::ptr::null_mut()), 2);
        assert_eq!(power(std::ptr::null_mut(), &raw mut milliwatts), 2);
        assert_eq!(
            power(other.gpu(0).handle(), &raw mut milliwatts),
            2,
            "a handle of another copy of the library"
        );
        assert_eq!(
            power(gpu.byte_add(1), &raw mut milliwatts),
            2,
            "a second GPU where there is one"
        );
        assert_eq!(
            name(gpu, text.as_mut_ptr(), 21),
            7,
            "no room for the closing zero"
        );
        assert_eq!(name(gpu, text.as_mut_ptr(), 22), 0);
        assert_eq!(
            (lib.nvmlDeviceGetFieldValues.as_ref().unwrap())(gpu, 3, std::ptr::null_mut()),
            2
        );
        assert_eq!((lib.nvmlEventSetFree.as_ref().unwrap())(set), 2);
        assert_eq!((lib.nvmlEventSetCreate.as_ref().unwrap())(&raw mut set), 0);
        assert_eq!((lib.nvmlEventSetFree.as_ref().unwrap())(set), 0);
        assert_eq!(
            (lib.nvmlEventSetFree.as_ref().unwrap())(set),
            2,
            "freed twice"
        );
        let mut sample = std::ptr::null_mut();
        assert_eq!(
            (lib.nvmlGpmSampleAlloc.as_ref().unwrap())(&raw mut sample),
            0
        );
        assert_eq!((lib.nvmlGpmSampleFree.as_ref().unwrap())(sample), 0);
    }
}
