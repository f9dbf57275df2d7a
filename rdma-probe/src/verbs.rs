//! The only code that calls libibverbs: one port of one device with two datagram queue pairs, as a safe type.
//!
//! What all `unsafe` blocks here rest on:
//!
//! 1. A [`Port`] owns every object that it has made. Pointers are not null from [`Port::open`] on, are not handed out, and are
//!    destroyed once, in [`Port::drop`], each before the object that it was made from. Device and protection domain are shared
//!    with the addresses: what is made from them holds a reference.
//! 2. `memory` is registered with the device and is neither moved nor freed before the registration ends: it is a boxed slice,
//!    and nothing changes its length. The device writes to it, so it is only read and written by raw pointers.
//! 3. A slot of it belongs to the device from the moment a request with its number is posted until that request's completion
//!    was polled, and to us otherwise. Only slots that are ours are touched.
//! 4. All methods that change anything take `&mut self`, and a `Port` is used by one thread at a time. Other threads make and
//!    drop addresses meanwhile, which libibverbs allows.

#![expect(unsafe_code, reason = "libibverbs is a C interface")]

mod address;
mod completion;
mod setup;

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;

use rdma_sys as ib;

use address::Domain;
pub use address::{Address, AddressMaker};
pub use completion::Completion;
use completion::Queue as CompletionQueue;

use crate::addresses::{HEADER, Source};
use crate::wire::LENGTH;

/// Receive slots of each queue pair: the answers to all that is sent in 50 ms at the highest rate.
const RECEIVES: usize = 128;
/// Send slots of each queue pair.
const SENDS: usize = 128;
/// A receive slot holds the longest datagram that InfiniBand and RoCE carry: a longer one would be an error of the queue pair.
const RECEIVE_BYTES: usize = HEADER + 4_096;
/// Bytes of all slots of one queue pair.
const QUEUE_BYTES: usize = RECEIVES * RECEIVE_BYTES + SENDS * LENGTH;

/// Which of a port's two queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends questions and receives answers.
    Asks,
    /// Receives questions and sends answers.
    Answers,
}

/// What a port is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortState {
    /// Whether it carries traffic.
    pub active: bool,
    /// Whether its link is Ethernet, not InfiniBand.
    pub ethernet: bool,
    /// Its local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Entries of its GID table.
    pub gids: u32,
    /// Signalling rate of all lanes, bits a second; 0 if not known.
    pub bits_per_second: u64,
}

/// One port of a device, with its two queue pairs. See the module's rules.
#[derive(Debug)]
pub struct Port {
    domain: Arc<Domain>,
    channel: *mut ib::ibv_comp_channel,
    completions: CompletionQueue,
    region: *mut ib::ibv_mr,
    memory: Box<[u8]>,
    pairs: [Pair; 2],
    number: u8,
}

// SAFETY: libibverbs objects may be used by any thread; rule 4 leaves one at a time.
unsafe impl Send for Port {}

#[derive(Debug)]
struct Pair {
    queue_pair: *mut ib::ibv_qp,
    queue_key: u32,
    /// Send slots that are ours.
    free: Vec<usize>,
}

/// Names of the devices of this machine, each with its character device (`uverbs0`), which vanishes first when the device is
/// removed.
///
/// # Errors
/// There is no RDMA in this kernel, or its devices cannot be listed.
pub fn devices() -> io::Result<Vec<(String, String)>> {
    let mut count = 0;
    // SAFETY: the list is null or ends behind `count` devices, and is freed once, after its last use.
    unsafe {
        let list = ib::ibv_get_device_list(&raw mut count);
        if list.is_null() {
            return Err(io::Error::last_os_error());
        }
        let count = usize::try_from(count).unwrap_or(0);
        let names = (0..count).map(|place| {
            let device = *list.add(place);
            let name = CStr::from_ptr(ib::ibv_get_device_name(device));
            let node = CStr::from_ptr((*device).dev_name.as_ptr());
            let text = |text: &CStr| text.to_string_lossy().into_owned();
            (text(name), text(node))
        });
        let names = names.collect();
        ib::ibv_free_device_list(list);
        Ok(names)
    }
}

impl Port {
    /// The file descriptors that become readable when there are completions, and events of the device.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        // SAFETY: both are open as long as channel and context are (rule 1), which the borrow outlasts not.
        unsafe {
            [
                BorrowedFd::borrow_raw((*self.channel).fd),
                BorrowedFd::borrow_raw((*self.domain.context).async_fd),
            ]
        }
    }

    /// What the port is now.
    ///
    /// # Errors
    /// The driver's, such as that the device is gone.
    pub fn state(&self) -> io::Result<PortState> {
        setup::port_state(self.domain.context, self.number)
    }

    /// Number of the port on its device, from 1.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Whether the NIC takes the times of completions.
    pub fn has_timestamps(&self) -> bool {
        self.completions.has_timestamps()
    }

    /// Number of a queue pair and its key.
    pub fn queue_pair(&self, role: Role) -> (u32, u32) {
        let pair = &self.pairs[role as usize];
        // SAFETY: rule 1.
        (unsafe { (*pair.queue_pair).qp_num }, pair.queue_key)
    }

    /// Makes the addresses that the port can send to.
    pub fn addresses(&self) -> AddressMaker {
        AddressMaker {
            domain: Arc::clone(&self.domain),
            port: self.number,
        }
    }

    /// Sends 64 bytes to a queue pair. The tag comes back with the completion.
    ///
    /// # Errors
    /// `WouldBlock`: all slots are in use. `NotFound`: the address is another port's. Else the driver's.
    pub fn send(
        &mut self,
        role: Role,
        (address, queue_pair, queue_key): (&Address, u32, u32),
        bytes: &[u8; LENGTH],
    ) -> io::Result<()> {
        let handle = address.of(&self.domain).ok_or(io::ErrorKind::NotFound)?;
        let pair = &mut self.pairs[role as usize];
        let Some(slot) = pair.free.pop() else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let base = role as usize * QUEUE_BYTES + RECEIVES * RECEIVE_BYTES + slot * LENGTH;
        // SAFETY: rules 2 and 3: the slot is within `memory` and ours; the device may read it once it is posted. A zeroed
        // `ibv_send_wr` is valid, and request and list are read during the call only.
        let failed = unsafe {
            let at = self.memory.as_mut_ptr().add(base);
            ptr::copy_nonoverlapping(bytes.as_ptr(), at, LENGTH);
            let mut list = ib::ibv_sge {
                addr: at as u64,
                length: LENGTH as u32,
                lkey: (*self.region).lkey,
            };
            let mut request: ib::ibv_send_wr = std::mem::zeroed();
            request.wr_id = completion::request(role, true, slot);
            request.sg_list = &raw mut list;
            request.num_sge = 1;
            request.opcode = ib::ibv_wr_opcode::IBV_WR_SEND;
            request.send_flags = ib::ibv_send_flags::IBV_SEND_SIGNALED.0;
            request.wr.ud = ib::ud_t {
                ah: handle,
                remote_qpn: queue_pair,
                remote_qkey: queue_key,
            };
            let mut bad = ptr::null_mut();
            ib::ibv_post_send(pair.queue_pair, &raw mut request, &raw mut bad)
        };
        if failed != 0 {
            pair.free.push(slot);
            return Err(io::Error::from_raw_os_error(failed));
        }
        Ok(())
    }

    /// Asks to be told by the descriptor of the next completion.
    ///
    /// # Errors
    /// The driver's.
    pub fn arm(&mut self) -> io::Result<()> {
        // SAFETY: rule 1.
        let failed = unsafe { ib::ibv_req_notify_cq(self.completions.plain(), 0) };
        result("ibv_req_notify_cq", failed)
    }

    /// Takes one notice of completions from the descriptor, which has become readable.
    ///
    /// # Errors
    /// The device's file is gone.
    pub fn take_notice(&mut self) -> io::Result<()> {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: rule 1; the notice is for our only completion queue, and acknowledged once.
        unsafe {
            if ib::ibv_get_cq_event(self.channel, &raw mut queue, &raw mut context) != 0 {
                return Err(io::Error::last_os_error());
            }
            ib::ibv_ack_cq_events(queue, 1);
        }
        Ok(())
    }

    /// Takes one event of the device from the descriptor, which has become readable; true if the device or a queue is of
    /// no more use.
    ///
    /// # Errors
    /// The device's file is gone.
    pub fn take_event(&mut self) -> io::Result<bool> {
        // The kernel's numbers are not all known to the bindings' enumeration, so it is read as bytes.
        let mut event = std::mem::MaybeUninit::<ib::ibv_async_event>::zeroed();
        // SAFETY: rule 1; the call fills the event in; its type is read as the number that C has there, and it is acknowledged once.
        unsafe {
            if ib::ibv_get_async_event(self.domain.context, event.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let kind = (&raw const (*event.as_ptr()).event_type)
                .cast::<u32>()
                .read();
            ib::ibv_ack_async_event(event.as_mut_ptr());
            Ok(setup::FATAL_EVENTS.contains(&kind))
        }
    }

    /// Takes up to 64 completions, and posts the receive slots among them again.
    ///
    /// # Errors
    /// A request failed, or the driver did: the port is of no more use.
    pub fn poll(&mut self, into: &mut Vec<Completion>) -> io::Result<()> {
        into.clear();
        for raw in self.completions.poll()? {
            let (role, is_send, slot) = completion::requested(raw.request);
            if raw.status != ib::ibv_wc_status::IBV_WC_SUCCESS {
                let status = raw.status;
                return Err(io::Error::other(format!(
                    "a request failed with status {status}"
                )));
            }
            let base = role as usize * QUEUE_BYTES;
            if is_send {
                let base = base + RECEIVES * RECEIVE_BYTES + slot * LENGTH;
                // SAFETY: rules 2 and 3: the request is complete, so the slot is ours.
                let bytes = unsafe { self.memory.as_ptr().add(base).cast::<[u8; LENGTH]>().read() };
                self.pairs[role as usize].free.push(slot);
                into.push(Completion::Sent {
                    role,
                    bytes,
                    nic_nanos: raw.nic_nanos,
                });
            } else {
                let length = (raw.bytes as usize).saturating_sub(HEADER).min(4_096);
                // SAFETY: as above; `length` keeps within the slot, and all of `memory` was initialized at the start.
                let (header, bytes) = unsafe {
                    let at = self.memory.as_ptr().add(base + slot * RECEIVE_BYTES);
                    let bytes = std::slice::from_raw_parts(at.add(HEADER), length.min(LENGTH + 1));
                    (at.cast::<[u8; HEADER]>().read(), bytes.to_vec())
                };
                self.post_receive(role, slot)?;
                into.push(Completion::Received {
                    role,
                    bytes,
                    source: Source {
                        header,
                        ..raw.source
                    },
                    nic_nanos: raw.nic_nanos,
                });
            }
        }
        Ok(())
    }

    /// Gives a receive slot to the device.
    fn post_receive(&mut self, role: Role, slot: usize) -> io::Result<()> {
        let base = role as usize * QUEUE_BYTES + slot * RECEIVE_BYTES;
        // SAFETY: rules 2 and 3: the slot is within `memory` and ours until it is posted; request and list are read during the
        // call only.
        let failed = unsafe {
            let mut list = ib::ibv_sge {
                addr: self.memory.as_mut_ptr().add(base) as u64,
                length: RECEIVE_BYTES as u32,
                lkey: (*self.region).lkey,
            };
            let mut request = ib::ibv_recv_wr {
                wr_id: completion::request(role, false, slot),
                next: ptr::null_mut(),
                sg_list: &raw mut list,
                num_sge: 1,
            };
            let mut bad = ptr::null_mut();
            let queue_pair = self.pairs[role as usize].queue_pair;
            ib::ibv_post_recv(queue_pair, &raw mut request, &raw mut bad)
        };
        result("ibv_post_recv", failed)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: rule 1: each once, before what it was made from. A null pointer is of a port that was opened half.
        // Failures, as after the device was removed, leave nothing to do: the kernel cleans up when the context is closed.
        unsafe {
            for pair in &self.pairs {
                if !pair.queue_pair.is_null() {
                    ib::ibv_destroy_qp(pair.queue_pair);
                }
            }
            if !self.region.is_null() {
                ib::ibv_dereg_mr(self.region);
            }
            self.completions.destroy();
            if !self.channel.is_null() {
                ib::ibv_destroy_comp_channel(self.channel);
            }
        }
    }
}

/// An error number of libibverbs, 0 for none, and which call said it.
fn result(call: &str, failed: i32) -> io::Result<()> {
    match failed {
        0 => Ok(()),
        error => Err(named(call, &io::Error::from_raw_os_error(error))),
    }
}

/// The error with the call that failed before it; it stays of its kind.
fn named(call: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{call}: {error}"))
}
