//! Scenario files: a fabric, its jobs, what breaks on it, and what must be reported about that.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use railscope_simulator::examples;
use railscope_simulator::faults::site::Site;
use railscope_simulator::faults::{Effect, Fault};
use railscope_simulator::show::readings::Probing;
use railscope_simulator::spec::ClusterSpec;
use railscope_simulator::work::placement::JobRequest;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use toml::Spanned;

use super::delivery::Delivery;

/// `cause` of a draw that makes one run for each cause that the simulator has and the fabric can have.
pub(super) const EACH: &str = "each";
/// Longest tick: a node that is not seen for longer reports nothing about now.
const LONGEST_TICK_SECONDS: f64 = 60.0;

/// A scenario as it is in its file:
///
/// ```toml
/// about = "Each kind of fault on a rail-optimized fabric."
/// duration = "10m"
/// expect = "alarm"
/// fabric_file = "../fabrics/rail-optimized-3tier.toml"   # or the description itself in [fabric]
///
/// [[draws]]
/// cause = "each"
/// onset_seconds = [60, 180]
/// ```
///
/// Faults without an end have one in half of the runs, see [`super::ends`], unless `ends = false`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    about: String,
    duration: Spanned<Seconds>,
    #[serde(default = "ten_seconds")]
    tick: Spanned<Seconds>,
    #[serde(default = "a_minute")]
    subnet: Spanned<Seconds>,
    expect: Expect,
    fabric: Option<ClusterSpec>,
    fabric_file: Option<Spanned<PathBuf>>,
    #[serde(default)]
    jobs: Vec<JobRequest>,
    #[serde(default)]
    faults: Vec<Fault>,
    #[serde(default)]
    draws: Vec<Spanned<Draw>>,
    #[serde(default = "all_in_time")]
    delivery: Spanned<Delivery>,
    #[serde(default)]
    site: Site,
    probes: Option<Probing>,
    #[serde(default = "yes")]
    switch_counters: bool,
    #[serde(default = "yes")]
    ends: bool,
}

const fn yes() -> bool {
    true
}

/// A time with a unit: `10s`, `1440m`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seconds(f64);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = crate::duration::parse(&text).map_err(D::Error::custom)?;
        Ok(Self(time.as_secs_f64()))
    }
}

fn ten_seconds() -> Spanned<Seconds> {
    Spanned::new(0..0, Seconds(10.0))
}

/// How often production runs `ibnetdiscover` (packaging/collector.toml).
fn a_minute() -> Spanned<Seconds> {
    Spanned::new(0..0, Seconds(60.0))
}

fn all_in_time() -> Spanned<Delivery> {
    Spanned::new(0..0, Delivery::default())
}

/// What must be reported about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Expect {
    /// An operator is paged.
    Page,
    /// An operator is notified, by a page or a ticket.
    Alarm,
    /// No operator is paged.
    NoPage,
}

/// Faults that each seed draws.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Draw {
    /// A cause of [`examples::CAUSES`], or [`EACH`].
    pub(super) cause: String,
    /// Values of [`EACH`], in place of the typical fault of every cause: one run for each, at parts that the seed picks.
    #[serde(default)]
    pub(super) effects: Vec<Effect>,
    /// Causes that [`EACH`] omits.
    #[serde(default)]
    pub(super) except: Vec<String>,
    /// How many of it, at parts that differ.
    #[serde(default = "one")]
    pub(super) count: u32,
    /// Earliest and latest onset, seconds after the start.
    pub(super) onset_seconds: [f64; 2],
    /// How long each lasts; to the end of the run without it.
    #[serde(default)]
    pub(super) lasts_seconds: Option<f64>,
}

const fn one() -> u32 {
    1
}

/// A scenario that has been checked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scenario {
    /// Name of its file, without folder and ending.
    pub(super) name: String,
    /// One sentence about it.
    pub(super) about: String,
    /// The fabric.
    pub(super) fabric: ClusterSpec,
    /// Jobs; if there are none, one on all nodes.
    pub(super) jobs: Vec<JobRequest>,
    /// Faults that are the same with every seed.
    pub(super) faults: Vec<Fault>,
    /// Faults that the seed draws.
    pub(super) draws: Vec<Draw>,
    /// Simulated time.
    pub(super) duration_seconds: f64,
    /// Time between two scrapes, after each of which the collector evaluates.
    pub(super) tick_seconds: f64,
    /// Time between two sweeps of the subnet.
    pub(super) subnet_seconds: f64,
    /// What the site does that is no fault.
    pub(super) site: Site,
    /// How scrapes arrive.
    pub(super) delivery: Delivery,
    /// Probes that exporters send, if they do.
    pub(super) probes: Option<Probing>,
    /// Whether anybody reads the counters of switches.
    pub(super) switch_counters: bool,
    /// Whether faults without an end have one in half of the runs.
    pub(super) ends: bool,
    /// What must be reported.
    pub(super) expect: Expect,
}

impl Scenario {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// What is wrong with it, with file, line and field.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&text, path, &name)
    }

    /// Scrapes that a run ingests: its relative duration.
    pub(super) fn work(&self) -> u64 {
        (self.duration_seconds / self.tick_seconds) as u64 * u64::from(self.fabric.nodes)
    }

    fn parse(text: &str, path: &Path, name: &str) -> anyhow::Result<Self> {
        let file: File = toml::from_str(text).map_err(|error| from_toml(text, path, &error))?;
        let check = Check { text, path };
        file.check(&check)?;
        let fabric = file.fabric(&check)?;
        Ok(Self {
            name: name.to_owned(),
            about: file.about,
            fabric,
            jobs: file.jobs,
            faults: file.faults,
            draws: file.draws.into_iter().map(Spanned::into_inner).collect(),
            duration_seconds: file.duration.get_ref().0,
            tick_seconds: file.tick.get_ref().0,
            subnet_seconds: file.subnet.get_ref().0,
            delivery: *file.delivery.get_ref(),
            site: file.site,
            probes: file.probes,
            switch_counters: file.switch_counters,
            ends: file.ends,
            expect: file.expect,
        })
    }
}

impl File {
    fn check(&self, check: &Check<'_>) -> anyhow::Result<()> {
        let duration = self.duration.get_ref().0;
        check.that(&self.duration, "duration", duration > 0.0, || {
            "found no time, expected some".into()
        })?;
        let tick = self.tick.get_ref().0;
        let sound = tick >= 1.0 && tick <= duration.min(LONGEST_TICK_SECONDS);
        check.that(&self.tick, "tick", sound, || {
            format!(
                "found {tick} s, expected 1 to {LONGEST_TICK_SECONDS} s and no more than duration"
            )
        })?;
        let subnet = self.subnet.get_ref().0;
        check.that(&self.subnet, "subnet", subnet >= 1.0, || {
            format!("found {subnet} s, expected at least 1 s")
        })?;
        if let Some((field, problem)) = self.delivery.get_ref().problem() {
            check.that(&self.delivery, field, false, || problem)?;
        }
        for draw in &self.draws {
            check.draw(draw, duration)?;
        }
        let of_each = |draw: &&Spanned<Draw>| draw.get_ref().cause == EACH;
        if let Some(second) = self.draws.iter().filter(of_each).nth(1) {
            let problem = || format!("found a second draw of {EACH:?}, expected at most one");
            check.that(second, "draws.cause", false, problem)?;
        }
        Ok(())
    }

    fn fabric(&self, check: &Check<'_>) -> anyhow::Result<ClusterSpec> {
        match (&self.fabric, &self.fabric_file) {
            (Some(fabric), None) => Ok(fabric.clone()),
            (None, Some(file)) => {
                let beside = check.path.parent().unwrap_or(Path::new("."));
                let path = beside.join(file.get_ref());
                let text = std::fs::read_to_string(&path).with_context(|| {
                    format!("{}: fabric_file: {}", check.place(file), path.display())
                })?;
                toml::from_str(&text).map_err(|error| from_toml(&text, &path, &error))
            }
            _ => bail!(
                "{}:1: expected either [fabric] or fabric_file",
                check.path.display()
            ),
        }
    }
}

/// Where a problem is known to be.
struct Check<'a> {
    text: &'a str,
    path: &'a Path,
}

impl Check<'_> {
    fn place<T>(&self, at: &Spanned<T>) -> String {
        place(self.text, self.path, at.span().start)
    }

    fn that<T>(
        &self,
        at: &Spanned<T>,
        field: &str,
        sound: bool,
        problem: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        if sound {
            return Ok(());
        }
        bail!("{}: {field}: {}", self.place(at), problem())
    }

    fn draw(&self, at: &Spanned<Draw>, duration: f64) -> anyhow::Result<()> {
        let draw = at.get_ref();
        let causes = std::iter::once(&draw.cause)
            .filter(|cause| *cause != EACH)
            .chain(&draw.except);
        for cause in causes {
            let known = examples::CAUSES.contains(&cause.as_str());
            self.that(at, "draws.cause", known, || {
                let known = examples::CAUSES.join(", ");
                format!("found {cause:?}, expected {EACH} or one of {known}")
            })?;
        }
        let sound = draw.effects.is_empty() || draw.cause == EACH;
        self.that(at, "draws.effects", sound, || {
            format!(
                "found some for {:?}, expected cause = {EACH:?} beside them",
                draw.cause
            )
        })?;
        self.that(at, "draws.count", draw.count > 0, || {
            "found 0, expected at least 1".into()
        })?;
        let [first, last] = draw.onset_seconds;
        let sound = 0.0 <= first && first <= last && last < duration;
        self.that(at, "draws.onset_seconds", sound, || {
            format!("found {first} to {last}, expected two times in order, from 0 to less than {duration}")
        })?;
        let lasts = draw.lasts_seconds.unwrap_or(1.0);
        self.that(at, "draws.lasts_seconds", lasts > 0.0, || {
            format!("found {lasts}, expected more than 0")
        })
    }
}

/// `file:line` of a place in a text.
fn place(text: &str, path: &Path, offset: usize) -> String {
    let before = text.get(..offset).unwrap_or_default();
    format!("{}:{}", path.display(), before.matches('\n').count() + 1)
}

/// TOML's own error with the line that it is about, which names the field.
fn from_toml(text: &str, path: &Path, error: &toml::de::Error) -> anyhow::Error {
    let offset = error.span().map_or(0, |span| span.start);
    let line = text
        .get(..offset)
        .map_or(0, |before| before.matches('\n').count());
    let line = text.lines().nth(line).unwrap_or_default().trim();
    anyhow::anyhow!(
        "{}: {}, in `{line}`",
        place(text, path, offset),
        error.message()
    )
}

/// All scenarios of the paths, each a file or a folder of `.toml` files, by name.
///
/// # Errors
/// One cannot be read, two have one name, or there is none.
pub(super) fn read_all(paths: &[PathBuf]) -> anyhow::Result<Vec<Scenario>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
        for entry in entries {
            let file = entry.with_context(|| path.display().to_string())?.path();
            if file.extension().is_some_and(|ending| ending == "toml") {
                files.push(file);
            }
        }
    }
    let scenarios: anyhow::Result<Vec<_>> = files.iter().map(|file| Scenario::read(file)).collect();
    let mut scenarios = scenarios?;
    scenarios.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some([twin, _]) = scenarios.windows(2).find(|two| two[0].name == two[1].name) {
        bail!(
            "two scenarios are named {:?}: results go by name",
            twin.name
        );
    }
    if scenarios.is_empty() {
        bail!("no scenario: expected .toml files in {paths:?}");
    }
    Ok(scenarios)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "about = 'a'\nduration = '10m'\nexpect = 'alarm'\n[fabric]\nnodes = 4\nwiring = { kind = 'fat-tree' }\n[[draws]]\ncause = 'each'\nonset_seconds = [60, 90]\n";

    fn parse(text: &str) -> anyhow::Result<Scenario> {
        Scenario::parse(text, Path::new("s.toml"), "s")
    }

    #[test]
    fn a_scenario_says_how_long_it_is_and_how_fine() {
        let scenario = parse(GOOD).expect("good");
        assert_eq!(
            (scenario.duration_seconds, scenario.tick_seconds),
            (600.0, 10.0)
        );
    }

    #[test]
    fn a_bad_scenario_says_file_line_field_and_what_was_expected() {
        for (from, to, said) in [
            (
                "'10m'",
                "'10h'",
                "s.toml:2: \"10h\" is not a time such as 5s, 1500ms or 2m, in `duration = '10h'`",
            ),
            ("expect", "expct", "s.toml:3: unknown field `expct`"),
            (
                "'each'",
                "'cosmic-ray'",
                "s.toml:7: draws.cause: found \"cosmic-ray\", expected each or one of",
            ),
            (
                "[60, 90]",
                "[60, 600]",
                "s.toml:7: draws.onset_seconds: found 60 to 600",
            ),
            (
                "'each'",
                "'gpu-slow'\neffects = [{ cause = 'gpu-slow', speed_ratio = 0.9 }]",
                "s.toml:7: draws.effects: found some for \"gpu-slow\", expected cause",
            ),
            ("nodes = 4", "nodes = 'x'", "s.toml:5: invalid type"),
            (
                "'alarm'",
                "'alarm'\ntick = '2m'",
                "s.toml:4: tick: found 120 s, expected 1 to 60 s",
            ),
            (
                "[fabric]",
                "[delivery]\nlate = 1.0\n[fabric]",
                "s.toml:4: delivery.late: found 1",
            ),
            (
                "'alarm'",
                "'alarm'\nfabric_file = 'x'",
                "s.toml:1: expected either [fabric] or fabric_file",
            ),
        ] {
            let error = parse(&GOOD.replace(from, to)).expect_err(said);
            let error = format!("{error:#}");
            assert!(error.starts_with(said), "{error}\n{said}");
        }
    }
}
