//! Settings from tables and variables.

use std::collections::BTreeMap;

use railscope_otlp::{Settings, Table};

fn resolve(file: &str, variables: &[(&str, &str)]) -> Result<Settings, String> {
    let table: Table = toml::from_str(file).map_err(|error| error.message().to_owned())?;
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    let variable = |name: &str| variables.get(name).map(|value| (*value).to_owned());
    Settings::resolve(&table, &variable).map_err(|error| error.to_string())
}

/// `signal protocol url timeout gzip headers`, for each signal that is on.
fn show(settings: &Settings) -> Vec<String> {
    let targets = [
        ("metrics", &settings.metrics),
        ("logs", &settings.logs),
        ("traces", &settings.traces),
    ];
    let line = |(name, target): (&str, &Option<railscope_otlp::Target>)| {
        let target = target.as_ref()?;
        let headers: Vec<_> = target
            .headers
            .iter()
            .map(|(name, value)| format!("{name}:{}", value.to_str().expect("text")))
            .collect();
        Some(format!(
            "{name} {:?} {} {:?} {} {}",
            target.protocol,
            target.endpoint,
            target.timeout,
            target.gzip,
            headers.join(",")
        ))
    };
    targets.into_iter().filter_map(line).collect()
}

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const RECEIVER: (&str, &str) = (ENDPOINT, "http://r");

type Variables = &'static [(&'static str, &'static str)];

const TARGETS: &[(&str, Variables, &[&str])] = &[
    ("", &[], &[]),
    ("", &[("OTEL_TRACES_EXPORTER", "otlp")], &[]),
    ("", &[(ENDPOINT, "")], &[]),
    (
        "endpoint = 'http://r:4318'",
        &[],
        &[
            "metrics Http http://r:4318/v1/metrics 10s false ",
            "logs Http http://r:4318/v1/logs 10s false ",
            "traces Http http://r:4318/v1/traces 10s false ",
        ],
    ),
    (
        "endpoint = 'http://r:4318/otlp/'\nlogs.enabled = false\ntraces.endpoint = 'https://t/x'",
        &[],
        &[
            "metrics Http http://r:4318/otlp/v1/metrics 10s false ",
            "traces Http https://t/x 10s false ",
        ],
    ),
    (
        "endpoint = 'http://r'\nprotocol = 'grpc'\nmetrics.protocol = 'http/protobuf'\nlogs.enabled = false",
        &[],
        &[
            "metrics Http http://r/v1/metrics 10s false ",
            "traces Grpc http://r/ 10s false ",
        ],
    ),
    // A variable wins over the file, a general one over the table of the signal, too.
    (
        "endpoint = 'http://r'\nmetrics.endpoint = 'http://m/file'",
        &[
            (ENDPOINT, "http://env"),
            ("OTEL_LOGS_EXPORTER", "none"),
            ("OTEL_TRACES_EXPORTER", "none"),
        ],
        &["metrics Http http://env/v1/metrics 10s false "],
    ),
    (
        "metrics.enabled = false",
        &[
            ("OTEL_METRICS_EXPORTER", "otlp"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m/as/is"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
            ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "gzip"),
        ],
        &["metrics Http http://m/as/is 2.5s true "],
    ),
    (
        "endpoint = 'http://r'\ntimeout = '2m'\ncompression = 'gzip'\n\
             headers = { a = 'b' }\nmetrics.headers = { c = 'd e' }\ntraces.enabled = false",
        &[],
        &[
            "metrics Http http://r/v1/metrics 120s true c:d e",
            "logs Http http://r/v1/logs 120s true a:b",
        ],
    ),
    (
        "metrics.headers = { c = 'd' }",
        &[
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                " authorization=Basic%20eA%3D%3D , x=,",
            ),
        ],
        &["metrics Http http://m/ 10s false authorization:Basic eA==,x:"],
    ),
    (
        "endpoint = 'http://r'",
        &[
            ("OTEL_SDK_DISABLED", "TRUE"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "bad"),
        ],
        &[],
    ),
    (
        "endpoint = 'http://r'\nlogs.enabled = false\ntraces.enabled = false",
        &[
            ("OTEL_SDK_DISABLED", "false"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ],
        &["metrics Http http://r/v1/metrics 10s false "],
    ),
];

#[test]
fn endpoints_get_their_paths_and_the_order_of_precedence_holds() {
    for (file, variables, expected) in TARGETS {
        let settings = resolve(file, variables).expect("valid");
        assert_eq!(&show(&settings), expected, "{file} {variables:?}");
        assert_eq!(settings.is_on(), !expected.is_empty());
    }
}

const ERRORS: &[(&str, Variables, &str)] = &[
    (
        "endpoint = 'r:4317'",
        &[],
        "cannot use the key otlp.endpoint: expected a URL such as http://HOST:4318",
    ),
    ("endpoint = 'ftp://r'", &[], "found \"ftp://r\""),
    (
        "",
        &[(ENDPOINT, "http://user:hunter2@r")],
        "found a value that is not shown",
    ),
    (
        "",
        &[
            (ENDPOINT, "http://r/x"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ],
        "expected a URL without a path, such as http://HOST:4317, because the protocol is grpc",
    ),
    (
        "",
        &[RECEIVER, ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/json")],
        "cannot use the variable OTEL_EXPORTER_OTLP_LOGS_PROTOCOL: expected grpc or http/protobuf, found \"http/json\"",
    ),
    (
        "",
        &[RECEIVER, ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s")],
        "cannot use the variable OTEL_EXPORTER_OTLP_TIMEOUT: expected a number of milliseconds above zero",
    ),
    (
        "",
        &[RECEIVER, ("OTEL_EXPORTER_OTLP_TIMEOUT", "0")],
        "found \"0\"",
    ),
    (
        "endpoint = 'http://r'\nlogs.timeout = '10'",
        &[],
        "cannot use the key otlp.logs.timeout: expected a time such as",
    ),
    (
        "interval = '0s'",
        &[],
        "cannot use the key otlp.interval: expected a time such as \"5s\"",
    ),
    (
        "",
        &[("OTEL_METRIC_EXPORT_INTERVAL", "-1")],
        "the variable OTEL_METRIC_EXPORT_INTERVAL",
    ),
    (
        "",
        &[RECEIVER, ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd")],
        "expected gzip or none, found \"zstd\"",
    ),
    (
        "",
        &[("OTEL_LOGS_EXPORTER", "console")],
        "the variable OTEL_LOGS_EXPORTER: expected otlp or none, found \"console\"",
    ),
    (
        "",
        &[("OTEL_SDK_DISABLED", "yes")],
        "the variable OTEL_SDK_DISABLED: expected true or false, found \"yes\"",
    ),
    (
        "",
        &[("OTEL_RESOURCE_ATTRIBUTES", "a")],
        "the variable OTEL_RESOURCE_ATTRIBUTES: expected pairs such as",
    ),
    (
        "",
        &[RECEIVER, ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=%2")],
        "expected headers such as",
    ),
    (
        "",
        &[RECEIVER, ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/k")],
        "expected a certificate and its key",
    ),
    ("endpont = 'http://r'", &[], "unknown field `endpont`"),
];

#[test]
fn an_error_names_the_variable_or_key_the_value_and_what_is_expected() {
    for (file, variables, expected) in ERRORS {
        let error = resolve(file, variables).expect_err(expected);
        assert!(
            error.contains(expected),
            "{file} {variables:?}\n{error}\n{expected}"
        );
        assert!(
            !error.contains("hunter2") && !error.contains("%2"),
            "credentials are not shown: {error}"
        );
    }
}

#[test]
fn headers_are_not_in_the_debug_text() {
    let settings = resolve(
        "endpoint = 'http://r'\nheaders = { authorization = 'hidden' }",
        &[],
    )
    .expect("valid");
    let text = format!("{settings:?}");
    assert!(
        text.contains("authorization") && !text.contains("hidden"),
        "{text}"
    );
}

#[test]
fn variables_win_over_resource_attributes_of_the_file() {
    let file =
        "interval = '5s'\nservice_name = 'file'\nresource_attributes = { a = 'file', b = 'file' }";
    let settings = resolve(
        file,
        &[
            ("OTEL_RESOURCE_ATTRIBUTES", "a=env,c=x%2Cy"),
            ("OTEL_SERVICE_NAME", "env"),
        ],
    );
    let settings = settings.expect("valid");
    let attributes: Vec<_> = settings
        .resource_attributes
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(attributes, ["a=env", "b=file", "c=x,y"]);
    assert_eq!(settings.service_name.as_deref(), Some("env"));
    assert_eq!(settings.interval.as_millis(), 5_000);
}
