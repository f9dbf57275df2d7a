//! What kernel messages report about hardware, storage and memory: a table of patterns, and the forms that hold
//! numbers.
//!
//! Every message is matched from its beginning, so that text that quotes one does not match. Spellings are those of Linux 3.10 to
//! 6.12 and of the NVIDIA, mlx5 and ENA drivers. Nothing is evaluated here: a link that an administrator takes down
//! counts.

use railscope_model::identity::PciAddress;

/// Something that a message reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// The value of the label.
    pub(super) name: &'static str,
    /// The most precise name that the message gives: PCI address, block device, interface, `mc0`, `cpu12`, server.
    /// Empty if it names none.
    pub(super) device: String,
    /// How many; memory controllers report several errors in one message.
    pub(super) count: u64,
    pub(super) mode: Mode,
}

/// How a message relates to others about the same thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Each message is one event.
    Each,
    /// It comes first, and details follow.
    First,
    /// A detail: counts only where no first message came just before.
    Detail,
    /// Several messages about one event of one device: the first counts.
    OnePerDevice,
    /// The same GPU's XID 79 reports the same, and is counted as an XID.
    UnlessXid,
    /// It reports that there are errors: counts only where no message just before or after reports
    /// which.
    Summary,
}

/// A message of the form `driver device: text`, `driver device interface: text` or `source: text`.
#[derive(Debug, Clone, Copy)]
struct Message<'a> {
    /// Before the first colon that a blank follows.
    head: &'a str,
    rest: &'a str,
}

impl<'a> Message<'a> {
    fn new(text: &'a str) -> Option<Self> {
        let (head, rest) = text.split_once(": ")?;
        Some(Self { head, rest })
    }

    fn word(self, place: usize) -> &'a str {
        self.head.split(' ').nth(place).unwrap_or_default()
    }

    /// The PCI address behind the driver's name; pciehp once had `0000:17:01.0:pcie004` there.
    fn pci(self) -> Option<PciAddress> {
        let word = self.word(1);
        let address = word
            .split_once(":pcie")
            .map_or(word, |(address, _)| address);
        address.contains(':').then(|| address.parse().ok())?
    }

    /// The PCI address, or else the second word.
    fn device(self) -> String {
        let pci = self.pci().map(|pci| pci.to_string());
        pci.unwrap_or_else(|| self.word(1).to_owned())
    }
}

/// Which names a pattern's device.
#[derive(Debug, Clone, Copy)]
enum Device {
    /// The message names none.
    None,
    /// That behind the driver's name.
    Second,
    /// The address that is in the text, or else that behind the driver's name.
    Address,
    /// The word behind the first one of the text.
    Word,
}

/// One row: the first word before the colon (any if empty), beginnings of the text behind it, and what it has to
/// contain; one of each, in small letters. An empty list requires nothing.
struct Pattern {
    event: &'static str,
    first: &'static [&'static str],
    begins: &'static [&'static str],
    contains: &'static [&'static str],
    device: Device,
    mode: Mode,
}

const fn pattern(
    event: &'static str,
    first: &'static [&'static str],
    begins: &'static [&'static str],
    contains: &'static [&'static str],
    device: Device,
    mode: Mode,
) -> Pattern {
    Pattern {
        event,
        first,
        begins,
        contains,
        device,
        mode,
    }
}

const NICS: &[&str] = &[
    "mlx5_core",
    "mlx4_core",
    "mlx4_en",
    "bnxt_en",
    "ice",
    "i40e",
    "ixgbe",
    "irdma",
    "efa",
];
const MLX5: &[&str] = &["mlx5_core"];
const ANY: &[&str] = &[];

/// The first that fits counts.
#[rustfmt::skip]
const PATTERNS: &[Pattern] = &[
    // `pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0`, since Linux 6.9
    // `AER: Correctable error message received from 0000:3b:00.0`.
    pattern("pcie_corrected", ANY, &[
        "aer: corrected error", "aer: correctable error",
        "aer: multiple corrected error", "aer: multiple correctable error",
    ], &["received"], Device::Address, Mode::First),
    pattern("pcie_nonfatal", ANY, &[
        "aer: uncorrected (non-fatal) error", "aer: uncorrectable (non-fatal) error",
        "aer: multiple uncorrected (non-fatal) error", "aer: multiple uncorrectable (non-fatal) error",
    ], &["received"], Device::Address, Mode::First),
    pattern("pcie_fatal", ANY, &[
        "aer: uncorrected (fatal) error", "aer: uncorrectable (fatal) error",
        "aer: multiple uncorrected (fatal) error", "aer: multiple uncorrectable (fatal) error",
    ], &["received"], Device::Address, Mode::First),
    // Behind the above, and alone behind a containment by DPC.
    pattern("pcie_corrected", ANY, &[
        "pcie bus error: severity=corrected", "aer: pcie bus error: severity=corrected",
        "pcie bus error: severity=correctable", "aer: pcie bus error: severity=correctable",
    ], &[], Device::Second, Mode::Detail),
    pattern("pcie_nonfatal", ANY, &[
        "pcie bus error: severity=uncorrected (non-fatal)", "aer: pcie bus error: severity=uncorrected (non-fatal)",
        "pcie bus error: severity=uncorrectable (non-fatal)", "aer: pcie bus error: severity=uncorrectable (non-fatal)",
    ], &[], Device::Second, Mode::Detail),
    pattern("pcie_fatal", ANY, &[
        "pcie bus error: severity=uncorrected (fatal)", "aer: pcie bus error: severity=uncorrected (fatal)",
        "pcie bus error: severity=uncorrectable (fatal)", "aer: pcie bus error: severity=uncorrectable (fatal)",
    ], &[], Device::Second, Mode::Detail),
    pattern("pcie_link_down", &["pcieport", "pciehp"], &["pciehp: slot(", "slot("], &["): link down"],
        Device::Second, Mode::Each),
    pattern("machine_check_corrected", &["mce"], &["[hardware error]: machine check events logged"], &[],
        Device::None, Mode::Summary),
    pattern("cable_error", MLX5, &["port module event"], &["cable error"], Device::Second, Mode::Each),
    pattern("cable_unplugged", MLX5, &["port module event"], &["cable unplugged"], Device::Second, Mode::Each),
    pattern("overheat", MLX5, &[], &["high temperature"], Device::Second, Mode::Each),
    pattern("nic_error", NICS, &[], &[
        "health issue observed", "device's health compromised", "fatal error ", "health recovery failed",
        "health recovery flow aborted", "firmware fatal", "cmd timeout", "command timeout",
    ], Device::Second, Mode::Each),
    // `wait_func:1158:(pid 1283): MANAGE_PAGES(0x108) timeout. Will cause a leak of a command resource`. A command that
    // `recovered after timeout` does not count.
    pattern("nic_error", MLX5, &["wait_func"], &[") timeout"], Device::Second, Mode::Each),
    pattern("nic_error", &["ena"], &[], &["reset"], Device::Second, Mode::OnePerDevice),
    pattern("nic_error", &["NETDEV"], &[], &["transmit queue"], Device::Word, Mode::Each),
    pattern("nic_error", ANY, &["netdev watchdog: "], &["transmit queue"], Device::Second, Mode::Each),
    pattern("gpu_init_failed", &["NVRM"], &["gpu 0"], &["rminitadapter failed!"], Device::Address, Mode::Each),
    pattern("gpu_init_failed", &["NVRM"], &["rminitadapter failed!"], &[], Device::None, Mode::Each),
    pattern("gpu_lost", &["NVRM"], &["the nvidia gpu "], &["fallen off the bus"], Device::Address, Mode::UnlessXid),
    pattern("gpu_lost", &["NVRM"], &["gpu 0", "gpu at "], &[": gpu has fallen off the bus"],
        Device::Address, Mode::UnlessXid),
    // The third line of the message above, where each is a record. Its device is in the first.
    pattern("gpu_lost", &["NVRM"], &["fallen off the bus and is not responding"], &[], Device::None, Mode::UnlessXid),
    pattern("storage_error", &["nvme"], &["i/o ", "queue "], &["timeout"], Device::Second, Mode::Each),
    pattern("storage_error", &["nvme"], &[
        "controller is down", "device not ready", "removing after probe failure", "disabling device after reset failure",
    ], &[], Device::Second, Mode::Each),
    pattern("nfs_timeout", &["nfs"], &["server "], &[" not responding"], Device::Word, Mode::Each),
    pattern("hung_task", &["INFO"], &["task "], &["blocked for more than"], Device::None, Mode::Each),
];

/// The event of a message, if it is one.
pub(super) fn parse(text: &str) -> Option<Event> {
    let text = text.trim_start();
    forms(text).or_else(|| {
        let message = Message::new(text)?;
        let small = message.rest.to_ascii_lowercase();
        let fits = |pattern: &&Pattern| pattern.fits(message, &small);
        let pattern = PATTERNS.iter().find(fits)?;
        Some(Event {
            name: pattern.event,
            device: pattern.device(message),
            count: 1,
            mode: pattern.mode,
        })
    })
}

/// Behind the place in mlx5's source that its warnings begin with: `poll_health:739:(pid 0): `.
fn without_place(text: &str) -> &str {
    let place = text
        .split_once(":(pid ")
        .and_then(|(_, rest)| rest.split_once("): "));
    place.map_or(text, |(_, rest)| rest)
}

impl Pattern {
    fn fits(&self, message: Message<'_>, small: &str) -> bool {
        let any = |list: &[&str], test: &dyn Fn(&str) -> bool| {
            list.is_empty() || list.iter().any(|item| test(item))
        };
        // Any driver: but it stands before the address of a PCI function.
        let is_from = match self.first {
            [] => message.pci().is_some(),
            first => first.contains(&message.word(0)),
        };
        is_from
            && any(self.begins, &|begin| {
                small.starts_with(begin) || without_place(small).starts_with(begin)
            })
            && any(self.contains, &|part| small.contains(part))
    }

    fn device(&self, message: Message<'_>) -> String {
        match self.device {
            Device::None => String::new(),
            Device::Second => message.device(),
            // Root ports that do not know the source report 00:00.0, which is the host bridge.
            Device::Address => source_address(message)
                .filter(|source| !source.ends_with(":00:00.0"))
                .unwrap_or_else(|| message.device()),
            // `server storage-1 not responding`; `NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out`.
            Device::Word => {
                let place = usize::from(message.word(0) == "nfs");
                let word = message.rest.split(' ').nth(place);
                word.unwrap_or_default()
                    .trim_end_matches([':', ','])
                    .to_owned()
            }
        }
    }
}

/// A PCI address in the text, with its function or without; older kernels write `id=3b00` for one in the domain of the
/// port that reports it.
fn source_address(message: Message<'_>) -> Option<String> {
    if let Some(id) = message.rest.split("id=").nth(1)
        && let Some(port) = message.pci()
        && let Some(Ok(id)) = id.get(..4).map(|id| u16::from_str_radix(id, 16))
    {
        let [bus, function] = id.to_be_bytes();
        let source = PciAddress {
            domain: port.domain,
            bus,
            device: function >> 3,
            function: function & 7,
        };
        return Some(source.to_string());
    }
    let is_part = |char: char| char.is_ascii_hexdigit() || matches!(char, ':' | '.');
    let words = message.rest.split(|char| !is_part(char));
    words
        .map(|word| word.trim_matches([':', '.']))
        .filter(|word| word.matches(':').count() == 2)
        .find_map(|word| {
            let whole = word.parse().ok();
            let address: PciAddress = whole.or_else(|| format!("{word}.0").parse().ok())?;
            Some(address.to_string())
        })
}

/// Messages that a table cannot hold.
fn forms(text: &str) -> Option<Event> {
    let event = |name, device: &str, count| Event {
        name,
        device: device.to_owned(),
        count,
        mode: Mode::Each,
    };
    memory(text)
        .or_else(|| machine_check(text))
        .map(|(name, device, count)| event(name, &device, count))
        .or_else(|| temperature(text).map(|cpu| event("overheat", &cpu, 1)))
        .or_else(|| block(text).map(|device| event("storage_error", device, 1)))
        .or_else(|| link(text).map(|(name, device)| event(name, &device, 1)))
        .or_else(|| is_out_of_memory(text).then(|| event("out_of_memory", "", 1)))
}

/// `EDAC MC0: 3 CE memory read error on ...`; old drivers leave the number out.
fn memory(text: &str) -> Option<(&'static str, String, u64)> {
    let (controller, rest) = text.strip_prefix("EDAC MC")?.split_once(": ")?;
    let _: u16 = controller.parse().ok()?;
    let mut words = rest.split(' ').peekable();
    let number = words.peek().and_then(|word| word.parse().ok());
    if number.is_some() {
        words.next();
    }
    let name = match words.next()? {
        "CE" => "memory_corrected",
        "UE" => "memory_uncorrected",
        _ => return None,
    };
    Some((name, format!("mc{controller}"), number.unwrap_or(1)))
}

/// Machine checks by the bank's status, as the kernel prints it or AMD's decoder spells it, and what firmware reports.
fn machine_check(text: &str) -> Option<(&'static str, String, u64)> {
    const MARK: &str = "[Hardware Error]: ";
    /// `MCI_STATUS_UC` of `arch/x86/include/asm/mce.h`.
    const UNCORRECTED: u64 = 1 << 61;
    let (source, rest) = text.split_once(MARK)?;
    let is_firmware = source
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    if !(is_firmware || matches!(source, "" | "mce: ")) {
        return None;
    }
    let name = |corrected| match corrected {
        true => "machine_check_corrected",
        false => "machine_check_uncorrected",
    };
    if let Some(severity) = rest.strip_prefix("event severity: ") {
        let corrected = match severity.trim() {
            "corrected" => true,
            "recoverable" | "fatal" => false,
            _ => return None,
        };
        return Some((name(corrected), String::new(), 1));
    }
    let cpu = |number: &str| {
        let _: u32 = number.parse().ok()?;
        Some(format!("cpu{number}"))
    };
    // `CPU 12: Machine Check Exception: 5 Bank 4: b200000000070f0f`.
    if let Some(rest) = rest.strip_prefix("CPU ") {
        let (number, check) = rest.split_once(": ")?;
        let status = check.strip_prefix("Machine Check")?;
        let (_, bank) = status.split_once(" Bank ")?;
        let (_, status) = bank.split_once(": ")?;
        let digits = status.find(|char: char| !char.is_ascii_hexdigit());
        let status = &status[..digits.unwrap_or(status.len())];
        let status = u64::from_str_radix(status, 16).ok()?;
        return Some((name(status & UNCORRECTED == 0), cpu(number)?, 1));
    }
    // `CPU:12 (19:1:1) MC17_STATUS[Over|CE|MiscV|...]: 0x...`; `-` is a deferred error, which nothing has corrected.
    let (number, rest) = rest.strip_prefix("CPU:")?.split_once(' ')?;
    let (_, flags) = rest.split_once("_STATUS[")?;
    let flag = flags.split('|').nth(1)?;
    Some((name(flag == "CE"), cpu(number)?, 1))
}

/// `CPU12: Core temperature is above threshold, cpu clock is throttled (total events = 1)`: which CPU.
fn temperature(text: &str) -> Option<String> {
    let rest = text.strip_prefix("mce: ").unwrap_or(text);
    let (number, rest) = rest.strip_prefix("CPU")?.split_once(": ")?;
    let _: u32 = number.parse().ok()?;
    let (part, rest) = rest.split_once(" temperature ")?;
    let is_hot = rest.starts_with("above threshold") || rest.starts_with("is above threshold");
    (is_hot && matches!(part, "Core" | "Package")).then(|| format!("cpu{number}"))
}

/// `blk_update_request: I/O error, dev sda, sector 123 ...`: the block device. Newer kernels leave the function out.
fn block(text: &str) -> Option<&str> {
    let functions = ["blk_update_request: ", "print_req_error: ", "end_request: "];
    let rest = functions
        .iter()
        .find_map(|function| text.strip_prefix(function));
    let (kind, device) = rest.unwrap_or(text).split_once(" error, dev ")?;
    // `enum` of `blk_errors` in block/blk-core.c; an operation that the device does not support is no error of it.
    let kinds = [
        "I/O",
        "critical medium",
        "critical target",
        "critical nexus",
        "recoverable transport",
        "protection",
        "timeout",
        "critical space allocation",
    ];
    let (device, _) = device.split_once(',')?;
    kinds.contains(&kind).then_some(device)
}

/// `Out of memory: Killed process 7 (python) ...`, of the node or of a control group. Older kernels write `Kill process
/// ... or sacrifice child`, and then a line without the first words.
fn is_out_of_memory(text: &str) -> bool {
    let begins = ["Out of memory: Kill", "Memory cgroup out of memory: Kill"];
    begins.iter().any(|begin| text.starts_with(begin))
}

/// Links of network ports, in the messages of their drivers: `mlx5_core 0000:3b:00.0 eth2: Link down`,
/// `ice 0000:4b:00.0 ens1f0: NIC Link is Up 100 Gbps`, `ib0: link down`, `infiniband mlx5_0: Port: 1 Link DOWN`.
fn link(text: &str) -> Option<(&'static str, String)> {
    let message = Message::new(text)?;
    let words = message.head.split(' ').count();
    if words > 3 || matches!(message.word(0), "pcieport" | "pciehp") {
        return None;
    }
    let mut rest = message.rest;
    let mut device = match words {
        1 => message.head.to_owned(),
        2 if message.pci().is_some() || message.word(0) == "infiniband" => message.device(),
        3 => message.word(2).to_owned(),
        _ => return None,
    };
    // `igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down`, `mlx4_en: eth0: Link Down`, `e1000e: eth0 NIC Link is Down`.
    if let Some(after) = rest.strip_prefix("igb: ") {
        rest = after;
    }
    let (first, after) = rest.split_once(' ')?;
    let is_named = first.ends_with(':') && message.word(0) == "mlx4_en";
    if is_named || after.starts_with("NIC Link is") {
        first.trim_end_matches(':').clone_into(&mut device);
        rest = after;
    }
    let is_interface = device.len() <= 15 || message.pci().is_some();
    if !is_interface || device.contains(|char: char| char.is_whitespace() || char == '(') {
        return None;
    }
    let small = rest.to_ascii_lowercase();
    let state = ["nic link is ", "link is ", "link "]
        .iter()
        .find_map(|begin| small.strip_prefix(begin))
        .or_else(|| port_link(&small))?;
    let end = state.find(|char: char| !char.is_ascii_alphabetic());
    match (&state[..end.unwrap_or(state.len())], device) {
        ("down", device) => Some(("link_down", device)),
        ("up", device) => Some(("link_up", device)),
        ("active", device) if small.starts_with("port") => Some(("link_up", device)),
        _ => None,
    }
}

/// What follows `port: 1 link ` or `port 1 link `.
fn port_link(small: &str) -> Option<&str> {
    let rest = small.strip_prefix("port")?.trim_start_matches([':', ' ']);
    let (number, rest) = rest.split_once(' ')?;
    let _: u8 = number.parse().ok()?;
    rest.strip_prefix("link ")
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
