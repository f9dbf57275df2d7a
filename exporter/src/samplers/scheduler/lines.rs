//! The kernel's tables of one line for each CPU: `/proc/stat`, `/proc/schedstat`, `softnet_stat`.

use crate::sources::sysfs::Miss;

/// CPU and its counts, or a line that is not what it should be.
pub(super) type Rows = Vec<Result<(usize, Vec<u64>), Miss>>;

/// Versions of `/proc/schedstat` whose CPU lines are in nanoseconds and in this order: 15 (Linux 2.6.30)
/// to 17 (6.14, where only the domain lines changed).
const SCHEDSTAT_VERSIONS: std::ops::RangeInclusive<u32> = 15..=17;

/// I/O wait and steal of each CPU in `USER_HZ` ticks: the fifth and eighth number of a `cpuN` line.
pub(super) fn stat(text: &str, _online: &[usize]) -> Result<Rows, Miss> {
    let rows: Rows = cpu_lines(text)
        .map(|(cpu, line)| columns(cpu, line, &[4, 7]))
        .collect();
    found(rows)
}

/// Nanoseconds that tasks ran and waited on each CPU: the seventh and eighth number of a `cpuN` line.
pub(super) fn schedstat(text: &str, _online: &[usize]) -> Result<Rows, Miss> {
    let version = text.lines().next().and_then(|line| {
        let version = line.strip_prefix("version ")?;
        version.trim().parse().ok()
    });
    match version {
        None => return Err(Miss::Unparsed),
        Some(version) if !SCHEDSTAT_VERSIONS.contains(&version) => return Err(Miss::Unsupported),
        Some(_) => {}
    }
    let rows: Rows = cpu_lines(text)
        .map(|(cpu, line)| columns(cpu, line, &[6, 7]))
        .collect();
    found(rows)
}

/// Packets dropped and times squeezed of each CPU: the second and third number of a line, hexadecimal.
/// The thirteenth is the CPU; before Linux 5.10 it is missing, and the n-th line is the n-th CPU online.
pub(super) fn softnet(text: &str, online: &[usize]) -> Result<Rows, Miss> {
    let rows = text.lines().enumerate().map(|(place, line)| {
        let numbers: Option<Vec<u64>> = line
            .split_whitespace()
            .map(|word| u64::from_str_radix(word, 16).ok())
            .collect();
        let numbers = numbers.ok_or(Miss::Unparsed)?;
        let cpu = match numbers.get(12) {
            Some(cpu) => usize::try_from(*cpu).ok(),
            None => online.get(place).copied(),
        };
        match (cpu, numbers.get(1..3)) {
            (Some(cpu), Some(counts)) => Ok((cpu, counts.to_vec())),
            _ => Err(Miss::Unparsed),
        }
    });
    found(rows.collect())
}

/// Lines that begin with `cpuN`, and what follows. The line `cpu` is the sum of them.
fn cpu_lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let (cpu, rest) = line.strip_prefix("cpu")?.split_once(' ')?;
        (!cpu.is_empty()).then_some((cpu, rest))
    })
}

fn columns(cpu: &str, line: &str, places: &[usize]) -> Result<(usize, Vec<u64>), Miss> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let counts = places.iter().map(|place| words.get(*place)?.parse().ok());
    match (cpu.parse(), counts.collect()) {
        (Ok(cpu), Some(counts)) => Ok((cpu, counts)),
        _ => Err(Miss::Unparsed),
    }
}

fn found(rows: Rows) -> Result<Rows, Miss> {
    if rows.is_empty() {
        return Err(Miss::Unparsed);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: Result<(usize, Vec<u64>), Miss> = Err(Miss::Unparsed);

    #[test]
    fn io_wait_and_steal_are_the_fifth_and_eighth_number_of_a_cpu() {
        let text = "cpu  9 9 9 9 9 9 9 900 0 0\n\
                    cpu0 10 0 20 5000 3 0 1 42 0 0\n\
                    cpu12 10 0 20 5000 3 0 1 7 0 0\n\
                    cpu2 10 0 20\n\
                    cpux 1 2 3 4 5 6 7 8\n\
                    cpu3 1 2 3 4 5 6 7 -8\n\
                    intr 5 1 2\nctxt 1\n";
        let expected: Rows = vec![Ok((0, vec![3, 42])), Ok((12, vec![3, 7])), BAD, BAD, BAD];
        assert_eq!(stat(text, &[]), Ok(expected));
        for bad in ["", "cpu  1 2 3 4 5 6 7 8\n", "\u{0}\u{0}"] {
            assert_eq!(stat(bad, &[]), Err(Miss::Unparsed), "{bad:?}");
        }
    }

    #[test]
    fn schedstat_is_read_where_its_version_is_known() {
        let lines = "timestamp 4299999999\n\
                     cpu0 0 0 100 50 60 20 7000000000 5000000 90\n\
                     domain0 MC 03 1 2 3 4 5 6 7 8 9\n\
                     cpu1 0 0 100 50 60 20 1 2 90\n\
                     cpu2 0 0\n";
        let expected: Rows = vec![
            Ok((0, vec![7_000_000_000, 5_000_000])),
            Ok((1, vec![1, 2])),
            BAD,
        ];
        for version in [15, 16, 17] {
            let text = format!("version {version}\n{lines}");
            assert_eq!(schedstat(&text, &[]).as_ref(), Ok(&expected));
        }
        for (text, miss) in [
            (format!("version 14\n{lines}"), Miss::Unsupported),
            (format!("version 99\n{lines}"), Miss::Unsupported),
            (format!("version new\n{lines}"), Miss::Unparsed),
            (lines.to_owned(), Miss::Unparsed),
            ("version 16\n".to_owned(), Miss::Unparsed),
            (String::new(), Miss::Unparsed),
        ] {
            assert_eq!(schedstat(&text, &[]), Err(miss), "{text:?}");
        }
    }

    #[test]
    fn softnet_names_its_cpu_or_goes_by_what_is_online() {
        let new = "00004918 0000000a 000000ff 0 0 0 0 0 0 0 0 00000000 00000004 0 0\n\
                   00006c8e 00000000 00000001 0 0 0 0 0 0 0 0 00000000 00000006 0 0\n";
        let expected: Rows = vec![Ok((4, vec![10, 255])), Ok((6, vec![0, 1]))];
        assert_eq!(softnet(new, &[0, 1]), Ok(expected));
        let old = "00004918 0000000a 000000ff 0 0 0 0 0 0 0 0\n\
                   00006c8e 00000000 00000001 0 0 0 0 0 0 0 0\n\
                   00006c8e 00000000 00000001 0 0 0 0 0 0 0 0\n\
                   many 0 0\n00000001\n";
        let expected: Rows = vec![Ok((0, vec![10, 255])), Ok((2, vec![0, 1])), BAD, BAD, BAD];
        assert_eq!(softnet(old, &[0, 2]), Ok(expected));
        assert_eq!(softnet("", &[0]), Err(Miss::Unparsed));
    }
}
