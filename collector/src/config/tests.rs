//! Which configurations are accepted, and the error messages for those that are not.

use super::*;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("etc/collector.toml"))
}

#[test]
fn an_empty_file_is_a_configuration() {
    let config = parse("").expect("defaults");
    assert_eq!(config.listen.to_string(), "0.0.0.0:10661");
    assert_eq!(config.scrape.interval, Duration::from_secs(5));
    assert_eq!(config.scrape.timeout, Duration::from_secs(4));
    assert_eq!(config.analysis_interval, Duration::from_secs(5));
    assert!(config.targets.is_empty() && config.file_sd.is_empty() && config.subnet.is_none());
}

#[test]
fn paths_are_relative_to_the_file() {
    let config = parse(
        "file_sd = [\"nodes.json\", \"/abs.json\"]\n[subnet]\nfile = \"subnet.txt\"\n[analysis]\nstate_dir = \"state\"",
    );
    let config = config.expect("valid");
    assert_eq!(
        config.file_sd,
        [Path::new("etc/nodes.json"), Path::new("/abs.json")]
    );
    assert_eq!(config.state_dir, Some("etc/state".into()));
    let subnet = config.subnet.expect("subnet");
    assert_eq!(subnet.from, SubnetFrom::File("etc/subnet.txt".into()));
}

#[test]
fn an_own_sweep_has_the_settings_that_stand_there_and_defaults_for_the_rest() {
    let text = "[subnet]\ndevice = \"mlx5_0:1\"\ntimeout = \"9s\"\n[subnet.sweep]\ncounters = false\nmads_per_second = 5000";
    let subnet = parse(text).expect("valid").subnet.expect("subnet");
    let expected = mad_sweep::Settings {
        counters: false,
        mads_per_second: std::num::NonZeroU32::new(5000),
        limit: Duration::from_secs(9),
        forwarding: true,
        ..mad_sweep::Settings::default()
    };
    let expected = SubnetFrom::Device(String::from("mlx5_0:1"), expected);
    assert_eq!(subnet.from, expected);
    let plain = parse("[subnet]\ndevice = \"auto\"").expect("valid").subnet;
    let plain = plain.expect("subnet").from;
    let expected = mad_sweep::Settings {
        forwarding: true,
        ..mad_sweep::Settings::default()
    };
    let expected = SubnetFrom::Device(String::from("auto"), expected);
    assert_eq!(plain, expected);
    let text = "[subnet]\ndevice = \"auto\"\nadaptive_routing = true";
    let sprayed = parse(text).expect("valid").subnet.expect("subnet").from;
    let expected = SubnetFrom::Device(String::from("auto"), mad_sweep::Settings::default());
    assert_eq!(sprayed, expected);
}

#[test]
fn a_file_of_forwarding_tables_stands_where_it_can_be_used_alone() {
    let text = |more: &str| format!("[subnet]\nforwarding_file = \"lfts.txt\"\n{more}");
    let subnet = parse(&text("file = \"subnet.txt\"")).expect("valid").subnet;
    let file = subnet.expect("subnet").forwarding_file;
    assert_eq!(file, Some("etc/lfts.txt".into()));
    for (more, expected) in [
        ("device = \"auto\"", "an own sweep reads the tables itself"),
        (
            "file = \"a\"\nadaptive_routing = true",
            "with adaptive_routing forwarding tables",
        ),
    ] {
        let error = parse(&text(more)).expect_err("unfit").to_string();
        assert!(
            error.contains("subnet.forwarding_file") && error.contains(expected),
            "{error}"
        );
    }
}

#[test]
fn announced_work_stands_in_the_file_with_tomls_own_times() {
    let head = "[analysis]\nmaintenance_file = \"work.json\"\n[[maintenance]]\n";
    let work = "parts = [\"host/n7\", \"switch/leaf-*\"]\nwhy = \"new PSU\"\n";
    let text =
        format!("{head}{work}from = 2023-11-14T22:13:20Z\nuntil = 2023-11-15T00:00:00+01:00");
    let config = parse(&text).expect("valid");
    let [window] = config.maintenance.as_slice() else {
        panic!("one window: {:?}", config.maintenance);
    };
    assert_eq!(window.from.as_seconds(), 1_700_000_000.0);
    assert_eq!(window.until.as_seconds(), 1_700_002_800.0);
    assert_eq!(window.parts.len(), 2);
    assert_eq!(config.maintenance_file, Some("etc/work.json".into()));
    let wrong = parse(&format!("{head}{work}until = 2023-11-15T00:00:00"));
    let error = wrong.expect_err("no offset").to_string();
    assert!(error.contains("maintenance[0].until"), "{error}");
    assert!(error.contains("expected a time with its offset"), "{error}");
}

#[test]
fn the_shipped_example_is_valid() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/collector.toml");
    let config = Config::load(&path).expect("packaging/collector.toml");
    assert!(config.subnet.is_some() && !config.targets.is_empty());
}

#[test]
fn a_switch_is_read_by_a_file_or_a_program_or_is_a_target() {
    let config = parse(
        "[[switches]]\nname = \"a\"\nlldp_file = \"a.json\"\n\
         [[switches]]\nname = \"b\"\nlldp_command = [\"ssh\", \"b\", \"lldpctl -f json0\"]\n\
         [[switches]]\nname = \"c\"",
    );
    let switches = config.expect("valid").switches.into_iter();
    let from: Vec<_> = switches
        .map(|one| one.source.map(|source| source.from))
        .collect();
    let program = ["ssh", "b", "lldpctl -f json0"].map(str::to_owned).to_vec();
    assert_eq!(
        from,
        [
            Some(SubnetFrom::File("etc/a.json".into())),
            Some(SubnetFrom::Command(program)),
            None
        ]
    );
}

#[test]
fn switches_and_their_ports_have_addresses() {
    let config = parse(
        "[[switches]]\nname = \"a\"\naddresses = [\"10.0.0.1\", \"fd00:0::1\"]\n\
         port_addresses = { swp1 = \"10.1.0.0\", 33 = \"10.1.0.2\" }",
    );
    let switches = config.expect("valid").switches;
    let told = switches[0].addresses.iter();
    let told: Vec<String> = told
        .map(|(address, port)| match port {
            Some(port) => format!("{address} {port}"),
            None => address.clone(),
        })
        .collect();
    assert_eq!(
        told,
        ["10.0.0.1", "fd00::1", "10.1.0.2 33", "10.1.0.0 swp1"]
    );
}

/// Texts and what is reported about them.
const WRONG: &[(&str, &str)] = &[
    (
        "[[switches]]\nname = \"a\"\n[[switches]]\nname = \"a\"",
        "4:8: switches[1].name: \"a\" is already the name of switches[0]: expected each switch once",
    ),
    (
        "[[switches]]\nname = \"a\"\nlldp_file = \"a\"\nlldp_command = [\"a\"]",
        "1:1: switches[0]: both stand here: expected lldp_file, lldp_command or neither",
    ),
    (
        "[[switches]]\nname = \"a\"\naddresses = [\"10.0.0.1\"]\n[[switches]]\nname = \"b\"\naddresses = [\"10.0.0.1\"]",
        "6:14: switches[1].addresses: 10.0.0.1 is already an address of a: expected each once",
    ),
    (
        "[[targets]]\nswitch = \"leaf-1\"\nkind = \"railscope\"\nurl = \"http://leaf-1:10660/metrics\"",
        "3:8: targets[0].kind: of a switch another exporter's page is expected; where Railscope's own runs on leaf-1, expected node = \"leaf-1\" here and name = \"leaf-1\" under [[switches]]",
    ),
    (
        "[scrape]\nintervall = \"5s\"",
        "2:1: scrape.intervall: unknown field `intervall`, expected one of `interval`, `timeout`, `max_body_bytes`, `concurrency`, `profile`; did you mean `interval`?",
    ),
    (
        "[scraep]\n",
        "1:2: scraep: unknown field `scraep`, expected one of `cluster`, `web`, `scrape`, `targets`, `file_sd`, `mapping`, `subnet`, `plan`, `switches`, `analysis`, `collectives`, `maintenance`, `push`, `record`, `otlp`; did you mean `scrape`?",
    ),
    (
        "[record]\nmax_age = \"1d\"",
        "1:1: record: missing field `folder`",
    ),
    (
        "[record]\nfolder = \"r\"\nmax_bytes = \"9MB\"",
        "3:13: record.max_bytes: \"9MB\": expected a size of at least \"10MB\", such as \"500MB\" or \"10GB\"",
    ),
    (
        "[cluster]\nname = \"a\"\ncolor = 1",
        "3:1: cluster.color: unknown field `color`, expected `name`",
    ),
    (
        "[scrape]\ninterval = 5",
        "2:12: scrape.interval: invalid type: integer `5`, expected a time such as \"5s\", \"500ms\" or \"2m\"",
    ),
    (
        "[scrape]\ninterval = \"5\"",
        "2:12: scrape.interval: invalid value: string \"5\", expected a time such as \"5s\", \"500ms\" or \"2m\"",
    ),
    (
        "[scrape]\ninterval = \"0s\"",
        "2:12: scrape.interval: invalid value: string \"0s\", expected a time such as \"5s\", \"500ms\" or \"2m\"",
    ),
    (
        "[scrape]\ninterval = \"5s\"\ntimeout = \"6s\"",
        "3:11: scrape.timeout: 6s is longer than the interval: expected at most scrape.interval (5s)",
    ),
    (
        "[scrape]\nconcurrency = 0",
        "2:15: scrape.concurrency: expected a number above zero",
    ),
    (
        "[scrape]\nprofile = \"all\"",
        "2:11: scrape.profile: unknown variant `all`, expected `default` or `full`",
    ),
    (
        "[cluster]\nname = \" \"",
        "2:8: cluster.name: expected text that is not empty",
    ),
    ("[cluster]\n", "1:1: cluster: missing field `name`"),
    (
        "[web]\nlisten = \"here\"",
        "2:10: web.listen: invalid socket address syntax",
    ),
    (
        "[[targets]]\nnode = \"n1\"\nurl = \"n1:10660\"",
        "3:7: targets.url: expected an address such as http://n1:10660/metrics",
    ),
    (
        "[[targets]]\nnode = \"n1\"\nurl = \"https://n1/metrics\"",
        "3:7: targets.url: expected an address such as http://n1:10660/metrics: this version scrapes http, not https",
    ),
    (
        "[[targets]]\nnode = \"n1\"\nkind = \"railscope\"\nurl = \"http://a/m\"\n[[targets]]\nnode = \"n1\"\nkind = \"railscope\"\nurl = \"http://b/m\"",
        "6:8: targets[1].node: \"n1\" is already named by targets[0]: expected one target of each kind for each of them",
    ),
    (
        "[[targets]]\nurl = \"http://a/metrics\"",
        "2:7: targets[0].node: missing field `node`: expected it, or switch, or the kind of an exporter that names its parts itself",
    ),
    (
        "[[targets]]\nnode = \"n1\"\nswitch = \"s1\"\nurl = \"http://a/metrics\"",
        "4:7: targets[0].node: node and switch: expected one of them",
    ),
    (
        "[[targets]]\nnode = \"n1\"\nkind = \"dcgm\"\nurl = \"http://a/metrics\"",
        "3:8: targets[0].kind: no mapping for \"dcgm\": expected one of \"railscope\", \"dcgm-exporter\", \"amd-device-metrics-exporter\", \"nvidia_gpu_exporter\", \"nvitop\", \"rdma_exporter\", \"node_exporter\", \"amazonefa\", \"ipmi_exporter\", \"infiniband_exporter\", \"snmp_exporter\", \"gnmic\", \"cumulus-otlp\", \"sonic-exporter\", \"nmx-telemetry\"",
    ),
    (
        "[[targets]]\nnode = \"n1\"",
        "1:1: targets: missing field `url`",
    ),
    (
        "file_sd = \"x.json\"",
        "1:11: file_sd: invalid type: string \"x.json\", expected a sequence",
    ),
    (
        "[subnet]\ninterval = \"5s\"",
        "1:1: subnet: none stands here: expected one of file, command and device",
    ),
    (
        "[subnet]\nfile = \"a\"\ncommand = [\"b\"]",
        "1:1: subnet: more than one stands here: expected one of file, command and device",
    ),
    (
        "[subnet]\ndevice = \"auto\"\n[subnet.sweep]\nwindow = 129",
        "4:10: subnet.sweep.window: expected 1 to 128",
    ),
    (
        "[subnet]\ndevice = \"auto\"\n[subnet.sweep]\nmads_per_second = 0",
        "4:19: subnet.sweep.mads_per_second: invalid value: integer `0`, expected a nonzero u32",
    ),
    (
        "[subnet]\nfile = \"a\"\n[subnet.sweep]\nwindow = 8",
        "3:1: subnet.sweep: only an own sweep is set here: expected device beside it",
    ),
    (
        "[subnet]\ncommand = []",
        "2:11: subnet.command: expected a program and its arguments, such as [\"ibnetdiscover\"]",
    ),
    (
        "[subnet]\ncommand = \"ibnetdiscover\"",
        "2:11: subnet.command: invalid type: string \"ibnetdiscover\", expected a sequence",
    ),
    (
        "[scrape]\ninterval = \n",
        "2:12: string values must be quoted, expected literal string",
    ),
    ("[scrape\n", "1:8: unclosed table, expected `]`"),
];

#[test]
fn an_error_names_file_line_column_field_and_what_was_expected() {
    for (text, expected) in WRONG {
        let error = parse(text).expect_err(text);
        assert_eq!(
            error.to_string(),
            format!("etc/collector.toml:{expected}"),
            "{text}"
        );
    }
}

#[test]
fn a_recording_is_off_unless_configured_and_has_limits() {
    assert_eq!(parse("").expect("valid").record, None);
    let of = |text: &str| parse(text).expect(text).record.expect("a table");
    let record = of("[record]\nfolder = \"rec\"");
    assert_eq!(record.folder, Path::new("etc/rec"));
    assert_eq!(record.max_bytes, 10_000_000_000);
    assert_eq!(record.max_age, Duration::from_secs(7 * 86_400));
    let record = of("[record]\nfolder = \"/r\"\nmax_bytes = \"500MB\"\nmax_age = \"2d\"");
    assert_eq!(record.folder, Path::new("/r"));
    assert_eq!(record.max_bytes, 500_000_000);
    assert_eq!(record.max_age, Duration::from_secs(2 * 86_400));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = Config::load(Path::new("no/such.toml")).expect_err("no file");
    assert!(error.to_string().starts_with("no/such.toml: "), "{error}");
}

#[test]
fn pushed_samples_have_settings_by_job() {
    let text = "[push]\nnode_label = \"host\"\n\
        [[push.jobs]]\njob = \"snmp\"\nkind = \"snmp_exporter\"\nabout = \"switch\"\n\
        [[push.jobs]]\njob = \"ib\"\nkind = \"infiniband_exporter\"\nabout = \"series\"";
    let pushed = parse(text).expect("valid").push.expect("a table");
    let labels = ["gpu", "snmp", "ib"].map(|job| pushed.part_label(job));
    assert_eq!(labels, [Some("host"), Some("switch"), None]);
    assert_eq!(pushed.kind("snmp").as_deref(), Some("snmp_exporter"));
    assert!(parse("").expect("valid").push.is_none());
    let job = "[[push.jobs]]\njob = \"a\"\n";
    for (jobs, expected) in [
        (
            format!("{job}kind = \"x\""),
            "push.jobs[0].kind: no mapping for \"x\"",
        ),
        (
            format!("{job}about = \"switch\""),
            "push.jobs[0].kind: expected the kind of an exporter",
        ),
        (
            format!("{job}{job}"),
            "push.jobs[1].job: \"a\" stands here already",
        ),
        (format!("{job}what = 1"), "unknown field `what`"),
        (String::from("token_file = \"none\""), "none"),
    ] {
        let error = parse(&format!("[push]\n{jobs}")).expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
    }
}
