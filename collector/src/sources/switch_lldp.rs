//! Reads what switches print of their LLDP neighbors, from files or programs, each switch by itself.

use std::sync::Arc;
use std::time::Duration;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::SwitchName;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::config::SwitchSource;
use crate::fabric::Told;
use crate::fabric::lldp::text::parse_neighbors;
use crate::health::SourceStatus;
use crate::service::Event;
use crate::sources::subnet::{Look, Source};
use crate::status::State;

/// Programs that run at the same time: each is a login to a switch, mostly by ssh.
const MAX_PROGRAMS: usize = 8;

/// Follows all switches until the analysis is gone.
pub(crate) async fn follow(
    switches: Vec<SwitchSource>,
    events: mpsc::Sender<Event>,
    state: Arc<State>,
) {
    let programs = Arc::new(Semaphore::new(MAX_PROGRAMS));
    let mut tasks = JoinSet::new();
    for switch in switches {
        let Some(source) = switch.source else {
            continue; // a target: its exporter reports
        };
        let one = Follower {
            name: switch.name,
            steady: source.steady_interval(),
            source: Source::new(source.clone()),
            programs: Arc::clone(&programs),
            events: events.clone(),
            state: Arc::clone(&state),
        };
        tasks.spawn(one.follow(source.interval));
    }
    drop(events);
    while tasks.join_next().await.is_some() {}
    // Without a switch to follow there is nothing to do, and nothing wrong.
    std::future::pending::<()>().await;
}

struct Follower {
    name: SwitchName,
    source: Source,
    /// Read interval, if each read returns new data.
    steady: Option<Duration>,
    programs: Arc<Semaphore>,
    events: mpsc::Sender<Event>,
    state: Arc<State>,
}

impl Follower {
    async fn follow(mut self, period: Duration) {
        let key = ("switch", self.name.to_string());
        self.state.expect_source(&key, self.steady);
        let mut due = interval(period);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut problem: Option<String> = None;
        loop {
            due.tick().await;
            let Some((told, at)) = self.look().await else {
                continue;
            };
            let said = told.as_ref().err().cloned();
            if let Some(said) = said.as_ref().filter(|said| problem.as_ref() != Some(said)) {
                tracing::error!(switch = %self.name, "cannot read the neighbors: {said}");
            }
            problem = said;
            let switch = self.name.clone();
            let event = Event::Neighbors { switch, told, at };
            if self.events.send(event).await.is_err() {
                return;
            }
        }
    }

    /// The switch's report and its time; none if it is a file that has not changed.
    async fn look(&mut self) -> Option<(Result<Told, String>, Timestamp)> {
        let _one = self.programs.acquire().await.ok()?;
        let now = self.state.now();
        match self.source.look(now).await {
            Ok(None) => {
                self.note(SourceStatus::Ok, None, None);
                None
            }
            Ok(Some(Look::Text(text))) => {
                let told = parse_neighbors(&text.text);
                match &told {
                    Ok(_) => self.note(SourceStatus::Ok, Some(text.at), None),
                    Err(why) => self.note(SourceStatus::Failed, None, Some(why.clone())),
                }
                Some((told, text.at))
            }
            // The configuration of a switch names files and programs only.
            Ok(Some(Look::Swept(..))) => None,
            Err(error) => {
                let said = error.to_string();
                self.note(error.status(), None, Some(said.clone()));
                Some((Err(said), now))
            }
        }
    }

    fn note(&self, status: SourceStatus, at: Option<Timestamp>, problem: Option<String>) {
        let key = ("switch", self.name.to_string());
        self.state.record_source(&key, status, at, problem);
    }
}
