//! Lines of every format, and lines without a format.

use super::*;
use Format::{Dmesg, Journal, Kmsg, Syslog, Talos};

/// 2026-03-01 12:00:00 UTC.
const NOW: u64 = 1_772_366_400;
/// 2025-02-23 16:24:18 UTC, microseconds.
const THEN: u64 = 1_740_327_858_000_000;
const XID: &str = "NVRM: Xid (PCI:0000:9b:00): 119, pid=7, name=x, Timeout";

const fn boot(micros: u64) -> Option<Time> {
    Some(Time::SinceBoot(micros))
}

const fn unix(micros: u64) -> Option<Time> {
    Some(Time::Unix(micros))
}

/// Lines without their text, which is [`XID`] everywhere: the format, whether the kernel wrote it, and when.
#[rustfmt::skip]
const HEADS: &[(&str, Format, bool, Option<Time>)] = &[
    ("6,1,10,-;", Kmsg, true, boot(10)),
    ("4,7,99,c,caller=T12;", Kmsg, true, boot(99)),
    ("12,1,10,-;", Kmsg, false, boot(10)),
    ("[   12.345678] ", Dmesg, true, boot(12_345_678)),
    ("[86400.000001] ", Dmesg, true, boot(86_400_000_001)),
    ("[   12.345678][  T123] ", Dmesg, true, boot(12_345_678)),
    ("[   12.345678] [    C7] ", Dmesg, true, boot(12_345_678)),
    ("[   12.345678 <    0.000123>] ", Dmesg, true, boot(12_345_678)),
    ("[   12.345678] host kernel: ", Dmesg, true, boot(12_345_678)),
    ("<3>[   12.345678] ", Dmesg, true, boot(12_345_678)),
    ("<12>[   12.345678] ", Dmesg, false, boot(12_345_678)),
    ("kern  :err   : [   12.345678] ", Dmesg, true, boot(12_345_678)),
    ("kern  :warn  : 2025-02-23T16:24:18,123456+00:00 ", Dmesg, true, unix(THEN + 123_456)),
    ("user  :err   : [   12.345678] ", Dmesg, false, boot(12_345_678)),
    ("local0:info  : [   12.345678] ", Dmesg, false, boot(12_345_678)),
    ("kern  :err   : [Sun Feb 23 16:24:18 2025] ", Dmesg, true, unix(THEN)),
    ("[Sun Feb 23 16:24:18 2025] ", Dmesg, true, unix(THEN)),
    ("\u{1b}[32m[Sun Feb 23 16:24:18 2025] \u{1b}[0m\u{1b}[1;31m", Dmesg, true, unix(THEN)),
    ("2025-02-23T16:24:18,123456+00:00 ", Dmesg, true, unix(THEN + 123_456)),
    ("2025-02-23T17:24:18,123456+01:00 ", Dmesg, true, unix(THEN + 123_456)),
    ("[Feb23 16:24] ", Dmesg, true, None),
    ("[  +0.000123] ", Dmesg, true, None),
    ("Feb 23 16:24:18 gpu-7 kernel: [   12.345678] ", Syslog, true, unix(THEN + 365 * 86_400_000_000)),
    ("Mar  2 09:00:00 gpu-7 kernel: ", Syslog, true, unix(1_772_442_000_000_000)),
    ("Mar 31 16:24:18 gpu-7 kernel: ", Syslog, true, unix(1_743_438_258_000_000)),
    ("Feb 23 16:24:18 gpu-7 python[71]: ", Syslog, false, unix(THEN + 365 * 86_400_000_000)),
    ("<3>Feb 23 16:24:18 gpu-7 kernel: ", Syslog, true, unix(THEN + 365 * 86_400_000_000)),
    ("<11>Feb 23 16:24:18 gpu-7 kernel: ", Syslog, false, unix(THEN + 365 * 86_400_000_000)),
    ("2025-02-23T16:24:18.123456+00:00 gpu-7 kernel: [   12.345678] ", Syslog, true, unix(THEN + 123_456)),
    ("2025-02-23T16:24:18.123456+00:00 gpu-7.example.org kernel: ", Syslog, true, unix(THEN + 123_456)),
    ("2025-02-23T16:24:18+0000 gpu-7 kernel: ", Syslog, true, unix(THEN)),
    ("2025-02-23T16:24:18.123456+00:00 gpu-7 audit[1]: ", Syslog, false, unix(THEN + 123_456)),
    ("Sun 2025-02-23 16:24:18 UTC gpu-7 kernel: ", Syslog, true, unix(THEN)),
    ("Sun Feb 23 16:24:18 2025 kern.err kernel: [   12.345678] ", Syslog, true, unix(THEN)),
    ("Sun Feb 23 16:24:18 2025 user.err kernel: ", Syslog, false, unix(THEN)),
    ("Feb 23 16:24:18 gpu-7 kern.info kernel: ", Syslog, true, unix(THEN + 365 * 86_400_000_000)),
    ("1740327858.123456 gpu-7 kernel: ", Syslog, true, unix(THEN + 123_456)),
    ("2025-02-23T16:24:18.123456Z [   12.345678] ", Syslog, true, unix(THEN + 123_456)),
    ("172.20.0.2: kern:    info: [2025-02-23T16:24:18.123456Z]: ", Talos, true, unix(THEN + 123_456)),
    ("fd00::7: kern: warning: [2025-02-23T16:24:18.123456789Z]: ", Talos, true, unix(THEN + 123_456)),
    ("172.20.0.2: user: warning: [2025-02-23T16:24:18.1Z]: ", Talos, false, unix(THEN + 100_000)),
    ("kern:     err: [2025-02-23T16:24:18Z]: ", Talos, true, unix(THEN)),
];

#[test]
fn every_format_gives_the_same_text_its_time_and_its_writer() {
    for (head, format, by_kernel, time) in HEADS {
        let line = format!("{head}{XID}");
        let (found, record) = parse(&line, NOW).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(
            (found, record.by_kernel, record.time),
            (*format, *by_kernel, *time),
            "{line}"
        );
        assert!(!*by_kernel || record.text == XID, "{line}: {}", record.text);
    }
    #[rustfmt::skip]
    let entries = [
        (r#""__REALTIME_TIMESTAMP":"5000000","_TRANSPORT":"kernel""#, true, unix(5_000_000)),
        (r#""_SOURCE_MONOTONIC_TIMESTAMP":"77","_TRANSPORT":"kernel","SYSLOG_FACILITY":"0""#, true, boot(77)),
        (r#""__REALTIME_TIMESTAMP":"5","_TRANSPORT":"kernel","SYSLOG_FACILITY":"1""#, false, unix(5)),
        (r#""__REALTIME_TIMESTAMP":"5","_TRANSPORT":"stdout""#, false, unix(5)),
        (r#""__REALTIME_TIMESTAMP":"5""#, false, unix(5)),
    ];
    for (fields, by_kernel, time) in entries {
        let line = format!("{{{fields},\"MESSAGE\":\"{XID}\"}}");
        let (found, record) = parse(&line, NOW).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(
            (found, record.by_kernel, record.time),
            (Journal, by_kernel, time),
            "{line}"
        );
        assert_eq!(record.text, XID);
    }
    let bytes = r#"{"__REALTIME_TIMESTAMP":"5","_TRANSPORT":"kernel","MESSAGE":[104,105,255]}"#;
    let (_, record) = parse(bytes, NOW).expect("a record");
    assert_eq!(record.text, "hi\u{fffd}");
}

#[test]
fn what_is_no_kernel_log_is_no_record() {
    for line in [
        "nonsense",
        "",
        "6,1;no time",
        "6,1,x,-;no time",
        "six,1,10,-;text",
        "[12] text",
        "[Feb 27 2025 15:10:02] [ERROR] [tid 12727] detected NVSwitch non-fatal error 12028",
        "[ERROR] text",
        "[   12.345678 text",
        "NVRM: Xid (PCI:0000:9b:00): 119, pid=7",
        "2025-02-23T16:24:18.123456+00:00 NVRM: Xid (PCI:0000:9b:00): 119, pid=7",
        "2025-02-30T16:24:18,123456+00:00 text",
        "Feb 23 16:24:18",
        "2025-02-23T16:24:18Z INFO starting the server",
        "2025-02-23T16:24:18Z {\"level\": \"info\"}",
        "{\"MESSAGE\":\"no time\"}",
        "{\"MESSAGE\":\"torn",
        "\u{fffd}\u{fffd}\u{0}\u{1}ELF",
        "kern :err : text",
        "172.20.0.2: kern: info: text",
        "GPU 00000000:9B:00.0: 31 C",
    ] {
        assert_eq!(parse(line, NOW), None, "{line}");
    }
}
