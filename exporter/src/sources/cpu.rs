//! CPUs that are online, their cores and packages, from `/sys/devices/system/cpu`.

use super::numa::parse_list;
use super::sysfs::{Buffer, Dir, Miss};

/// A logical CPU.
#[derive(Debug, Clone)]
pub struct Cpu {
    /// Its number.
    pub number: usize,
    /// Its files.
    pub dir: Dir,
}

/// Every CPU that is online, by number.
///
/// # Errors
/// [`Miss::Absent`] where the kernel describes no CPU.
pub fn online(sysfs: &Dir, buffer: &mut Buffer) -> Result<Vec<Cpu>, Miss> {
    let system = sysfs.dir("devices/system/cpu")?;
    let list = system.text("online", buffer)?;
    let numbers = parse_list(&list).ok_or(Miss::Unparsed)?.into_iter();
    let cpus = numbers.filter_map(|number| {
        let dir = system.dir(&format!("cpu{number}")).ok()?;
        Some(Cpu { number, dir })
    });
    let cpus: Vec<_> = cpus.collect();
    if cpus.is_empty() {
        return Err(Miss::Absent);
    }
    Ok(cpus)
}

impl Cpu {
    /// Number of its package, 0 where the kernel does not know.
    pub fn package(&self, buffer: &mut Buffer) -> u64 {
        self.topology("physical_package_id", buffer).unwrap_or(0)
    }

    /// Number of its core within the package, its own where the kernel does not know.
    pub fn core(&self, buffer: &mut Buffer) -> u64 {
        let core = self.topology("core_id", buffer);
        core.unwrap_or(self.number as u64)
    }

    fn topology(&self, file: &str, buffer: &mut Buffer) -> Option<u64> {
        let dir = self.dir.dir("topology").ok()?;
        dir.text(file, buffer).ok()?.parse().ok()
    }
}
