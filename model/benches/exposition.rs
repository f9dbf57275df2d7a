//! Throughput of writing and parsing a full exposition of an 8-GPU, 8-NIC node, in bytes per second.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use railscope_model::exposition::{Format, Line, MediaType, Page, gzip, parse};
use railscope_model::metric::{CATALOGUE, Profile, Writer};
use railscope_model::reading::{Labels, NodeReading};

/// About 2,500 series: 12 of every metric that the exporter writes, with labels as long as real ones.
fn reading() -> NodeReading {
    let mut reading = NodeReading::default();
    for metric in CATALOGUE
        .iter()
        .filter(|metric| metric.writer == Writer::Exporter)
    {
        for series in 0..12u64 {
            let labels = Labels::new(
                metric
                    .labels
                    .iter()
                    .map(|label| format!("{label}_{series}")),
            );
            reading.push_full(metric, &labels, series * 1_234_567_891);
        }
    }
    reading.normalize();
    reading
}

fn exposition(c: &mut Criterion) {
    let page = Page::new(Arc::new(reading()));
    let text = page.write(Format::Text, Profile::Full);
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    let mut group = c.benchmark_group(format!("exposition of {series} series"));
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("write text", |b| {
        b.iter(|| page.write(Format::Text, Profile::Full));
    });
    group.bench_function("write OpenMetrics", |b| {
        b.iter(|| page.write(Format::OpenMetrics, Profile::Full));
    });
    group.bench_function("write protobuf", |b| {
        b.iter(|| page.encode(MediaType::Protobuf, Profile::Full));
    });
    group.bench_function("gzip", |b| b.iter(|| gzip(text.as_bytes())));
    group.bench_function("parse", |b| {
        b.iter(|| {
            let values = parse(black_box(&text)).filter_map(|line| match line {
                Ok(Line::Series(series)) => Some(series.value),
                _ => None,
            });
            values.sum::<f64>()
        });
    });
    group.bench_function("parse with every label", |b| {
        b.iter(|| {
            let labels = parse(black_box(&text)).filter_map(|line| match line {
                Ok(Line::Series(series)) => {
                    Some(series.labels().map(|(_, value)| value.len()).sum::<usize>())
                }
                _ => None,
            });
            labels.sum::<usize>()
        });
    });
}

criterion_group!(benches, exposition);
criterion_main!(benches);
