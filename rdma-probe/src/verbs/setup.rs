//! Opens a port: context, memory, completion queue, two queue pairs that are ready to send.

#![expect(
    unsafe_code,
    reason = "libibverbs is a C interface; see the rules of the module above"
)]

use std::ffi::CStr;
use std::io;
use std::ptr;
use std::sync::Arc;

use rdma_sys as ib;

use super::address::Domain;
use super::completion::Queue as CompletionQueue;
use super::{Pair, Port, PortState, QUEUE_BYTES, RECEIVES, Role, SENDS, named, result};

/// Events after which a device or one of our queues is of no more use: errors of the completion queue and of a queue pair, fatal
/// error of the device (`enum ibv_event_type`).
pub(super) const FATAL_EVENTS: [u32; 5] = [0, 1, 2, 3, 8];
/// `enum ibv_port_state`: the port carries traffic.
const ACTIVE: u32 = 4;
/// Link layer of Ethernet (`IBV_LINK_LAYER_ETHERNET`).
const ETHERNET: u8 = 2;

impl Port {
    /// Opens the first active port of a device, with two new queue pairs that have these keys.
    ///
    /// # Errors
    /// `NotFound`: no such device, or none of its ports is active. `PermissionDenied`. Else the driver's.
    pub fn open(device: &str, queue_keys: [u32; 2]) -> io::Result<Self> {
        let domain = Domain::new(open_context(device)?)?;
        let number = active_port(domain.context)?.ok_or(io::ErrorKind::NotFound)?;
        // From here on dropping it destroys what was made.
        let mut port = Self {
            domain: Arc::new(domain),
            channel: ptr::null_mut(),
            completions: CompletionQueue::none(),
            region: ptr::null_mut(),
            memory: vec![0; 2 * QUEUE_BYTES].into_boxed_slice(),
            pairs: queue_keys.map(|queue_key| Pair {
                queue_pair: ptr::null_mut(),
                queue_key,
                free: (0..SENDS).collect(),
            }),
            number,
        };
        port.allocate()?;
        for role in [Role::Asks, Role::Answers] {
            port.create_pair(role)?;
            port.start(role)?;
            for slot in 0..RECEIVES {
                port.post_receive(role, slot)?;
            }
        }
        port.arm()?;
        Ok(port)
    }

    fn allocate(&mut self) -> io::Result<()> {
        // SAFETY: the context is open; each object is made from those before it; `memory` stays where it is (rule 2).
        unsafe {
            self.channel = made(
                "ibv_create_comp_channel",
                ib::ibv_create_comp_channel(self.domain.context),
            )?;
            let entries = i32::try_from(2 * (RECEIVES + SENDS)).unwrap_or(i32::MAX);
            self.completions = CompletionQueue::create(self.domain.context, self.channel, entries)?;
            let access = ib::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
            let access = i32::try_from(access).unwrap_or_default();
            let region = ib::ibv_reg_mr(
                self.domain.domain,
                self.memory.as_mut_ptr().cast(),
                self.memory.len(),
                access,
            );
            self.region = made("ibv_reg_mr", region)?;
        }
        Ok(())
    }

    fn create_pair(&mut self, role: Role) -> io::Result<()> {
        // SAFETY: a zeroed `ibv_qp_init_attr` is valid, and read during the call only.
        unsafe {
            let mut attributes: ib::ibv_qp_init_attr = std::mem::zeroed();
            attributes.send_cq = self.completions.plain();
            attributes.recv_cq = self.completions.plain();
            attributes.qp_type = ib::ibv_qp_type::IBV_QPT_UD;
            attributes.cap.max_send_wr = SENDS as u32;
            attributes.cap.max_recv_wr = RECEIVES as u32;
            attributes.cap.max_send_sge = 1;
            attributes.cap.max_recv_sge = 1;
            let queue_pair = ib::ibv_create_qp(self.domain.domain, &raw mut attributes);
            self.pairs[role as usize].queue_pair = made("ibv_create_qp", queue_pair)?;
        }
        Ok(())
    }

    /// Takes a queue pair from reset over its states to ready to send.
    fn start(&mut self, role: Role) -> io::Result<()> {
        use ib::ibv_qp_attr_mask as mask;
        use ib::ibv_qp_state::{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
        let pair = &self.pairs[role as usize];
        let first = mask::IBV_QP_STATE.0
            | mask::IBV_QP_PKEY_INDEX.0
            | mask::IBV_QP_PORT.0
            | mask::IBV_QP_QKEY.0;
        for (state, which) in [
            (IBV_QPS_INIT, first),
            (IBV_QPS_RTR, mask::IBV_QP_STATE.0),
            (IBV_QPS_RTS, mask::IBV_QP_STATE.0 | mask::IBV_QP_SQ_PSN.0),
        ] {
            // SAFETY: a zeroed `ibv_qp_attr` is valid, and read during the call only; the queue pair is ours (rule 1).
            let failed = unsafe {
                let mut attributes: ib::ibv_qp_attr = std::mem::zeroed();
                attributes.qp_state = state;
                attributes.port_num = self.number;
                attributes.qkey = pair.queue_key;
                ib::ibv_modify_qp(pair.queue_pair, &raw mut attributes, which as i32)
            };
            result("ibv_modify_qp", failed)?;
        }
        Ok(())
    }
}

/// What a port is now.
pub(super) fn port_state(context: *mut ib::ibv_context, number: u8) -> io::Result<PortState> {
    // SAFETY: callers have an open context; a zeroed `ibv_port_attr` is valid and filled in by the call.
    let (failed, state) = unsafe {
        let mut attributes: ib::ibv_port_attr = std::mem::zeroed();
        let failed = ib::___ibv_query_port(context, number, &raw mut attributes);
        (failed, attributes)
    };
    result("ibv_query_port", failed)?;
    Ok(PortState {
        active: state.state == ACTIVE,
        ethernet: state.link_layer == ETHERNET,
        lid: state.lid,
        gids: u32::try_from(state.gid_tbl_len).unwrap_or(0),
        bits_per_second: lane_rate(state.active_speed) * lanes(state.active_width),
    })
}

/// Bits a second of one lane: `active_speed` as InfiniBand's PortInfo encodes it.
fn lane_rate(speed: u8) -> u64 {
    match speed {
        1 => 2_500_000_000,
        2 => 5_000_000_000,
        4 | 8 => 10_000_000_000,
        16 => 14_000_000_000,
        32 => 25_000_000_000,
        64 => 50_000_000_000,
        128 => 100_000_000_000,
        _ => 0,
    }
}

/// Lanes: `active_width` as InfiniBand's PortInfo encodes it.
fn lanes(width: u8) -> u64 {
    match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    }
}

fn active_port(context: *mut ib::ibv_context) -> io::Result<Option<u8>> {
    // SAFETY: callers have an open context; a zeroed `ibv_device_attr` is valid and filled in by the call.
    let (failed, ports) = unsafe {
        let mut attributes: ib::ibv_device_attr = std::mem::zeroed();
        let failed = ib::ibv_query_device(context, &raw mut attributes);
        (failed, attributes.phys_port_cnt)
    };
    result("ibv_query_device", failed)?;
    for number in 1..=ports {
        if port_state(context, number)?.active {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

fn open_context(device: &str) -> io::Result<*mut ib::ibv_context> {
    let mut count = 0;
    // SAFETY: as in `devices`; a device may be opened while the list is there, and stays open after it was freed.
    unsafe {
        let list = made(
            "ibv_get_device_list",
            ib::ibv_get_device_list(&raw mut count),
        )?;
        let mut opened = Err(io::ErrorKind::NotFound.into());
        for place in 0..usize::try_from(count).unwrap_or(0) {
            let one = *list.add(place);
            if CStr::from_ptr(ib::ibv_get_device_name(one)).to_bytes() == device.as_bytes() {
                opened = made("ibv_open_device", ib::ibv_open_device(one));
            }
        }
        ib::ibv_free_device_list(list);
        opened
    }
}

/// What a call has made; null is an error.
pub(super) fn made<T>(call: &str, made: *mut T) -> io::Result<*mut T> {
    if made.is_null() {
        return Err(named(call, &io::Error::last_os_error()));
    }
    Ok(made)
}
