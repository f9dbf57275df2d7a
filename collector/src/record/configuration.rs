//! The configuration of a recording: what a replay needs of the collector's, and nothing that is secret.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use toml::{Table, Value};

use super::ring::{MARKER, Ring};
use super::writer::TARGETS;
use crate::config::{Config, SwitchSource};
use crate::diagnose::stages::maintenance::{SETTLE_SECONDS, Window};
use crate::replay::pack::CONFIG;

/// The configuration, and the files that it names.
#[derive(Debug)]
pub(super) struct Configuration {
    /// All but the maintenance windows.
    base: Table,
    /// Files that are copied, by their name in the recording.
    copies: Vec<(String, PathBuf)>,
    are_copied: bool,
    /// Every window that was valid at a time of the recording.
    windows: BTreeMap<String, Window>,
    is_written: bool,
}

impl Configuration {
    pub(super) fn of(config: &Config) -> Self {
        let mut copies = Vec::new();
        let mappings = config.mapping_files.iter().enumerate();
        let mappings = mappings.map(|(index, file)| {
            let name = format!("mapping.{}.toml", index + 1);
            copies.push((name.clone(), file.clone()));
            Value::Table(table([("file", Value::from(name))]))
        });
        let mappings: Vec<_> = mappings.collect();
        let millis = |period: std::time::Duration| Value::from(format!("{}ms", period.as_millis()));
        let bytes = i64::try_from(config.scrape.max_body_bytes).unwrap_or(i64::MAX);
        let scrape = [
            ("interval", millis(config.scrape.interval)),
            ("timeout", millis(config.scrape.timeout)),
            ("max_body_bytes", Value::from(bytes)),
        ];
        let analysis = [("interval", millis(config.analysis_interval))];
        let cluster = [("name", Value::from(config.cluster.clone()))];
        let switches: Vec<_> = config.switches.iter().map(switch).collect();
        let mut base = table([
            ("file_sd", Value::Array(vec![Value::from(TARGETS)])),
            ("cluster", Value::Table(table(cluster))),
            ("scrape", Value::Table(table(scrape))),
            ("analysis", Value::Table(table(analysis))),
            ("mapping", Value::Array(mappings)),
            ("switches", Value::Array(switches)),
        ]);
        if let Some(file) = &config.plan {
            let name = plan_name(file);
            let plan = table([("file", Value::from(name.clone()))]);
            base.insert(String::from("plan"), Value::Table(plan));
            copies.push((name, file.clone()));
        }
        if config.subnet.is_some() {
            let subnet = table([("file", Value::from("fab.ibnetdiscover"))]);
            base.insert(String::from("subnet"), Value::Table(subnet));
        }
        Self {
            base,
            copies,
            are_copied: false,
            windows: BTreeMap::new(),
            is_written: false,
        }
    }

    /// Adds the windows of an earlier recording in the same folder.
    pub(super) fn restore(&mut self, windows: Vec<Window>) {
        let windows = windows.into_iter();
        self.windows
            .extend(windows.map(|window| (window.id(), window)));
    }

    /// Notes the windows that are valid from now on. One that was removed ends now.
    pub(super) fn set_windows(&mut self, windows: &[Arc<Window>], now: Timestamp) {
        let new: BTreeMap<_, _> = windows
            .iter()
            .map(|window| (window.id(), Window::clone(window)))
            .collect();
        self.windows.retain(|id, window| {
            let is_removed = !new.contains_key(id) && window.until > now;
            if is_removed {
                window.until = now;
            }
            window.until > window.from
        });
        self.windows.extend(new);
        self.is_written = false;
    }

    /// Writes the file and copies those that it names, if that is due.
    pub(super) fn write(&mut self, ring: &mut Ring) -> io::Result<()> {
        if !self.are_copied {
            for (name, file) in &self.copies {
                ring.replace(name, &std::fs::read(file)?)?;
            }
            self.are_copied = true;
        }
        if self.is_written {
            return Ok(());
        }
        if let Some(oldest) = ring.oldest() {
            let is_used = |window: &Window| oldest.seconds_since(window.until) <= SETTLE_SECONDS;
            self.windows.retain(|_, window| is_used(window));
        }
        let mut all = self.base.clone();
        let windows = self.windows.values().map(window);
        all.insert(String::from("maintenance"), Value::Array(windows.collect()));
        let text = toml::to_string(&all).map_err(io::Error::other)?;
        ring.replace(CONFIG, format!("{MARKER}\n{text}").as_bytes())?;
        self.is_written = true;
        Ok(())
    }
}

fn table<const N: usize>(members: [(&str, Value); N]) -> Table {
    let members = members.into_iter();
    members
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Readers detect the format by the content; the extension is for people.
fn plan_name(file: &Path) -> String {
    let extension = file.extension().unwrap_or_default().to_string_lossy();
    match &*extension {
        "" => String::from("plan"),
        extension => format!("plan.{extension}"),
    }
}

fn switch(switch: &SwitchSource) -> Value {
    let (mut own, mut of_ports) = (Vec::new(), Table::new());
    for (address, port) in &switch.addresses {
        match port {
            None => own.push(Value::from(address.clone())),
            Some(port) => {
                of_ports.insert(port.to_string(), Value::from(address.clone()));
            }
        }
    }
    Value::Table(table([
        ("name", Value::from(switch.name.to_string())),
        ("addresses", Value::Array(own)),
        ("port_addresses", Value::Table(of_ports)),
    ]))
}

fn window(window: &Window) -> Value {
    let parts = window
        .parts
        .iter()
        .map(|part| Value::from(part.to_string()));
    Value::Table(table([
        ("parts", Value::Array(parts.collect())),
        ("from", Value::from(window.from.as_seconds())),
        ("until", Value::from(window.until.as_seconds())),
        ("why", Value::from(window.why.clone())),
    ]))
}
