//! Settings of a PCI function in its configuration space: what its PCI Express and access control
//! capabilities report.
//!
//! Offsets and fields are those of the PCI Express Base Specification 6.0, chapter 7 (and of Linux'
//! `include/uapi/linux/pci_regs.h`). Only the registers named here are read: some devices cannot bear
//! to be read from end to end.

use super::sysfs::{Dir, File, Miss};

/// Every user may read this much of the file; the rest requires `CAP_SYS_ADMIN`.
const OPEN_TO_ALL: u64 = 64;

const STATUS: u64 = 0x06;
const STATUS_HAS_CAPABILITIES: u16 = 1 << 4;
const FIRST_CAPABILITY: u64 = 0x34;
const PCI_EXPRESS: u8 = 0x10;
/// Below the PCI Express capability.
const DEVICE_CAPABILITIES: u64 = 4;
const DEVICE_CONTROL: u64 = 8;

const FIRST_EXTENDED: u64 = 0x100;
const END: u64 = 0x1000;
const ACCESS_CONTROL: u16 = 0x0d;
const ACCESS_CONTROL_CONTROL: u64 = 6;

/// More links than fit into the space: a cyclic chain ends here.
const MOST_CAPABILITIES: usize = 48;
const MOST_EXTENDED: usize = 960;

/// Settings of one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Largest payload of a packet that it sends, bytes.
    pub max_payload_bytes: u64,
    /// Largest payload of a packet that it could send, bytes.
    pub max_payload_supported_bytes: u64,
    /// Largest read request, bytes.
    pub max_read_request_bytes: u64,
    /// It may mark packets that need not stay in order.
    pub relaxed_ordering: bool,
    /// It may have more than 32 reads in flight.
    pub extended_tags: bool,
    /// Access control flags that are switched on; none without this capability.
    pub access_control: Option<AccessControl>,
}

/// Bits of the ACS control register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessControl(u16);

impl AccessControl {
    const NAMES: [&'static str; 7] = [
        "source_validation",
        "translation_blocking",
        "request_redirect",
        "completion_redirect",
        "upstream_forwarding",
        "egress_control",
        "direct_translated",
    ];

    /// Whether packets between two functions below this port go up to the root complex: request or
    /// completion redirect is on.
    pub fn redirects(self) -> bool {
        self.0 & 0b1100 != 0
    }

    /// Names of the controls that are on.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let bits = (0..).zip(Self::NAMES);
        bits.filter_map(move |(bit, name)| (self.0 >> bit & 1 == 1).then_some(name))
    }
}

/// Reads the settings of a function.
///
/// # Errors
/// [`Miss::Denied`] without `CAP_SYS_ADMIN`, [`Miss::Unsupported`] where the function is not PCI
/// Express, [`Miss::Absent`] where there is no such file or the function no longer responds.
pub fn settings(function: &Dir) -> Result<Settings, Miss> {
    let mut space = Space(function.file("config"));
    if space.word(STATUS)? & STATUS_HAS_CAPABILITIES == 0 {
        return Err(Miss::Unsupported);
    }
    let express = space.express()?;
    let capabilities = space.word(express + DEVICE_CAPABILITIES)?;
    let control = space.word(express + DEVICE_CONTROL)?;
    let bytes = |code: u16| 128_u64 << (code & 0b111);
    Ok(Settings {
        max_payload_bytes: bytes(control >> 5),
        max_payload_supported_bytes: bytes(capabilities),
        max_read_request_bytes: bytes(control >> 12),
        relaxed_ordering: control >> 4 & 1 == 1,
        extended_tags: control >> 8 & 1 == 1,
        access_control: space.access_control()?,
    })
}

struct Space(File);

impl Space {
    fn bytes<const N: usize>(&mut self, offset: u64) -> Result<[u8; N], Miss> {
        let mut bytes = [0; N];
        match self.0.bytes_at(offset, &mut bytes)? {
            read if read == N => Ok(bytes),
            _ if offset + N as u64 > OPEN_TO_ALL => Err(Miss::Denied),
            _ => Err(Miss::Unparsed),
        }
    }

    fn word(&mut self, offset: u64) -> Result<u16, Miss> {
        match u16::from_le_bytes(self.bytes(offset)?) {
            // No register that is read here has all bits: the function is gone.
            u16::MAX => Err(Miss::Absent),
            word => Ok(word),
        }
    }

    /// Where the PCI Express capability stands.
    fn express(&mut self) -> Result<u64, Miss> {
        let [mut next] = self.bytes(FIRST_CAPABILITY)?;
        for _ in 0..MOST_CAPABILITIES {
            let place = u64::from(next & !0b11);
            if place < OPEN_TO_ALL {
                return Err(Miss::Unsupported);
            }
            let [id, following] = self.bytes(place)?;
            if id == PCI_EXPRESS {
                return Ok(place);
            }
            next = following;
        }
        Err(Miss::Unparsed)
    }

    fn access_control(&mut self) -> Result<Option<AccessControl>, Miss> {
        let mut place = FIRST_EXTENDED;
        for _ in 0..MOST_EXTENDED {
            let header = match self.bytes(place) {
                Ok(bytes) => u32::from_le_bytes(bytes),
                // A space of 256 bytes: a function without extended capabilities.
                Err(Miss::Denied) if place == FIRST_EXTENDED => return Ok(None),
                Err(miss) => return Err(miss),
            };
            if header == 0 || header == u32::MAX {
                return Ok(None);
            }
            if header as u16 == ACCESS_CONTROL {
                let control = self.word(place + ACCESS_CONTROL_CONTROL)?;
                return Ok(Some(AccessControl(control)));
            }
            place = u64::from(header >> 20 & !0b11);
            if !(FIRST_EXTENDED..END).contains(&place) {
                return Ok(None);
            }
        }
        Err(Miss::Unparsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::sysfs::Root;
    use proptest::prelude::*;

    /// A function with payload codes, read request code, and an ACS control word if any.
    fn space(acs: Option<u16>) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let mut write =
            |place: usize, value: &[u8]| bytes[place..place + value.len()].copy_from_slice(value);
        write(0, &[0xb3, 0x15, 0x21, 0x10]);
        write(0x06, &[0x10, 0]);
        write(0x34, &[0x48]);
        write(0x48, &[0x01, 0x60]);
        write(
            0x60,
            &[0x10, 0x00, 0x02, 0x00, 0x02, 0x80, 0, 0, 0x30, 0x59],
        );
        write(0x100, &[0x01, 0, 0x02, 0x15]);
        write(0x150, &[0x0d, 0, 0x01, 0]);
        if let Some(control) = acs {
            write(0x156, &control.to_le_bytes());
        } else {
            write(0x150, &[0x19, 0, 0x01, 0]);
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Settings, Miss> {
        let temp = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(temp.path().join("config"), bytes).expect("write");
        settings(&Root::new(temp.path()).open().expect("the root"))
    }

    #[test]
    fn settings_are_those_of_the_registers() {
        let expected = Settings {
            max_payload_bytes: 256,
            max_payload_supported_bytes: 512,
            max_read_request_bytes: 4096,
            relaxed_ordering: true,
            extended_tags: true,
            access_control: None,
        };
        assert_eq!(read(&space(None)), Ok(expected));
        for (control, redirects, names) in [
            (0, false, ""),
            (0x01, false, "source_validation"),
            (
                0x1d,
                true,
                "source_validation request_redirect completion_redirect upstream_forwarding",
            ),
        ] {
            let acs = read(&space(Some(control)))
                .expect("settings")
                .access_control
                .expect("ACS");
            assert_eq!(acs.redirects(), redirects);
            assert_eq!(acs.names().collect::<Vec<_>>().join(" "), names);
        }
        // 256 bytes are the entire space of an older function.
        assert_eq!(read(&space(None)[..256]), Ok(expected));
    }

    #[test]
    fn what_cannot_be_read_is_typed() {
        let whole = space(Some(0x1d));
        assert_eq!(
            read(&whole[..64]),
            Err(Miss::Denied),
            "without CAP_SYS_ADMIN"
        );
        assert_eq!(
            read(&[0xff; 4096]),
            Err(Miss::Absent),
            "the function is gone"
        );
        assert_eq!(read(&[0; 4096]), Err(Miss::Unsupported), "no capabilities");
        let mut circle = whole.clone();
        circle[0x60..0x62].copy_from_slice(&[0x01, 0x48]);
        assert_eq!(read(&circle), Err(Miss::Unparsed));
        circle = whole;
        circle[0x150..0x154].copy_from_slice(&[0x01, 0, 0x01, 0x10]);
        assert_eq!(read(&circle), Err(Miss::Unparsed));
    }

    /// This machine's own functions, as root or not.
    #[test]
    fn real_functions_are_read_or_say_why_not() {
        let name = "real_functions_are_read_or_say_why_not";
        let Ok(devices) = Root::new(std::path::Path::new("/sys"))
            .open()
            .and_then(|sys| sys.dir("bus/pci/devices"))
        else {
            eprintln!("SKIPPED: {name}: no PCI here");
            return;
        };
        for device in devices.names().expect("names") {
            let read = devices.dir(&device).and_then(|dir| settings(&dir));
            let fine = matches!(read, Ok(_) | Err(Miss::Denied | Miss::Unsupported));
            assert!(fine, "{device}: {read:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn whatever_the_bytes_reading_ends(seed in prop::collection::vec(any::<u8>(), 4096), length in 0..4096_usize) {
            let mut bytes = seed;
            bytes[0x06] |= 0x10;
            let _settings = read(&bytes[..length]);
        }
    }
}
