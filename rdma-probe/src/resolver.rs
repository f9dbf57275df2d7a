//! Makes the addresses that packets are sent to, on separate threads: for a neighbor that does not reply the kernel takes a
//! second, and the probes to others must not wait for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};

use crate::addresses::Route;

/// Addresses that are kept. When there are more, those that were not used for longest are forgotten, half of all at once.
const MOST_ADDRESSES: usize = 1_024;
/// Addresses that this process makes at one time, for all ports.
const MOST_THREADS: usize = 16;
/// How long nothing is sent to where no address could be made, nanoseconds.
const NO_ADDRESS_FOR: u64 = 5_000_000_000;

/// Threads of this process that make addresses.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Makes one address; may block.
type Make<A> = dyn Fn(&Route) -> io::Result<A> + Send + Sync;

/// A neighbor: the other port's GID, and the index of ours.
type Neighbor = ([u8; 16], u8);

/// The addresses of the routes that one port sends to.
pub struct Addresses<A> {
    make: Arc<Make<A>>,
    known: BTreeMap<Route, Known<A>>,
    /// Routes to be resolved, by neighbor: one of each at a time, for the others wait for the same reply of the kernel.
    waiting: VecDeque<(Neighbor, Vec<Route>)>,
    /// Neighbors that are being resolved.
    resolving: BTreeSet<Neighbor>,
    generation: u32,
    sender: Sender<Made<A>>,
    receiver: Receiver<Made<A>>,
    /// Readable when an address was made, or could not be.
    notice: Arc<OwnedFd>,
}

/// What is known of a route's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup<A> {
    /// It can be sent to.
    Ready(A),
    /// It is being made.
    Pending,
    /// It could not be made; it is tried again at this time, nanoseconds of the host's clock.
    Absent(u64),
}

#[derive(Debug)]
struct Known<A> {
    address: Lookup<A>,
    used_nanos: u64,
}

/// What became of the routes to one neighbor.
struct Made<A> {
    generation: u32,
    neighbor: Neighbor,
    addresses: Vec<(Route, io::Result<A>)>,
}

impl<A: Clone + Send + 'static> Addresses<A> {
    /// No addresses yet; `make` makes one.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new(make: impl Fn(&Route) -> io::Result<A> + Send + Sync + 'static) -> io::Result<Self> {
        let notice = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (sender, receiver) = channel();
        Ok(Self {
            make: Arc::new(make),
            known: BTreeMap::new(),
            waiting: VecDeque::new(),
            resolving: BTreeSet::new(),
            generation: 0,
            sender,
            receiver,
            notice: Arc::new(notice),
        })
    }

    /// The file descriptor that becomes readable when [`collect`](Self::collect) has new addresses.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.notice.as_fd()
    }

    /// The address of a route. One that is not known is made from the next [`collect`](Self::collect) on.
    pub fn get(&mut self, route: &Route, now_nanos: u64) -> Lookup<A> {
        if let Some(known) = self.known.get_mut(route) {
            known.used_nanos = now_nanos;
            match known.address {
                Lookup::Absent(until) if until <= now_nanos => {}
                _ => return known.address.clone(),
            }
        } else if self.known.len() >= MOST_ADDRESSES {
            self.forget_older_half();
        }
        let pending = Known {
            address: Lookup::Pending,
            used_nanos: now_nanos,
        };
        self.known.insert(*route, pending);
        let neighbor = (route.gid, route.from);
        match self.waiting.iter_mut().find(|(of, _)| *of == neighbor) {
            Some((_, routes)) => routes.push(*route),
            None => self.waiting.push_back((neighbor, vec![*route])),
        }
        Lookup::Pending
    }

    /// Takes the addresses that were made since the last call, and starts threads for those that wait. True if any was made.
    pub fn collect(&mut self, now_nanos: u64) -> bool {
        // Nothing to read is no failure: the descriptor does not block.
        rustix::io::read(&*self.notice, &mut [0; 8]).ok();
        let mut any = false;
        while let Ok(made) = self.receiver.try_recv() {
            if made.generation != self.generation {
                continue;
            }
            any = true;
            self.resolving.remove(&made.neighbor);
            for (route, address) in made.addresses {
                // What was forgotten meanwhile stays so.
                if let Some(known) = self.known.get_mut(&route) {
                    let absent = |_| Lookup::Absent(now_nanos + NO_ADDRESS_FOR);
                    known.address = address.map_or_else(absent, Lookup::Ready);
                }
            }
        }
        self.start();
        any
    }

    /// Forgets all addresses, also those that are being made.
    pub fn forget(&mut self) {
        self.generation += 1;
        self.known.clear();
        self.waiting.clear();
        self.resolving.clear();
    }

    fn forget_older_half(&mut self) {
        let mut used: Vec<u64> = self.known.values().map(|known| known.used_nanos).collect();
        used.sort_unstable();
        let middle = used[used.len() / 2];
        self.known.retain(|_, known| known.used_nanos > middle);
        let known = &self.known;
        self.waiting.retain_mut(|(_, routes)| {
            routes.retain(|route| known.contains_key(route));
            !routes.is_empty()
        });
    }

    /// Starts threads for the neighbors that wait, as many as there may be; the others wait for the next call.
    fn start(&mut self) {
        let mut at = 0;
        while let Some((neighbor, _)) = self.waiting.get(at) {
            if self.resolving.contains(neighbor) {
                at += 1;
                continue;
            }
            let Some(place) = Place::take() else { return };
            let Some((neighbor, routes)) = self.waiting.remove(at) else {
                return;
            };
            let again = routes.clone();
            let (make, sender) = (Arc::clone(&self.make), self.sender.clone());
            let (notice, generation) = (Arc::clone(&self.notice), self.generation);
            let thread = thread::Builder::new().name("rdma-address".to_owned());
            let started = thread.spawn(move || {
                let made = Made {
                    generation,
                    neighbor,
                    addresses: resolve(&*make, routes),
                };
                drop(place);
                // Both fail only if the port was closed meanwhile.
                sender.send(made).ok();
                rustix::io::write(&*notice, &1_u64.to_ne_bytes()).ok();
            });
            if started.is_err() {
                self.waiting.push_front((neighbor, again));
                return;
            }
            self.resolving.insert(neighbor);
        }
    }
}

/// Makes the addresses of routes to one neighbor. If that does not reply for the first, it is not asked again for the others.
fn resolve<A>(make: &Make<A>, routes: Vec<Route>) -> Vec<(Route, io::Result<A>)> {
    let mut failed = None;
    let of = |route: Route| {
        let made = match failed {
            Some(kind) => Err(io::Error::from(kind)),
            None => make(&route),
        };
        failed = failed.or(made.as_ref().err().map(io::Error::kind));
        (route, made)
    };
    routes.into_iter().map(of).collect()
}

/// One of the process's threads.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let more = |threads| (threads < MOST_THREADS).then_some(threads + 1);
        let taken = THREADS.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<A: fmt::Debug> fmt::Debug for Addresses<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Addresses")
            .field("known", &self.known)
            .field("waiting", &self.waiting)
            .field("resolving", &self.resolving)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex, MutexGuard};

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    /// The tests share the threads of the process.
    static ONE_TEST: Mutex<()> = Mutex::new(());

    fn alone() -> MutexGuard<'static, ()> {
        ONE_TEST
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A route to a neighbor.
    fn route(neighbor: u16, flow_label: u32) -> Route {
        let mut gid = [0; 16];
        gid[14..].copy_from_slice(&neighbor.to_be_bytes());
        Route {
            gid,
            from: 0,
            lid: 0,
            flow_label,
            traffic_class: 0,
            service_level: 0,
            global: true,
        }
    }

    /// Neighbors that reply only when the gate is open, and what was asked.
    #[derive(Default)]
    struct Neighbors {
        is_open: Mutex<bool>,
        opened: Condvar,
        calls: AtomicUsize,
    }

    impl Neighbors {
        fn open(&self) {
            *self.is_open.lock().expect("the lock") = true;
            self.opened.notify_all();
        }

        /// Replies of odd neighbors wait for the gate; neighbors 1, 101, 201 and so on never reply.
        fn addresses(self: &Arc<Self>) -> Addresses<u16> {
            let all = Arc::clone(self);
            let make = move |route: &Route| {
                all.calls.fetch_add(1, Ordering::SeqCst);
                let neighbor = u16::from_be_bytes([route.gid[14], route.gid[15]]);
                if neighbor % 2 == 1 {
                    let closed = |open: &mut bool| !*open;
                    let is_open = all.is_open.lock().expect("the lock");
                    drop(all.opened.wait_while(is_open, closed).expect("the lock"));
                }
                match neighbor % 100 {
                    1 => Err(io::ErrorKind::TimedOut.into()),
                    _ => Ok(neighbor),
                }
            };
            Addresses::new(make).expect("a descriptor")
        }
    }

    /// Sleeps until there is a notice, and collects.
    fn next(addresses: &mut Addresses<u16>, now_nanos: u64) {
        let notice = addresses.descriptor();
        let mut fds = [PollFd::from_borrowed_fd(notice, PollFlags::IN)];
        poll(&mut fds, None).expect("a notice");
        addresses.collect(now_nanos);
    }

    fn all(addresses: &mut Addresses<u16>, now_nanos: u64) {
        addresses.collect(now_nanos);
        while !addresses.resolving.is_empty() {
            next(addresses, now_nanos);
        }
    }

    #[test]
    fn a_neighbor_that_does_not_reply_delays_no_other() {
        let _alone = alone();
        let neighbors = Arc::<Neighbors>::default();
        let mut addresses = neighbors.addresses();
        for neighbor in [1, 3, 5] {
            assert_eq!(addresses.get(&route(neighbor, 0), 0), Lookup::Pending);
        }
        for neighbor in [2, 4, 6] {
            assert_eq!(addresses.get(&route(neighbor, 0), 0), Lookup::Pending);
            addresses.collect(0);
            while addresses.get(&route(neighbor, 0), 0) == Lookup::Pending {
                next(&mut addresses, 0);
            }
            assert_eq!(
                addresses.get(&route(neighbor, 0), 0),
                Lookup::Ready(neighbor)
            );
        }
        assert_eq!(addresses.get(&route(3, 0), 0), Lookup::Pending);
        neighbors.open();
        all(&mut addresses, 7);
        assert_eq!(addresses.get(&route(3, 0), 7), Lookup::Ready(3));
        let until = 7 + NO_ADDRESS_FOR;
        let absent = addresses.get(&route(1, 0), until - 1);
        assert_eq!(absent, Lookup::Absent(until));
        assert_eq!(
            neighbors.calls.load(Ordering::SeqCst),
            6,
            "each was made once"
        );
        assert_eq!(addresses.get(&route(1, 0), until), Lookup::Pending);
    }

    #[test]
    fn all_routes_to_a_neighbor_wait_for_one_reply() {
        let _alone = alone();
        let neighbors = Arc::<Neighbors>::default();
        neighbors.open();
        let mut addresses = neighbors.addresses();
        for label in 0..64 {
            addresses.get(&route(1, label), 0);
            addresses.get(&route(2, label), 0);
        }
        all(&mut addresses, 0);
        for label in 0..64 {
            let absent = Lookup::Absent(NO_ADDRESS_FOR);
            assert_eq!(addresses.get(&route(1, label), 0), absent);
            assert_eq!(addresses.get(&route(2, label), 0), Lookup::Ready(2));
        }
        assert_eq!(neighbors.calls.load(Ordering::SeqCst), 1 + 64);
    }

    #[test]
    fn threads_are_few_for_all_ports_and_what_was_forgotten_is_made_again() {
        let _alone = alone();
        let neighbors = Arc::<Neighbors>::default();
        let mut ports = [neighbors.addresses(), neighbors.addresses()];
        for neighbor in 0..500 {
            for port in &mut ports {
                port.get(&route(2 * neighbor + 1, 0), 0);
                port.collect(0);
            }
        }
        assert_eq!(THREADS.load(Ordering::SeqCst), MOST_THREADS);
        let [port, other] = &mut ports;
        port.forget();
        other.forget();
        assert_eq!(port.get(&route(3, 0), 0), Lookup::Pending);
        neighbors.open();
        while port.get(&route(3, 0), 0) == Lookup::Pending {
            port.collect(0);
            thread::yield_now();
        }
        assert_eq!(port.get(&route(3, 0), 0), Lookup::Ready(3));
        assert_eq!(port.known.len(), 1, "earlier addresses are forgotten");
        assert_eq!(neighbors.calls.load(Ordering::SeqCst), MOST_THREADS + 1);
    }

    #[test]
    fn of_too_many_addresses_those_in_use_are_kept() {
        let _alone = alone();
        let neighbors = Arc::<Neighbors>::default();
        let mut addresses = neighbors.addresses();
        for neighbor in 0..3_000 {
            addresses.get(&route(2 * neighbor, 0), u64::from(neighbor));
            assert!(addresses.known.len() <= MOST_ADDRESSES);
            assert!(addresses.waiting.len() <= MOST_ADDRESSES);
            if neighbor % 100 == 0 {
                all(&mut addresses, u64::from(neighbor));
            }
            let used = addresses.get(&route(0, 0), u64::from(neighbor));
            assert!(
                neighbor < 1 || used == Lookup::Ready(0),
                "{neighbor}: {used:?}"
            );
        }
    }
}
