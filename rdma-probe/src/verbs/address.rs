//! Addresses that datagrams are sent to, and the device that they belong to.

#![expect(
    unsafe_code,
    reason = "libibverbs is a C interface; see the rules of the module above"
)]

use std::io;
use std::ptr;
use std::sync::Arc;

use rdma_sys as ib;

use super::setup::made;
use crate::addresses::Route;

/// A device that is open, and its protection domain. Both are closed when the last object that needs them is dropped.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) context: *mut ib::ibv_context,
    pub(super) domain: *mut ib::ibv_pd,
}

// SAFETY: verbs may be called by every thread, also on objects of the same domain (rdmamojo.com, "libibverbs thread safe level"),
// and the pointers do not change after `new`.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    /// Takes an open device, which is closed also if this fails.
    pub(super) fn new(context: *mut ib::ibv_context) -> io::Result<Self> {
        let mut of = Self {
            context,
            domain: ptr::null_mut(),
        };
        // SAFETY: the context is open.
        of.domain = made("ibv_alloc_pd", unsafe { ib::ibv_alloc_pd(context) })?;
        Ok(of)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: rule 1: what was made from them is gone. Failures, as after the device was removed, leave nothing to do: the
        // kernel cleans up when the context is closed.
        unsafe {
            if !self.domain.is_null() {
                ib::ibv_dealloc_pd(self.domain);
            }
            ib::ibv_close_device(self.context);
        }
    }
}

/// Makes addresses for one port, on any thread.
#[derive(Debug, Clone)]
pub struct AddressMaker {
    pub(super) domain: Arc<Domain>,
    pub(super) port: u8,
}

/// An address that its port can send to.
#[derive(Debug, Clone)]
pub struct Address(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    address: *mut ib::ibv_ah,
    domain: Arc<Domain>,
}

// SAFETY: as for `Domain`.
unsafe impl Send for Handle {}
// SAFETY: as for `Domain`.
unsafe impl Sync for Handle {}

impl AddressMaker {
    /// An address for datagrams to another port. May block for a second.
    ///
    /// # Errors
    /// The driver's: on RoCE it resolves the neighbor, which may be absent.
    pub fn make(&self, route: &Route) -> io::Result<Address> {
        let mut attributes = ib::ibv_ah_attr {
            grh: ib::ibv_global_route {
                dgid: ib::ibv_gid { raw: route.gid },
                flow_label: route.flow_label,
                sgid_index: route.from,
                hop_limit: 64,
                traffic_class: route.traffic_class,
            },
            dlid: route.lid,
            sl: route.service_level,
            src_path_bits: 0,
            static_rate: 0,
            is_global: u8::from(route.global),
            port_num: self.port,
        };
        // SAFETY: the domain is there (rule 1); the attributes are read during the call only.
        let address = unsafe { ib::ibv_create_ah(self.domain.domain, &raw mut attributes) };
        Ok(Address(Arc::new(Handle {
            address: made("ibv_create_ah", address)?,
            domain: Arc::clone(&self.domain),
        })))
    }
}

impl Address {
    /// The handle, if it is of this domain.
    pub(super) fn of(&self, domain: &Arc<Domain>) -> Option<*mut ib::ibv_ah> {
        Arc::ptr_eq(&self.0.domain, domain).then_some(self.0.address)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by `make`, destroyed once, while its domain is there. What is still being sent to it may be lost. A
        // failure leaves an address in the kernel until the device is closed.
        unsafe { ib::ibv_destroy_ah(self.address) };
    }
}
