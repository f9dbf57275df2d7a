//! Settings in the PCI configuration space of a function, from its `config` file.

use super::sysfs::{Dir, Miss};

/// Who may not read all of it (without `CAP_SYS_ADMIN`) gets so many bytes, which hold no capability.
const HEADER: usize = 64;
/// Where extended capabilities begin; a machine without ECAM shows nothing from here on.
const EXTENDED: usize = 256;

/// Offsets and ids of the PCI Express Base Specification, as in Linux' `pci_regs.h`.
const STATUS: usize = 0x06;
const STATUS_HAS_CAPABILITIES: u16 = 1 << 4;
const FIRST_CAPABILITY: usize = 0x34;
const EXPRESS: u8 = 0x10;
const EXPRESS_DEVICE_CONTROL: usize = 8;
const ACCESS_CONTROL: u16 = 0x0d;
const ACCESS_CONTROL_CONTROL: usize = 6;
/// P2P Request Redirect and P2P Completion Redirect.
const REDIRECT: u16 = 0x04 | 0x08;
/// No list of capabilities is longer: 192 bytes in steps of 4, and 3840 in steps of 8.
const MOST_CAPABILITIES: usize = 48;
const MOST_EXTENDED: usize = 480;

/// The configuration space of one function, as much of it as the reader may see.
#[derive(Debug, Clone)]
pub struct ConfigSpace(Vec<u8>);

impl ConfigSpace {
    /// Reads it from the function's directory.
    ///
    /// # Errors
    /// The function is gone.
    pub fn read(function: &Dir) -> Result<Self, Miss> {
        function.bytes("config").map(Self)
    }

    /// Largest read request that the function may send, bytes.
    ///
    /// # Errors
    /// [`Miss::Denied`] without the right to read it, [`Miss::Unsupported`] on a function that is not
    /// PCI Express, [`Miss::Unparsed`] on a space that makes no sense.
    pub fn max_read_request(&self) -> Result<u32, Miss> {
        self.readable(HEADER)?;
        if self.word(STATUS)? & STATUS_HAS_CAPABILITIES == 0 {
            return Err(Miss::Unsupported);
        }
        // The two low bits of every pointer are reserved.
        let mut at = usize::from(self.byte(FIRST_CAPABILITY)? & !3);
        for _ in 0..MOST_CAPABILITIES {
            if at < HEADER {
                return Err(Miss::Unsupported);
            }
            if self.byte(at)? == EXPRESS {
                let control = self.word(at + EXPRESS_DEVICE_CONTROL)?;
                return match (control >> 12) & 7 {
                    size @ 0..=5 => Ok(128 << size),
                    _ => Err(Miss::Unparsed),
                };
            }
            at = usize::from(self.byte(at + 1)? & !3);
        }
        Err(Miss::Unparsed)
    }

    /// Whether access control services send traffic between peers below this bridge up to the root.
    ///
    /// # Errors
    /// [`Miss::Denied`] without the right to read it, [`Miss::Unsupported`] where no extended
    /// capability can be seen, [`Miss::Unparsed`] on a space that makes no sense.
    pub fn redirects_peers(&self) -> Result<bool, Miss> {
        self.readable(HEADER)?;
        if self.0.len() <= EXTENDED {
            return Err(Miss::Unsupported);
        }
        let mut at = EXTENDED;
        for _ in 0..MOST_EXTENDED {
            let (id, next) = (self.word(at)?, usize::from(self.word(at + 2)? >> 4));
            if id == ACCESS_CONTROL {
                return Ok(self.word(at + ACCESS_CONTROL_CONTROL)? & REDIRECT != 0);
            }
            if next < EXTENDED {
                return Ok(false);
            }
            at = next & !3;
        }
        Err(Miss::Unparsed)
    }

    fn readable(&self, beyond: usize) -> Result<(), Miss> {
        match self.0.len() {
            0 => Err(Miss::Absent),
            length if length <= beyond => Err(Miss::Denied),
            // A function that has fallen off the bus reads as ones.
            _ if self.0[..4] == [0xff; 4] => Err(Miss::Absent),
            _ => Ok(()),
        }
    }

    fn byte(&self, at: usize) -> Result<u8, Miss> {
        self.0.get(at).copied().ok_or(Miss::Unparsed)
    }

    fn word(&self, at: usize) -> Result<u16, Miss> {
        Ok(u16::from_le_bytes([self.byte(at)?, self.byte(at + 1)?]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A space with these bytes set.
    fn space(length: usize, bytes: &[(usize, u8)]) -> ConfigSpace {
        let mut space = vec![0; length];
        for (at, byte) in bytes {
            space[*at] = *byte;
        }
        ConfigSpace(space)
    }

    #[test]
    fn the_read_request_stands_in_the_express_capability() {
        // Power management at 0x40, PCI Express at 0x60.
        let chain = |control: u8| {
            let bytes = [
                (0x06, 0x10),
                (0x34, 0x40),
                (0x40, 0x01),
                (0x41, 0x60),
                (0x60, 0x10),
                (0x69, control),
            ];
            space(4096, &bytes).max_read_request()
        };
        assert_eq!(chain(0x20), Ok(512));
        assert_eq!(chain(0x5f), Ok(4096));
        assert_eq!(chain(0x60), Err(Miss::Unparsed));
        assert_eq!(space(64, &[]).max_read_request(), Err(Miss::Denied));
        assert_eq!(space(256, &[]).max_read_request(), Err(Miss::Unsupported));
        let endless = [(0x06, 0x10), (0x34, 0x40), (0x40, 0x05), (0x41, 0x40)];
        assert_eq!(space(256, &endless).max_read_request(), Err(Miss::Unparsed));
        let lost = ConfigSpace(vec![0xff; 4096]);
        assert_eq!(lost.max_read_request(), Err(Miss::Absent));
    }

    #[test]
    fn redirection_stands_in_the_access_control_capability() {
        // Error reporting at 0x100, access control at 0x148.
        let chain = |control: u8| {
            let bytes = [
                (0x100, 0x01),
                (0x102, 0x81),
                (0x103, 0x14),
                (0x148, 0x0d),
                (0x14e, control),
            ];
            space(4096, &bytes).redirects_peers()
        };
        assert_eq!(chain(0x00), Ok(false));
        // Source validation and upstream forwarding alone let peers talk.
        assert_eq!(chain(0x11), Ok(false));
        assert_eq!(chain(0x04), Ok(true));
        assert_eq!(chain(0x1d), Ok(true));
        assert_eq!(space(4096, &[]).redirects_peers(), Ok(false));
        assert_eq!(space(64, &[]).redirects_peers(), Err(Miss::Denied));
        assert_eq!(space(256, &[]).redirects_peers(), Err(Miss::Unsupported));
        let endless = [(0x100, 0x01), (0x103, 0x10)];
        assert_eq!(space(4096, &endless).redirects_peers(), Err(Miss::Unparsed));
        let beyond = [(0x100, 0x01), (0x102, 0xc1), (0x103, 0xff)];
        assert_eq!(space(4096, &beyond).redirects_peers(), Ok(false));
    }
}
