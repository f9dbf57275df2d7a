//! `docs/inputs.md` equals the table of input formats.

use expect_test::expect_file;
use railscope_collector::fabric::plans::inputs::{self, Reader};

#[test]
fn the_document_of_inputs_equals_the_table_of_formats() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/inputs.md");
    expect_file![document].assert_eq(&inputs::document());
}

#[test]
fn the_hint_for_an_unknown_text_names_the_nearest_format_and_the_document() {
    for (text, expected) in [
        (
            "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 36\n# HELP x y\n# TYPE x gauge\n",
            "metrics of other exporters",
        ),
        (
            "[1.0] NVRM: Xid (PCI:0000:9b:00): 119\n",
            "railscope check --file FILE",
        ),
        (
            "NIC statistics:\n     rx_packets: 1\n",
            "--path.network-recordings DIR",
        ),
        ("# Avg bus bandwidth : 4\n", "railscope collectives FILE"),
        (
            "Port counters: Lid 7 port 1\nSymbolErrorCounter:....0\n",
            "which is not supported: the collector's sweep (docs/subnet-sweep.md) reads",
        ),
        (
            "mlx5_0 port 1 ==> ib0 (Down)\n",
            "the exporter reads state, speed",
        ),
        (
            "{\"lldpNeighbors\": [{\"neighborDevice\": \"n1\"}]}\n",
            "which is not supported",
        ),
        (
            "Ethernet1 is up, line protocol is up\n",
            "(docs/other-exporters.md) reads counters",
        ),
        ("hello\n", "docs/inputs.md lists the supported formats"),
    ] {
        let hint = inputs::hint(text, &[]);
        assert!(hint.contains(expected), "{text}: {hint}");
        assert!(hint.contains("docs/inputs.md"), "{hint}");
    }
}

#[test]
fn a_text_that_its_own_reader_refuses_is_not_sent_back_to_it() {
    let summary = "file,test,N,avg_bus_bw_GBs,peak_busbw_GBs\n";
    let hint = |readers: &[Reader]| inputs::hint(summary, readers);
    assert!(hint(&[Reader::Topology]).contains("railscope collectives FILE"));
    let own = hint(&[Reader::Collectives]);
    assert!(
        own.contains("lacks their data") && !own.contains("railscope collectives"),
        "{own}"
    );
}

#[test]
fn an_archive_is_to_be_unpacked() {
    let gzip = [
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3, 0xff, 0xfe, 0xed, 0xbd, 0x81, 0x92,
    ];
    let text = String::from_utf8_lossy(&gzip).into_owned();
    assert!(inputs::hint(&text, &[]).contains("unpack it"));
    let text = "NIC statistics:\n     rx_packets: 1 \u{fffd}\n";
    assert!(!inputs::hint(text, &[]).contains("unpack it"));
}
