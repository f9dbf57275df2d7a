//! The linear forwarding tables of the switches: the blocks that hold LIDs of adapters, read when the subnet has settled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::discover::{Discovery, Found};
use super::flight::{Failure, Job, Queue, Work};
use super::mad::{self, Attribute, Bytes, Destination, SwitchInfo};
use crate::fabric::subnet::forwarding::{NO_PORT, Table, Tables, place};
use crate::fabric::subnet::{NodeKind, Subnet};

/// Time after which all tables are read again: a subnet manager may route again without any change
/// of the shape (a choice).
const REREAD: Duration = Duration::from_secs(300);

/// The tables of earlier sweeps, for as long as the subnet has the same shape.
#[derive(Default)]
pub(super) struct KnownTables {
    shape: Option<u64>,
    begun: Option<Instant>,
    tables: Arc<Tables>,
}

impl KnownTables {
    /// Notes the shape of a sweep, and reports whether tables may be read in it. Not in the one
    /// that sees a change: the subnet manager may not have routed around it yet.
    pub(super) fn may_read(&mut self, subnet: &Subnet, now: Instant) -> bool {
        let shape = subnet.shape();
        let changed = self.shape.replace(shape).is_some_and(|old| old != shape);
        let begun = self
            .begun
            .filter(|begun| now.duration_since(*begun) < REREAD);
        if changed || begun.is_none() {
            self.tables = Arc::default();
        }
        self.begun = if changed { None } else { begun.or(Some(now)) };
        !changed
    }

    /// The tables, and how long ago the oldest was read; none if there are none.
    pub(super) fn current(&self, now: Instant) -> Option<(Arc<Tables>, Duration)> {
        let begun = self.begun.filter(|_| !self.tables.is_empty())?;
        Some((Arc::clone(&self.tables), now.duration_since(begun)))
    }
}

/// The table of one switch while it is read.
#[derive(Debug, Default)]
struct Draft {
    top: u16,
    table: Table,
    /// Blocks that were requested and have not arrived; none before the switch has reported how many it
    /// has.
    open: Option<usize>,
    failed: bool,
}

/// The reading of all tables that are not known.
pub(super) struct Reading<'a> {
    discovery: &'a Discovery,
    /// Blocks that hold LIDs of adapters.
    blocks: BTreeSet<u16>,
    drafts: Vec<Draft>,
}

impl<'a> Reading<'a> {
    /// Requests the table size of every switch without a table.
    pub(super) fn begin(discovery: &'a Discovery, known: &KnownTables, queue: &mut Queue) -> Self {
        let nodes = &discovery.nodes;
        for (node, found) in (0..).zip(nodes) {
            let is_known = known.tables.contains_key(&found.info.guid);
            if found.info.kind == NodeKind::Switch && !is_known {
                queue.push(Job::new(node, node, 0, Attribute::SwitchInfo));
            }
        }
        let lids = nodes.iter().flat_map(Found::lids);
        Self {
            discovery,
            blocks: lids.map(|(_, lid)| place(lid).0).collect(),
            drafts: nodes.iter().map(|_| Draft::default()).collect(),
        }
    }

    /// Adds what was read. A switch with an open request is tried again in the next sweep.
    pub(super) fn end(self, known: &mut KnownTables) {
        let drafts = self.discovery.nodes.iter().zip(self.drafts);
        let whole = drafts.filter(|(_, draft)| draft.open == Some(0) && !draft.failed);
        let whole = whole.map(|(found, draft)| (found.info.guid, draft.table));
        let mut whole = whole.peekable();
        if whole.peek().is_some() {
            Arc::make_mut(&mut known.tables).extend(whole);
        }
    }

    fn ask_blocks(&mut self, node: u32, info: SwitchInfo, queue: &mut Queue) {
        let draft = &mut self.drafts[node as usize];
        // Of a change that the subnet manager has not seen, its tables know nothing.
        draft.failed |= info.linear_cap == 0 || info.port_state_change;
        if draft.failed {
            return;
        }
        draft.top = info.linear_top;
        let in_use = self.blocks.range(..=place(info.linear_top).0);
        let jobs = in_use.map(|block| Attribute::LinearForwarding(*block));
        let jobs = jobs.map(|attribute| Job::new(node, node, 0, attribute));
        let mut asked = 0;
        for job in jobs {
            queue.push(job);
            asked += 1;
        }
        draft.open = Some(asked);
    }

    fn note(&mut self, node: u32, block: u16, mad: &Bytes) {
        let draft = &mut self.drafts[node as usize];
        let mut ports = mad::linear_forwarding(mad);
        let (last_block, last) = place(draft.top);
        if block == last_block {
            // What stands above the highest LID in use is not in use.
            ports[last + 1..].fill(NO_PORT);
        }
        draft.table.set_block(block, ports);
        draft.open = draft.open.map(|open| open.saturating_sub(1));
    }
}

impl Work for Reading<'_> {
    fn destination(&self, job: &Job) -> Option<Destination> {
        let draft = self.drafts.get(job.node as usize)?;
        let found = self.discovery.nodes.get(job.node as usize)?;
        (!draft.failed).then_some(Destination::Directed(found.path))
    }

    fn answered(&mut self, job: &Job, mad: &Bytes, queue: &mut Queue) {
        match job.attribute {
            Attribute::SwitchInfo => self.ask_blocks(job.node, SwitchInfo::read(mad), queue),
            Attribute::LinearForwarding(block) => self.note(job.node, block, mad),
            _ => {}
        }
    }

    fn failed(&mut self, job: &Job, _: Failure, _: &mut Queue) {
        if let Some(draft) = self.drafts.get_mut(job.node as usize) {
            draft.failed = true;
        }
    }
}
