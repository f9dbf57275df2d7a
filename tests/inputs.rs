//! `docs/inputs.md` is what the table of readers says.

use expect_test::expect_file;
use railscope_collector::fabric::plans::inputs;

#[test]
fn the_page_of_inputs_is_the_table_of_readers() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/inputs.md");
    expect_file![page].assert_eq(&inputs::page());
}

#[test]
fn an_unknown_text_is_answered_with_the_nearest_form_and_the_page() {
    for (text, expected) in [
        (
            "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 36\n# HELP x y\n# TYPE x gauge\n",
            "pages of other exporters",
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
            "which is not read: the collector's own",
        ),
        ("hello\n", "docs/inputs.md lists every form"),
    ] {
        let hint = inputs::hint(text);
        assert!(hint.contains(expected), "{text}: {hint}");
        assert!(hint.contains("docs/inputs.md"), "{hint}");
    }
}
