//! Memory controllers that count errors, from `/sys/devices/system/edac`.

use super::sysfs::{Dir, Miss};

/// More than any machine has: two for each of eight sockets.
const MOST: usize = 32;

/// Every memory controller that has a driver, by number: its name, `mc0`, and its files.
///
/// # Errors
/// [`Miss::Absent`] without a driver that counts memory errors.
pub fn controllers(sysfs: &Dir) -> Result<Vec<(String, Dir)>, Miss> {
    let system = sysfs.dir("devices/system/edac/mc")?;
    let names = system.names()?.into_iter().filter_map(|name| {
        let number: u32 = name.strip_prefix("mc")?.parse().ok()?;
        Some((number, name))
    });
    let mut numbered: Vec<_> = names.collect();
    numbered.sort_unstable();
    let found = numbered
        .into_iter()
        .filter_map(|(_, name)| Some((name.clone(), system.dir(&name).ok()?)));
    Ok(found.take(MOST).collect())
}
