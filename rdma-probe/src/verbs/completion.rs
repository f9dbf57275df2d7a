//! The completion queue: with the NIC's timestamps where the device has them, else without.

#![expect(
    unsafe_code,
    reason = "libibverbs is a C interface; see the rules of the module above"
)]

use std::io;
use std::ptr;

use rdma_sys as ib;

use super::Role;
use super::setup::made;
use crate::addresses::{HEADER, Source};
use crate::wire::LENGTH;

/// Completions that one look takes.
const BATCH: usize = 64;

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// A packet of ours has left.
    Sent {
        /// By which queue pair.
        role: Role,
        /// Its bytes.
        bytes: [u8; LENGTH],
        /// When, by the NIC's clock.
        nic_nanos: Option<u64>,
    },
    /// A packet has come.
    Received {
        /// By which queue pair.
        role: Role,
        /// Its bytes; of one that is longer than a probe one byte more than that.
        bytes: Vec<u8>,
        /// From where.
        source: Source,
        /// When, by the NIC's clock.
        nic_nanos: Option<u64>,
    },
}

/// One completion as the driver reports it.
pub(super) struct Raw {
    pub(super) request: u64,
    pub(super) status: ib::ibv_wc_status::Type,
    pub(super) bytes: u32,
    pub(super) source: Source,
    pub(super) nic_nanos: Option<u64>,
}

/// The number of a request: slot, direction and queue pair.
pub(super) fn request(role: Role, is_send: bool, slot: usize) -> u64 {
    (slot as u64) << 2 | u64::from(is_send) << 1 | role as u64
}

/// What [`request`] has put into a number.
pub(super) fn requested(number: u64) -> (Role, bool, usize) {
    let role = if number & 1 == 0 {
        Role::Asks
    } else {
        Role::Answers
    };
    (role, number & 2 != 0, (number >> 2) as usize)
}

/// A completion queue, or none yet.
#[derive(Debug)]
pub(super) struct Queue {
    queue: *mut ib::ibv_cq,
    /// Ticks of the NIC's clock in a millisecond; none where it takes no timestamps. The queue is an extended one then.
    kilohertz: Option<u64>,
}

impl Queue {
    pub(super) fn none() -> Self {
        Self {
            queue: ptr::null_mut(),
            kilohertz: None,
        }
    }

    /// Makes one that tells the channel.
    ///
    /// # Safety
    /// Context and channel are open, and stay so until the queue is destroyed.
    pub(super) unsafe fn create(
        context: *mut ib::ibv_context,
        channel: *mut ib::ibv_comp_channel,
        entries: i32,
    ) -> io::Result<Self> {
        // SAFETY: as the caller promises.
        unsafe {
            if let Some(queue) = Self::extended(context, channel, entries) {
                return Ok(queue);
            }
            let queue = ib::ibv_create_cq(context, entries, ptr::null_mut(), channel, 0);
            Ok(Self {
                queue: made("ibv_create_cq", queue)?,
                kilohertz: None,
            })
        }
    }

    /// A queue with timestamps, if device and driver have them.
    ///
    /// # Safety
    /// As [`Self::create`].
    unsafe fn extended(
        context: *mut ib::ibv_context,
        channel: *mut ib::ibv_comp_channel,
        entries: i32,
    ) -> Option<Self> {
        use ib::ibv_create_cq_wc_flags as flags;
        // SAFETY: the operations are those of `struct verbs_context`, which `verbs_context` has found around the context; zeroed
        // attributes are valid, and sizes are those of the structures that are passed.
        unsafe {
            let operations = verbs_context(context)?;
            let mut device: ib::ibv_device_attr_ex = std::mem::zeroed();
            let size = size_of::<ib::ibv_device_attr_ex>();
            let query = (*operations).query_device_ex?;
            let failed = query(context, ptr::null(), &raw mut device, size);
            if failed != 0 || device.completion_timestamp_mask == 0 || device.hca_core_clock == 0 {
                return None;
            }
            let mut attributes: ib::ibv_cq_init_attr_ex = std::mem::zeroed();
            attributes.cqe = u32::try_from(entries).ok()?;
            attributes.channel = channel;
            let wanted = flags::IBV_WC_EX_WITH_BYTE_LEN.0
                | flags::IBV_WC_EX_WITH_SRC_QP.0
                | flags::IBV_WC_EX_WITH_SLID.0
                | flags::IBV_WC_EX_WITH_SL.0
                | flags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP.0;
            attributes.wc_flags = wanted.into();
            let create = (*operations).create_cq_ex?;
            let queue = made("ibv_create_cq_ex", create(context, &raw mut attributes)).ok()?;
            Some(Self {
                queue: queue.cast(),
                kilohertz: Some(device.hca_core_clock),
            })
        }
    }

    pub(super) fn has_timestamps(&self) -> bool {
        self.kilohertz.is_some()
    }

    /// The queue for calls that take any kind.
    pub(super) fn plain(&self) -> *mut ib::ibv_cq {
        self.queue
    }

    /// What is complete now, a batch at most.
    pub(super) fn poll(&mut self) -> io::Result<Vec<Raw>> {
        match self.kilohertz {
            None => self.poll_plain(),
            Some(kilohertz) => self.poll_extended(kilohertz),
        }
    }

    fn poll_plain(&mut self) -> io::Result<Vec<Raw>> {
        let mut raw = Vec::new();
        // SAFETY: the queue is open; zeroed completions are valid, and the driver fills in as many as it returns.
        unsafe {
            let mut all: [ib::ibv_wc; BATCH] = std::mem::zeroed();
            let found = ib::ibv_poll_cq(self.queue, BATCH as i32, all.as_mut_ptr());
            let found = usize::try_from(found)
                .map_err(|_| io::Error::other("the completion queue cannot be read"))?;
            raw.extend(all.iter().take(found).map(|one| Raw {
                request: one.wr_id,
                status: one.status,
                bytes: one.byte_len,
                source: Source {
                    header: [0; HEADER],
                    global: one.wc_flags & ib::ibv_wc_flags::IBV_WC_GRH.0 != 0,
                    queue_pair: one.src_qp,
                    lid: one.slid,
                    service_level: one.sl,
                },
                nic_nanos: None,
            }));
        }
        Ok(raw)
    }

    fn poll_extended(&mut self, kilohertz: u64) -> io::Result<Vec<Raw>> {
        let mut raw = Vec::new();
        // SAFETY: the queue is open and an extended one, made with every field that is read here; reading is between a start
        // that succeeded and its end.
        unsafe {
            let queue = self.queue.cast::<ib::ibv_cq_ex>();
            let mut attributes: ib::ibv_poll_cq_attr = std::mem::zeroed();
            match ib::ibv_start_poll(queue, &raw mut attributes) {
                0 => {}
                // ENOENT: nothing is complete.
                2 => return Ok(raw),
                error => return Err(io::Error::from_raw_os_error(error)),
            }
            loop {
                let flags = ib::ibv_wc_read_wc_flags(queue);
                let ticks = ib::ibv_wc_read_completion_ts(queue);
                raw.push(Raw {
                    request: (*queue).wr_id,
                    status: (*queue).status,
                    bytes: ib::ibv_wc_read_byte_len(queue),
                    source: Source {
                        header: [0; HEADER],
                        global: flags & ib::ibv_wc_flags::IBV_WC_GRH.0 != 0,
                        queue_pair: ib::ibv_wc_read_src_qp(queue),
                        lid: u16::try_from(ib::ibv_wc_read_slid(queue)).unwrap_or_default(),
                        service_level: ib::ibv_wc_read_sl(queue),
                    },
                    nic_nanos: Some(nanos(ticks, kilohertz)),
                });
                if raw.len() == BATCH || ib::ibv_next_poll(queue) != 0 {
                    break;
                }
            }
            ib::ibv_end_poll(queue);
        }
        Ok(raw)
    }

    /// Destroys it, if there is one.
    ///
    /// # Safety
    /// Nothing that was made with it is left, and it is not used again.
    pub(super) unsafe fn destroy(&mut self) {
        if !self.queue.is_null() {
            // SAFETY: as the caller promises; a failure leaves nothing to do.
            unsafe { ib::ibv_destroy_cq(self.queue) };
        }
    }
}

/// Ticks of a clock as nanoseconds.
fn nanos(ticks: u64, kilohertz: u64) -> u64 {
    let nanos = u128::from(ticks) * 1_000_000 / u128::from(kilohertz.max(1));
    // Its lower bits: only differences count.
    nanos as u64
}

/// The structure around a context that has the operations of later versions of libibverbs, as `verbs_get_ctx` of
/// `infiniband/verbs.h` finds it. rdma-sys 0.3.0 compares with the largest number of 32 bits, and so never finds it.
///
/// # Safety
/// The context is open.
unsafe fn verbs_context(context: *mut ib::ibv_context) -> Option<*mut ib::verbs_context> {
    // SAFETY: a context that says so is the last field of a `struct verbs_context`, of which its size says what is there.
    unsafe {
        if (*context).abi_compat as usize != usize::MAX {
            return None;
        }
        let offset = std::mem::offset_of!(ib::verbs_context, context);
        let found = context.byte_sub(offset).cast::<ib::verbs_context>();
        ((*found).sz >= size_of::<ib::verbs_context>()).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_known_by_its_number() {
        for role in [Role::Asks, Role::Answers] {
            for is_send in [false, true] {
                for slot in [0, 1, 127] {
                    let number = request(role, is_send, slot);
                    assert_eq!(requested(number), (role, is_send, slot));
                }
            }
        }
    }

    #[test]
    fn ticks_are_nanoseconds_by_the_clocks_frequency() {
        assert_eq!(nanos(156_250, 156_250), 1_000_000);
        assert_eq!(nanos(1_000_000_000, 1_000_000), 1_000_000_000);
        assert_eq!(nanos(5, 0), 5_000_000);
    }
}
