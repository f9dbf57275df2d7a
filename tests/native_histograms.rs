//! A real Prometheus with native histograms scrapes a real exporter: quantiles are those of what was measured, and all other
//! series are those of the text format.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use railscope_exporter::sampler::{Presence, SAMPLERS, SampleError, Sampler};
use railscope_exporter::{Exporter, Limits, Machine, serve};
use railscope_model::exposition::{Format, Line, parse};
use railscope_model::metric::{
    HOST_TIMER_DELAY, HistogramPart, Metric, PROBE_PATH_LOST, PROBE_PATH_RTT, PROBE_RESPONDER,
    Profile,
};
use railscope_model::path_class::PathClass;
use railscope_model::reading::{Histogram, Labels, Latencies, NodeReading};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::support::site::tool;
use crate::support::{Http, Process, encoded, free_port, need, wait_for};

const LIMIT: Duration = Duration::from_secs(60);
/// By how much a quantile of a native histogram may differ from what was measured.
const ERROR: f64 = 0.045;

/// Known round trips: 20 us, and one in 50 takes 1.3 ms.
struct Known;

impl Sampler for Known {
    fn name(&self) -> &'static str {
        "prober"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let mut round_trips = Latencies::default();
        for probe in 0..1_000 {
            let nanos = if probe % 50 == 0 { 1_300_000 } else { 20_000 };
            round_trips.note(nanos);
        }
        for class in [PathClass::SameLeaf, PathClass::SameRail] {
            let labels = Labels::new([class.name(), "udp"]);
            let histogram = round_trips.histogram().expect("few");
            reading.push(&PROBE_PATH_RTT, &labels, histogram);
            reading.push(&PROBE_PATH_LOST, &labels, 7_u32);
        }
        let classic = Histogram::new(&[20e-6, 0.5], vec![3, 4, 5], 6.25).expect("a histogram");
        reading.push(&PROBE_RESPONDER, &Labels::new(["mlx5_0", "udp"]), classic);
        Ok(Presence::Present)
    }
}

/// An exporter of this machine's timers and of [`Known`], and its address.
fn exporter(runtime: &Runtime, folder: &std::path::Path) -> (Arc<Exporter>, String) {
    let mut machine = Machine::below(folder);
    (machine.sysfs, machine.jitter_probe) = ("/sys".into(), true);
    let samplers = SAMPLERS.iter().map(|build| build(&machine));
    let samplers = samplers.filter(|sampler| sampler.name() == "jitter");
    let samplers = samplers.chain([Box::new(Known) as Box<dyn Sampler>]);
    let exporter = Exporter::start_samplers(samplers.collect(), Limits::default(), None);
    let exporter = Arc::new(exporter.expect("threads start"));
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let serving = Arc::clone(&exporter);
    runtime.spawn(serve(serving, listener, std::future::pending()));
    (exporter, address)
}

/// A Prometheus that scrapes the full profile of one exporter each second, and its URL.
fn prometheus(folder: &std::path::Path, target: &str) -> (Process, String) {
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - job_name: node\n    params: {{profile: [full]}}\n    \
         static_configs: [{{targets: [{target:?}]}}]\n"
    );
    std::fs::write(folder.join("prometheus.yml"), config).expect("a configuration");
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = tool("prometheus");
    command
        .arg("--config.file=prometheus.yml")
        .arg("--enable-feature=native-histograms")
        .arg("--storage.tsdb.path=data")
        .arg(format!("--web.listen-address={address}"));
    let process = Process::start("prometheus", folder, command.stdin(Stdio::null()));
    (process, format!("http://{address}"))
}

/// The samples of an instant query.
fn query(http: &Http, url: &str, expression: &str) -> Result<Vec<Value>, String> {
    let answer = http.json(&format!("{url}/api/v1/query?query={}", encoded(expression)))?;
    let samples = answer.pointer("/data/result").and_then(Value::as_array);
    let samples = samples.ok_or_else(|| format!("{expression}: {answer}"))?;
    if samples.is_empty() {
        return Err(format!("{expression}: nothing"));
    }
    Ok(samples.clone())
}

/// The value of each sample of an instant query.
fn values(http: &Http, url: &str, expression: &str) -> Vec<f64> {
    let samples = query(http, url, expression).expect("an answer");
    let value = |sample: &Value| sample["value"][1].as_str()?.parse().ok();
    let values = samples.iter().map(|sample| value(sample).expect("a value"));
    values.collect()
}

/// Name and labels of a series without those of its target, each bound in one spelling, and its value.
type Series = BTreeMap<BTreeMap<String, String>, f64>;

fn stored(http: &Http, url: &str) -> Result<Series, String> {
    let samples = query(http, url, "{job=\"node\", __name__=~\"railscope_.*\"}")?;
    let plain = samples.iter().filter_map(|sample| {
        let value = sample["value"][1].as_str()?.parse().expect("a number");
        let labels = sample["metric"].as_object().expect("labels").iter();
        let own = labels.filter(|(name, _)| !["job", "instance"].contains(&name.as_str()));
        let own = own.map(|(name, value)| one_spelling(name, value.as_str().expect("text")));
        Some((own.collect(), value))
    });
    Ok(plain.collect())
}

fn one_spelling(name: &str, value: &str) -> (String, String) {
    let value = match (name, value.parse::<f64>()) {
        ("le", Ok(bound)) => bound.to_string(),
        _ => value.to_owned(),
    };
    (name.to_owned(), value)
}

/// What the text format has and Prometheus 2.42 keeps: of a native histogram, no classic series.
fn in_text(exporter: &Exporter) -> Series {
    let page = exporter.page().body(Profile::Full, Format::Text, false);
    let text = std::str::from_utf8(&page).expect("text");
    let kept = parse(text).filter_map(|line| match line.expect("a line of ours") {
        Line::Series(series) => Some(series),
        Line::Type(..) | Line::End => None,
    });
    let native = [&PROBE_PATH_RTT, &HOST_TIMER_DELAY];
    let is_native =
        |name| Metric::of_part(name).is_some_and(|(metric, _)| native.contains(&metric));
    let kept = kept.filter(|series| !is_native(series.name)).map(|series| {
        let labels = series.labels().filter(|(_, value)| !value.is_empty());
        let labels = labels.map(|(name, value)| one_spelling(name, &value));
        let name = ("__name__".to_owned(), series.name.to_owned());
        (labels.chain([name]).collect(), series.value)
    });
    kept.collect()
}

#[test]
fn prometheus_takes_native_histograms_and_everything_else_as_in_text() {
    need!("prometheus");
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = Runtime::new().expect("a runtime");
    let (exporter, address) = exporter(&runtime, folder.path());
    let (prometheus, url) = prometheus(folder.path(), &address);
    let http = Http::new();
    // What a source has read last may be in the next exposition only.
    wait_for("all series", LIMIT, || {
        let timers = format!("histogram_count({}) > 0", HOST_TIMER_DELAY.name);
        query(&http, &url, &timers).map_err(|why| why + &prometheus.tail())?;
        let (stored, expected) = (stored(&http, &url)?, in_text(&exporter));
        let is_same = stored.keys().eq(expected.keys());
        is_same
            .then_some(())
            .ok_or_else(|| format!("{stored:#?}\n{expected:#?}"))
    });

    let rtt = PROBE_PATH_RTT.name;
    for (q, seconds) in [("0.5", 20e-6), ("0.99", 1.3e-3)] {
        let found = values(&http, &url, &format!("histogram_quantile({q}, {rtt})"));
        let is_near = |found: &f64| (found / seconds - 1.0).abs() <= ERROR;
        assert!(
            found.len() == 2 && found.iter().all(is_near),
            "{q}: {found:?}"
        );
    }
    let merged = format!("histogram_quantile(0.99, sum({rtt}))");
    assert_eq!(values(&http, &url, &merged).len(), 1);
    assert_eq!(
        values(&http, &url, &format!("histogram_count({rtt})")),
        [1e3; 2]
    );
    let sums = values(&http, &url, &format!("histogram_sum({rtt})"));
    assert!(
        sums.iter().all(|sum| (sum - 0.045_6).abs() < 1e-9),
        "{sums:?}"
    );

    let (stored, in_text) = (stored(&http, &url).expect("series"), in_text(&exporter));
    let fixed = [PROBE_PATH_LOST.name.to_owned()].into_iter();
    let parts =
        HistogramPart::SUFFIXES.map(|(suffix, _)| format!("{}{suffix}", PROBE_RESPONDER.name));
    for name in fixed.chain(parts) {
        let of = |all: &Series| {
            let of_name = |(key, _): &(&BTreeMap<_, _>, &f64)| key["__name__"] == name;
            all.iter()
                .filter(of_name)
                .map(|(_, value)| *value)
                .collect::<Vec<_>>()
        };
        assert!(
            !of(&stored).is_empty() && of(&stored) == of(&in_text),
            "{name}"
        );
    }
    println!("{} series as in text", stored.len());
}
