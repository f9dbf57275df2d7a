//! `docs/inputs.md` equals the table of input formats.

use expect_test::expect_file;
use railscope_collector::fabric::plans::inputs;

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
            "--path.kmsg FILE",
        ),
        (
            "NIC statistics:\n     rx_packets: 1\n",
            "--path.network-recordings DIR",
        ),
        ("# Avg bus bandwidth : 4\n", "railscope collectives FILE"),
        (
            "Port counters: Lid 7 port 1\nSymbolErrorCounter:....0\n",
            "which is not supported: the collector's",
        ),
        ("hello\n", "docs/inputs.md lists the supported formats"),
    ] {
        let hint = inputs::hint(text);
        assert!(hint.contains(expected), "{text}: {hint}");
        assert!(hint.contains("docs/inputs.md"), "{hint}");
    }
}
