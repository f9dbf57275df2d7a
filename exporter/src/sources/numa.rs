//! NUMA nodes and their CPUs, from `/sys/devices/system`.

use super::sysfs::{Buffer, Dir, Miss};

/// More than any machine has; a larger number is not a list of CPUs.
const MOST_CPUS: usize = 65_536;

/// A NUMA node that has CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number.
    pub id: u32,
    /// Its CPUs that are online, rising.
    pub cpus: Vec<usize>,
}

/// NUMA nodes with CPUs, by number; those of memory only (a GPU's, for example) are omitted. A
/// kernel without NUMA has one, number 0, with every CPU.
///
/// # Errors
/// Neither NUMA nodes nor a list of CPUs can be read.
pub fn nodes(sysfs: &Dir, buffer: &mut Buffer) -> Result<Vec<NumaNode>, Miss> {
    let Ok(system) = sysfs.dir("devices/system/node") else {
        let cpus = sysfs
            .dir("devices/system/cpu")
            .and_then(|dir| dir.text("online", buffer))?;
        let cpus = parse_list(&cpus).ok_or(Miss::Unparsed)?;
        return Ok(vec![NumaNode { id: 0, cpus }]);
    };
    let mut nodes = Vec::new();
    for name in system.names()? {
        let Some(id) = name.strip_prefix("node").and_then(|id| id.parse().ok()) else {
            continue;
        };
        let Ok(list) = system
            .dir(&name)
            .and_then(|node| node.text("cpulist", buffer))
        else {
            continue; // without CPUs the list is empty
        };
        let cpus = parse_list(&list).ok_or(Miss::Unparsed)?;
        nodes.push(NumaNode { id, cpus });
    }
    nodes.sort_by_key(|node| node.id);
    Ok(nodes)
}

/// The numbers of a kernel list such as `0-3,8,10-11`.
pub(super) fn parse_list(list: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MOST_CPUS {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::sysfs::Root;

    fn read(files: &[(&str, &str)]) -> Result<Vec<(u32, Vec<usize>)>, Miss> {
        let temp = tempfile::tempdir().expect("a temporary directory");
        for (path, text) in files {
            let path = temp.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
            std::fs::write(path, text).expect("write");
        }
        let sysfs = Root::new(temp.path()).open().expect("the root");
        let nodes = nodes(&sysfs, &mut [0; 4096])?;
        Ok(nodes.into_iter().map(|node| (node.id, node.cpus)).collect())
    }

    #[test]
    fn every_node_with_cpus_is_found() {
        let node = "devices/system/node";
        assert_eq!(
            read(&[
                (&format!("{node}/node1/cpulist"), "2-3,6\n"),
                (&format!("{node}/node0/cpulist"), "0-1,4\n"),
                (&format!("{node}/node10/cpulist"), "\n"),
                (&format!("{node}/online"), "0-1,10\n"),
            ]),
            Ok(vec![(0, vec![0, 1, 4]), (1, vec![2, 3, 6])])
        );
        assert_eq!(
            read(&[("devices/system/cpu/online", "0-2\n")]),
            Ok(vec![(0, vec![0, 1, 2])])
        );
        assert_eq!(read(&[]), Err(Miss::Absent));
        for bad in ["3-1", "0-", "x", "0-99999999999"] {
            let cpus = [("devices/system/cpu/online", bad)];
            assert_eq!(read(&cpus), Err(Miss::Unparsed), "{bad}");
        }
    }
}
