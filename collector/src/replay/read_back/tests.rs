//! Read-back from a small fake of the query API: slices, labels, replicas, and each error.

use std::sync::Mutex;

use axum::http::StatusCode;
use serde_json::Value;

use super::*;

mod fake;

use fake::{Refuses, Stored, at, never, regular, serve, stored};

const N1: [(&str, &str); 3] = [("job", "gpu"), ("instance", "n1:9400"), ("node", "n1")];

/// One target with `up` and a GPU's temperature.
fn one_target(seconds: u64) -> Vec<Stored> {
    let labels = [&N1[..], &[("gpu", "0")]].concat();
    vec![
        stored("up", &N1, regular(seconds, "1")),
        stored(
            "railscope_gpu_temperature_celsius",
            &labels,
            regular(seconds, "55"),
        ),
    ]
}

#[test]
fn slices_have_each_scrape_once() {
    let outcome = serve(one_target(3_600), never, "", 3_600);
    let read = outcome.result.expect("read");
    assert_eq!((read.targets, read.scrapes, read.failures), (1, 361, 0));
    assert_eq!((read.samples, read.interval), (361, Some(10.0)));
    let times: Vec<_> = outcome.lines.iter().map(|(at, ..)| *at).collect();
    let expected: Vec<_> = (0..=360).map(|index| index * 10_000).collect();
    assert_eq!(times, expected);
    for (_, instance, answer) in &outcome.lines {
        assert_eq!(instance, "n1:9400");
        let text = "railscope_gpu_temperature_celsius{gpu=\"0\"} 55\n";
        assert_eq!(answer.as_deref(), Ok(text));
    }
    // 60 s, 4 min, then at most 15 min.
    let queries = outcome
        .requests
        .iter()
        .filter(|(path, _)| path == "/api/v1/query");
    assert_eq!(queries.count(), 6);
    let (_, login) = outcome.requests.first().expect("a request");
    assert_eq!(login, "Bearer a-token|team");
}

#[test]
fn too_much_is_requested_in_parts() {
    let refuses: Refuses = |path, range| {
        let is_large = path == "/api/v1/query" && range > 20_000;
        let message = r#"{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory in query execution"}"#;
        is_large.then_some((StatusCode::UNPROCESSABLE_ENTITY, message))
    };
    let whole = serve(one_target(300), never, "", 300);
    let parts = serve(one_target(300), refuses, "", 300);
    assert_eq!(whole.lines, parts.lines);
    assert_eq!(whole.result.expect("read"), parts.result.expect("read"));
}

#[test]
fn labels_of_the_target_are_removed_and_renamed_ones_restored() {
    let labels = [
        &N1[..],
        &[
            ("exported_instance", "a"),
            ("exported_job", "train"),
            ("gpu", "0"),
            ("exported_x", "1"),
        ],
    ]
    .concat();
    let mut series = vec![
        stored("up", &N1, [(0, "1"), (10_000, "0"), (20_000, "1")]),
        stored(
            "scrape_duration_seconds",
            &N1,
            [(0, "0.25"), (20_000, "0.5")],
        ),
        stored(
            "DCGM_FI_DEV_GPU_TEMP",
            &labels,
            [(0, "50"), (20_000, "NaN")],
        ),
        // With timestamps of the exporter.
        stored(
            "DCGM_FI_DEV_POWER_USAGE",
            &N1,
            [(12_000, "300"), (15_000, "310.5")],
        ),
        stored("DCGM:rule", &N1, [(0, "1")]),
    ];
    series.push(stored("ALERTS", &labels, [(0, "1")]));
    let outcome = serve(series, never, "", 30);
    let read = outcome.result.expect("read");
    assert_eq!((read.scrapes, read.failures), (2, 1));
    let text = |text: &str| Ok(text.to_owned());
    let instance = || String::from("n1:9400");
    let temperature =
        "DCGM_FI_DEV_GPU_TEMP{instance=\"a\",job=\"train\",exported_x=\"1\",gpu=\"0\"} 50\n";
    assert_eq!(
        outcome.lines,
        [
            (250, instance(), text(temperature)),
            (10_000, instance(), Err(String::from("refused"))),
            (
                20_500,
                instance(),
                text("DCGM_FI_DEV_POWER_USAGE{} 310.5\n")
            ),
        ]
    );
}

#[test]
fn a_sample_before_its_scrape_is_kept_over_the_end_of_a_slice() {
    let mut series = one_target(120);
    // The first slice ends at 60 s; the next scrape is at 70 s.
    series.push(stored(
        "DCGM_FI_DEV_POWER_USAGE",
        &N1,
        [(58_000, "1"), (60_000 - 1, "2")],
    ));
    series[0]
        .samples
        .retain(|(at, _)| !(50_000..=60_000).contains(at));
    let outcome = serve(series, never, "", 120);
    let with_power = outcome.lines.iter().filter(|(_, _, answer)| {
        answer
            .as_ref()
            .is_ok_and(|text| text.contains("DCGM_FI_DEV_POWER_USAGE{} 2\n"))
    });
    let times: Vec<_> = with_power.map(|(at, ..)| *at).collect();
    assert_eq!(times, [70_000]);
}

#[test]
fn of_several_servers_with_the_same_scrapes_one_is_used() {
    let mut series = Vec::new();
    for (replica, value) in [("a", "50"), ("b", "51")] {
        let labels = [&N1[..], &[("replica", replica)]].concat();
        series.push(stored("up", &labels, regular(60, "1")));
        series.push(stored(
            "railscope_gpu_temperature_celsius",
            &labels,
            regular(60, value),
        ));
    }
    for of_other in &mut series[2..] {
        of_other.samples.pop();
    }
    let outcome = serve(series, never, "", 60);
    let read = outcome.result.expect("read");
    assert_eq!((read.scrapes, read.has_replicas), (7, true));
    let text = "railscope_gpu_temperature_celsius{} 50\n";
    assert!(
        outcome
            .lines
            .iter()
            .all(|line| line.2.as_deref() == Ok(text))
    );
}

#[test]
fn targets_are_those_of_the_configuration_or_of_known_exporters() {
    let all = || {
        let mut series = one_target(60);
        let other = [("job", "blackbox"), ("instance", "n9:9115")];
        series.push(stored("up", &other, regular(60, "1")));
        series.push(stored("probe_success", &other, regular(60, "1")));
        let dcgm = [("job", "gpu"), ("instance", "n2:9400")];
        series.push(stored("up", &dcgm, regular(60, "1")));
        series.push(stored("DCGM_FI_DEV_GPU_TEMP", &dcgm, regular(60, "1")));
        series
    };
    let read = serve(all(), never, "", 60).result.expect("read");
    assert_eq!((read.targets, read.scrapes), (2, 14));
    assert_eq!(read.unknown, [(String::from("blackbox"), 1)].into());
    let config = "[[targets]]\nnode = \"n2\"\nkind = \"dcgm-exporter\"\nurl = \"http://n2:9400/metrics\"\n\
                  [[targets]]\nnode = \"n3\"\nurl = \"http://n3:10660/metrics\"\n";
    let outcome = serve(all(), never, config, 60);
    let read = outcome.result.expect("read");
    assert_eq!((read.targets, read.scrapes), (1, 7));
    assert_eq!(read.missing, ["n3:10660"]);
    let unknown = [("blackbox", 1), ("gpu", 1)].map(|(job, count)| (job.to_owned(), count));
    assert_eq!(read.unknown, unknown.into());
    assert!(
        outcome
            .lines
            .iter()
            .all(|(_, instance, _)| instance == "n2:9400")
    );
}

#[test]
fn errors_have_the_question_and_what_to_do() {
    let cases: [(Refuses, &[&str]); 5] = [
        (
            |_, _| Some((StatusCode::UNAUTHORIZED, "no\n credentials")),
            &[
                "answered 401 to series of up from 1764000000.000 to 1764000060.000",
                "no credentials",
                "--token-file",
            ],
        ),
        (
            |_, _| Some((StatusCode::NOT_FOUND, "404 page not found")),
            &["answered 404", "the URL below which it has /api/v1"],
        ),
        (
            |_, _| Some((StatusCode::OK, "<html>")),
            &[
                "invalid answer to series of up",
                "expected the URL below which it has Prometheus' /api/v1",
            ],
        ),
        (
            |path, range| {
                (path == "/api/v1/query" && range > 0).then_some((
                    StatusCode::UNPROCESSABLE_ENTITY,
                    r#"{"error": "too many samples"}"#,
                ))
            },
            &[
                "too much for one answer: query={job=\"gpu\",instance=\"n1:9400\"}[",
                "422: too many samples",
                "--query.max-samples",
            ],
        ),
        (
            |path, _| {
                (path == "/api/v1/query")
                    .then_some((StatusCode::BAD_REQUEST, r#"{"error": "parse error"}"#))
            },
            &[
                "answered 400 to query={job=\"gpu\",instance=\"n1:9400\"}[60000ms] at time=1764000059.999: parse error",
            ],
        ),
    ];
    for (refuses, parts) in cases {
        let error = serve(one_target(60), refuses, "", 60)
            .result
            .expect_err("refused");
        let error = error.to_string();
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("a-token"), "{error}");
    }
}

#[test]
fn an_overloaded_server_is_asked_again() {
    static BUSY: Mutex<u32> = Mutex::new(1);
    let refuses: Refuses = |_, _| {
        let mut busy = BUSY.lock().expect("unpoisoned");
        *busy = busy.checked_sub(1)?;
        Some((StatusCode::SERVICE_UNAVAILABLE, "starting"))
    };
    let read = serve(one_target(60), refuses, "", 60).result.expect("read");
    assert_eq!(read.scrapes, 7);
}

#[test]
fn nothing_to_replay_is_an_error_that_names_what_there_is() {
    let other = [("job", "blackbox"), ("instance", "n9:9115")];
    let unknown = vec![
        stored("up", &other, regular(60, "1")),
        stored("probe_success", &other, regular(60, "1")),
    ];
    let unnamed = vec![stored(
        "up",
        &[("job", "x"), ("instance", ":9115")],
        regular(60, "1"),
    )];
    let mut late = one_target(60);
    late.iter_mut()
        .flat_map(|one| &mut one.samples)
        .for_each(|(at, _)| *at += 600_000);
    for (series, parts) in [
        (
            Vec::new(),
            [
                "of any job from 1764000000 to 1764000060; there is none",
                "within the retention",
            ],
        ),
        (unknown, ["no mapping recognizes", "\"blackbox\" (1)"]),
        (
            unnamed,
            ["no target has a valid name of a node", "node_label"],
        ),
        (
            late,
            ["1 targets have no scrape then", "within the retention"],
        ),
    ] {
        let error = serve(series, never, "", 60)
            .result
            .expect_err("nothing")
            .to_string();
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}

#[test]
fn an_address_is_checked_and_its_password_is_never_shown() {
    for (url, expected) in [
        (
            "https://user:secret@p:9090",
            "this version reads http, not https",
        ),
        (
            "p:9090",
            "expected an address such as http://prometheus:9090",
        ),
        ("", "expected an address such as http://prometheus:9090"),
    ] {
        let error = Store::new(url, None, &[]).expect_err(url).to_string();
        assert!(
            error.contains(expected) && !error.contains("secret"),
            "{error}"
        );
    }
    let header = [String::from("no-colon secret")];
    let error = Store::new("http://p", None, &header)
        .expect_err("no header")
        .to_string();
    assert!(
        error.contains("expected NAME: VALUE") && !error.contains("secret"),
        "{error}"
    );
    for url in [
        "http://user:secret@127.0.0.1:1/prometheus/",
        "http://127.0.0.1:1/prometheus/api/v1?a=b",
    ] {
        let store = Store::new(url, Some("secret"), &[]).expect("valid");
        assert_eq!(store.name(), "http://127.0.0.1:1/prometheus");
        assert_eq!(
            format!("{store:?}"),
            "Store(\"http://127.0.0.1:1/prometheus\")"
        );
        let request = Request {
            store,
            span: (at(0), at(60_000)),
            jobs: Vec::new(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config::default();
        let read = read_back(&request, &config, folder.path(), |_| {});
        let error = runtime
            .expect("a runtime")
            .block_on(read)
            .expect_err("nothing listens there");
        let error = error.to_string();
        assert!(
            error.starts_with("http://127.0.0.1:1/prometheus: not reached: "),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn a_value_is_text() {
    for (text, expected) in [
        (r#""+Inf""#, f64::INFINITY),
        (r#""-Inf""#, f64::NEG_INFINITY),
        (r#""1e-7""#, 1e-7),
    ] {
        let value: client::Number = serde_json::from_str(text).expect(text);
        assert_eq!(value.0, expected, "{text}");
    }
    assert!(serde_json::from_value::<client::Number>(Value::Null).is_err());
}
