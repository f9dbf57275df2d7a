//! The recording of a replay out of Prometheus, or another server with its query API.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use railscope_collector::config::Config;
use railscope_collector::replay::read_back::{ReadBack, Request, Store, read_back};
use railscope_model::fabric::Timestamp;

/// Names in a list of what was not read.
const SHOWN: usize = 5;

/// What to read instead of recordings.
#[derive(Debug, Args)]
pub(super) struct StoreArgs {
    /// Replays what Prometheus, VictoriaMetrics, Mimir or Thanos stored between --from and --to: the URL below which it has /api/v1.
    ///
    /// http://USER:PASSWORD@HOST logs in.
    #[arg(long, value_name = "URL", requires_all = ["from", "to"])]
    prometheus: Option<String>,
    /// Configuration of the collector: targets, mappings, plan and fabric. Without it, all targets whose exporters are recognized.
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    config: Option<PathBuf>,
    /// Reads the targets of this job only; may be repeated.
    #[arg(long, value_name = "JOB", requires = "prometheus")]
    job: Vec<String>,
    /// File with a bearer token on its first line.
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    token_file: Option<PathBuf>,
    /// Header of each request, such as `X-Scope-OrgID: team`; may be repeated. Other users of this host can see it.
    #[arg(long, value_name = "NAME: VALUE", requires = "prometheus")]
    header: Vec<String>,
    /// Keeps what was read as a recording in this folder, which must be empty.
    #[arg(long, value_name = "PACK", requires = "prometheus")]
    save: Option<PathBuf>,
}

/// A recording that was read back. Without --save it is removed when dropped.
#[derive(Debug)]
pub(super) struct Recording {
    folder: PathBuf,
    is_kept: bool,
}

impl Recording {
    /// Its folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.is_kept {
            // What is left in the folder for temporary files is no reason to fail.
            std::fs::remove_dir_all(&self.folder).ok();
        }
    }
}

impl StoreArgs {
    /// Whether a server is read instead of recordings.
    pub(super) fn is_given(&self) -> bool {
        self.prometheus.is_some()
    }

    /// Reads the time span back; none without a server.
    pub(super) fn read(
        &self,
        span: (Option<Timestamp>, Option<Timestamp>),
    ) -> anyhow::Result<Option<(Recording, String)>> {
        let (Some(url), (Some(from), Some(until))) = (&self.prometheus, span) else {
            return Ok(None);
        };
        ensure!(
            from < until,
            "--from {} is not before --to {}",
            from.as_seconds(),
            until.as_seconds()
        );
        let token = self.token_file.as_deref().map(token).transpose()?;
        let store = Store::new(url, token.as_deref(), &self.header)?;
        let config = self.config.as_deref().map(Config::load).transpose()?;
        let config = config.unwrap_or_default();
        let name = store.name();
        let request = Request {
            store,
            span: (from, until),
            jobs: self.job.clone(),
        };
        let mut recording = self.folder()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start")?;
        let read = read_back(&request, &config, &recording.folder, |at| {
            progress(request.span, at);
        });
        let read = runtime.block_on(read);
        progress(request.span, Timestamp(0));
        let read = read?;
        recording.is_kept = self.save.is_some();
        Ok(Some((recording, summary(&name, &read, &config))))
    }

    /// An empty folder. It is removed unless everything is read.
    fn folder(&self) -> anyhow::Result<Recording> {
        let folder = match &self.save {
            Some(folder) => folder.clone(),
            None => std::env::temp_dir().join(format!("railscope-replay-{}", std::process::id())),
        };
        let shown = folder.display();
        match folder.read_dir().map(|mut files| files.next().is_some()) {
            Ok(true) => bail!("{shown}: not empty: expected an empty folder, or none (--save)"),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&folder).with_context(|| format!("{shown}"))?;
            }
            Err(error) => return Err(error).with_context(|| format!("{shown}")),
        }
        Ok(Recording {
            folder,
            is_kept: false,
        })
    }
}

/// The first line of a file.
fn token(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    ensure!(
        !token.is_empty(),
        "{}: expected a token on the first line",
        file.display()
    );
    Ok(token.to_owned())
}

/// Shows on a terminal how far it is; a time of zero removes the line.
fn progress((from, until): (Timestamp, Timestamp), at: Timestamp) {
    let mut terminal = io::stderr().lock();
    if !terminal.is_terminal() {
        return;
    }
    let share = 100.0 * at.seconds_since(from) / until.seconds_since(from);
    let text = match at {
        Timestamp(0) => String::new(),
        _ => format!("reading back: {share:.0} %"),
    };
    let written = write!(terminal, "\r\u{1b}[K{text}");
    // A terminal that is gone is no reason to stop.
    written.and_then(|()| terminal.flush()).ok();
}

/// What was read, what was not, and what the server does not store.
fn summary(name: &str, read: &ReadBack, config: &Config) -> String {
    let mut text = format!(
        "{name}: {} targets, {} scrapes, {} failed, {} samples",
        read.targets, read.scrapes, read.failures, read.samples
    );
    if let Some(interval) = read.interval {
        write!(text, ", a scrape every {interval:.0} s").ok();
    }
    text.push('\n');
    let mut note = |line: String| {
        text += "  ";
        text += &line;
        text.push('\n');
    };
    if !read.unknown.is_empty() {
        let all: usize = read.unknown.values().sum();
        let jobs = read.unknown.iter();
        let jobs = jobs.map(|(job, count)| format!("{job} ({count})"));
        note(format!(
            "skipped: {all} targets that no mapping recognizes, or that --config does not name: job {}",
            listed(&jobs.collect::<Vec<_>>())
        ));
    }
    if !read.unnamed.is_empty() {
        note(format!(
            "skipped: {} targets without a valid name of a node or switch: {}",
            read.unnamed.len(),
            listed(&read.unnamed)
        ));
    }
    if !read.missing.is_empty() {
        note(format!(
            "{} targets of the configuration have no samples: {}",
            read.missing.len(),
            listed(&read.missing)
        ));
    }
    if read.has_replicas {
        note(String::from(
            "several servers stored the same scrapes: those of one are used",
        ));
    }
    if let Some(warning) = &read.warning {
        note(format!("the server warns: {warning}"));
    }
    if config.subnet.is_none() && config.plan.is_none() {
        note(String::from(
            "without a fabric (--config with subnet.file or plan): the store has none",
        ));
    }
    note(String::from(
        "not stored: why a scrape failed, staleness markers, metrics that metric_relabel_configs drop, other names that it gives (docs/recording.md)",
    ));
    text
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(SHOWN).map(String::as_str);
    let shown: Vec<_> = shown.collect();
    let more = match names.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!(" and {more} more"),
        _ => String::new(),
    };
    shown.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_read_is_in_the_summary() {
        let read = ReadBack {
            targets: 2,
            scrapes: 20,
            failures: 1,
            samples: 500,
            interval: Some(15.0),
            unknown: [(String::from("blackbox"), 7)].into(),
            missing: (0..7).map(|node| format!("n{node}:1")).collect(),
            ..ReadBack::default()
        };
        let text = summary("http://p:9090", &read, &Config::default());
        for part in [
            "http://p:9090: 2 targets, 20 scrapes, 1 failed, 500 samples, a scrape every 15 s\n",
            "7 targets that no mapping recognizes, or that --config does not name: job blackbox (7)\n",
            "7 targets of the configuration have no samples: n0:1, n1:1, n2:1, n3:1, n4:1 and 2 more\n",
            "without a fabric",
            "not stored: why a scrape failed",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("several servers"), "{text}");
    }
}
