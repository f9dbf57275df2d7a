//! What identifies the series of a column. Nodes of one kind have the same, so that it is kept once for all of them.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use foldhash::fast::FixedState;
use railscope_model::reading::Labels;

/// Sets of keys that are shared: about a hundred for each kind of node.
const MOST_SETS: usize = 8_192;

/// What identifies one series of a column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) labels: Labels,
    /// Hash of its line up to the value; 0 if it came otherwise.
    pub(super) line: u64,
}

/// Keys below this number are compared one by one.
const FEW: usize = 16;

/// Keys in the order of their rows.
#[derive(Debug, Clone, Default)]
struct Set {
    keys: Vec<Key>,
    /// Rows in the order of their labels, once one of many is looked for: sorted instead of hashed, so that no choice of labels
    /// makes it slow.
    by_labels: OnceLock<Box<[u32]>>,
}

impl Set {
    fn find(&self, labels: &[&str]) -> Option<usize> {
        let labels = || labels.iter().copied();
        if self.keys.len() < FEW {
            let mut keys = self.keys.iter();
            return keys.position(|key| key.labels.values().eq(labels()));
        }
        let labels_of = |row: u32| &self.keys[row as usize].labels;
        let by_labels = self.by_labels.get_or_init(|| {
            let mut rows: Box<[u32]> = (0..).take(self.keys.len()).collect();
            rows.sort_by_key(|row| labels_of(*row));
            rows
        });
        let place = by_labels.binary_search_by(|row| labels_of(*row).values().cmp(labels()));
        Some(by_labels[place.ok()?] as usize)
    }
}

/// The keys of a column's rows, in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    set: Arc<Set>,
    /// Whether they changed since they were last shared.
    are_new: bool,
}

impl Keys {
    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<&Key> {
        self.set.keys.get(row)
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Key> {
        self.set.keys.iter()
    }

    /// The row of these labels.
    pub(super) fn find(&self, labels: &[&str]) -> Option<usize> {
        self.set.find(labels)
    }

    /// The keys for a change. Those of other nodes stay as they are.
    pub(super) fn to_mut(&mut self) -> &mut Vec<Key> {
        self.are_new = true;
        let set = Arc::make_mut(&mut self.set);
        set.by_labels.take();
        &mut set.keys
    }

    /// Whether they changed since they were last shared.
    #[inline]
    pub(super) const fn are_new(&self) -> bool {
        self.are_new
    }

    /// Marks them as known, and releases spare room if no other node has them.
    pub(super) fn keep(&mut self) {
        if let Some(set) = Arc::get_mut(&mut self.set) {
            set.keys.shrink_to_fit();
        }
        self.are_new = false;
    }
}

/// The keys that columns of several nodes have alike.
#[derive(Debug, Clone, Default)]
pub(in crate::store) struct SharedKeys(Arc<Mutex<Sets>>);

type Sets = HashMap<u64, Arc<Set>, FixedState>;

impl SharedKeys {
    /// Replaces the keys of a column by equal ones of another node, or keeps them for others.
    pub(super) fn share(&self, own: &mut Keys) {
        own.keep();
        let hash = FixedState::default().hash_one(&own.set.keys);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(equal) = known.get(&hash).filter(|other| other.keys == own.set.keys) {
            own.set = Arc::clone(equal);
            return;
        }
        if known.len() >= MOST_SETS {
            // Those that no two nodes have alike.
            known.retain(|_, set| Arc::strong_count(set) > 2);
        }
        if known.len() < MOST_SETS {
            known.insert(hash, Arc::clone(&own.set));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(labels: &[&str]) -> Keys {
        let mut keys = Keys::default();
        keys.to_mut().extend(labels.iter().map(|label| Key {
            labels: Labels::new([*label]),
            line: 0,
        }));
        keys
    }

    #[test]
    fn equal_keys_are_kept_once_until_one_node_changes_its_own() {
        let shared = SharedKeys::default();
        let [mut one, mut two] = [keys(&["0", "1"]), keys(&["0", "1"])];
        shared.share(&mut one);
        shared.share(&mut two);
        assert!(Arc::ptr_eq(&one.set, &two.set));
        two.to_mut().truncate(1);
        assert!(two.are_new() && !one.are_new());
        assert_eq!((one.iter().len(), two.iter().len()), (2, 1));
        shared.share(&mut two);
        assert_eq!((one.iter().len(), two.iter().len()), (2, 1));
    }

    #[test]
    fn keys_of_single_nodes_do_not_fill_the_table_for_ever() {
        let shared = SharedKeys::default();
        let mut own: Vec<Keys> = (0..=MOST_SETS)
            .map(|node| keys(&[&node.to_string()]))
            .collect();
        own.iter_mut().for_each(|keys| shared.share(keys));
        let [mut one, mut two] = [keys(&["same"]), keys(&["same"])];
        shared.share(&mut one);
        shared.share(&mut two);
        assert!(Arc::ptr_eq(&one.set, &two.set));
    }

    #[test]
    fn rows_are_found_by_their_labels_however_many_there_are() {
        for count in [1, FEW - 1, FEW, 3 * FEW] {
            let names: Vec<String> = (0..count).rev().map(|row| format!("mlx5_{row}")).collect();
            let texts: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut keys = keys(&texts);
            for (row, name) in texts.iter().enumerate() {
                assert_eq!(keys.find(&[name]), Some(row));
                assert_eq!(keys.find(&[name, "1"]), None);
            }
            assert_eq!(keys.find(&["mlx5"]), None);
            let labels = Labels::new(["mlx5"]);
            keys.to_mut().push(Key { labels, line: 0 });
            assert_eq!(keys.find(&["mlx5"]), Some(count));
        }
    }
}
