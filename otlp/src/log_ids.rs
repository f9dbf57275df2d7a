//! Adds the ids of the trace and span to log lines, so that a log line leads to its trace.

use std::fmt;

use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt as _;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// A format of log lines that writes `trace_id=... span_id=...` in front of lines within an exported span.
///
/// Without [`Otlp::trace_layer`](crate::Otlp::trace_layer) in the subscriber, lines are those of the inner format.
#[derive(Debug, Clone, Default)]
pub struct WithTraceIds<F>(pub F);

impl<S, N, F> FormatEvent<S, N> for WithTraceIds<F>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        // The layer activates the context of a span while the span is entered.
        let ids = Context::map_current(|current| {
            let span = current.span().span_context().clone();
            span.is_valid().then(|| (span.trace_id(), span.span_id()))
        });
        if let Some((trace, span)) = ids {
            write!(writer, "trace_id={trace} span_id={span} ")?;
        }
        self.0.format_event(context, writer, event)
    }
}
