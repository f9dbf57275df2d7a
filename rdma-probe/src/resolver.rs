//! Makes the addresses that packets are sent to, on separate threads: for a neighbor that does not reply the kernel takes a
//! second, and the probes to others must not wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};

use crate::addresses::Route;

/// Addresses that are kept; when there are more, all are made again.
const MOST_ADDRESSES: usize = 1_024;
/// Addresses that are being made at one time.
const MOST_THREADS: usize = 16;
/// How long nothing is sent to where no address could be made, nanoseconds.
const NO_ADDRESS_FOR: u64 = 5_000_000_000;

/// Makes one address; may block.
type Make<A> = dyn Fn(&Route) -> io::Result<A> + Send + Sync;

/// The addresses of the routes that one port sends to.
pub struct Addresses<A> {
    make: Arc<Make<A>>,
    known: BTreeMap<Route, Lookup<A>>,
    waiting: VecDeque<Route>,
    threads: usize,
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

struct Made<A> {
    generation: u32,
    route: Route,
    address: io::Result<A>,
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
            threads: 0,
            generation: 0,
            sender,
            receiver,
            notice: Arc::new(notice),
        })
    }

    /// The file descriptor that becomes readable when [`collect`](Self::collect) has something to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.notice.as_fd()
    }

    /// The address of a route. One that is not known is made from now on.
    pub fn get(&mut self, route: &Route, now_nanos: u64) -> Lookup<A> {
        match self.known.get(route) {
            Some(Lookup::Absent(until)) if *until <= now_nanos => {}
            Some(known) => return known.clone(),
            None if self.known.len() >= MOST_ADDRESSES => self.forget(),
            None => {}
        }
        self.known.insert(*route, Lookup::Pending);
        self.waiting.push_back(*route);
        self.start();
        Lookup::Pending
    }

    /// Takes the addresses that were made since the last call.
    pub fn collect(&mut self, now_nanos: u64) {
        // Nothing to read is no failure: the descriptor does not block.
        rustix::io::read(&*self.notice, &mut [0; 8]).ok();
        while let Ok(made) = self.receiver.try_recv() {
            self.threads -= 1;
            if made.generation == self.generation {
                let known = made.address.map_or_else(
                    |_| Lookup::Absent(now_nanos + NO_ADDRESS_FOR),
                    Lookup::Ready,
                );
                self.known.insert(made.route, known);
            }
        }
        self.start();
    }

    /// Forgets all addresses, also those that are being made.
    pub fn forget(&mut self) {
        self.generation += 1;
        self.known.clear();
        self.waiting.clear();
    }

    /// Starts threads for the routes that wait.
    fn start(&mut self) {
        while self.threads < MOST_THREADS
            && let Some(route) = self.waiting.pop_front()
        {
            let (make, sender) = (Arc::clone(&self.make), self.sender.clone());
            let (notice, generation) = (Arc::clone(&self.notice), self.generation);
            let thread = thread::Builder::new().name("rdma-address".to_owned());
            let started = thread.spawn(move || {
                let made = Made {
                    generation,
                    route,
                    address: make(&route),
                };
                // Both fail only if the port was closed meanwhile.
                sender.send(made).ok();
                rustix::io::write(&*notice, &1_u64.to_ne_bytes()).ok();
            });
            if started.is_err() {
                // No more threads: asked for again when a packet is to be sent there.
                self.known.remove(&route);
                return;
            }
            self.threads += 1;
        }
    }
}

impl<A: fmt::Debug> fmt::Debug for Addresses<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Addresses")
            .field("known", &self.known)
            .field("waiting", &self.waiting)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Condvar, Mutex};

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn route(lid: u16) -> Route {
        Route {
            gid: [0; 16],
            from: 0,
            lid,
            flow_label: 0,
            traffic_class: 0,
            service_level: 0,
            global: false,
        }
    }

    /// A gate that threads wait at.
    #[derive(Default)]
    struct Gate(Mutex<bool>, Condvar);

    impl Gate {
        fn open(&self) {
            *self.0.lock().expect("the lock") = true;
            self.1.notify_all();
        }

        fn wait(&self) {
            let closed = |open: &mut bool| !*open;
            drop(
                self.1
                    .wait_while(self.0.lock().expect("the lock"), closed)
                    .expect("the lock"),
            );
        }
    }

    /// Sleeps until an address was made, and takes it.
    fn next(addresses: &mut Addresses<u16>, now_nanos: u64) {
        let mut fds = [PollFd::from_borrowed_fd(
            addresses.descriptor(),
            PollFlags::IN,
        )];
        poll(&mut fds, None).expect("a notice");
        addresses.collect(now_nanos);
    }

    /// Addresses of LIDs; an odd one waits at the gate, and the one after a multiple of 100 cannot be made.
    fn addresses(gate: &Arc<Gate>, calls: &Arc<AtomicUsize>) -> Addresses<u16> {
        let (gate, calls) = (Arc::clone(gate), Arc::clone(calls));
        let make = move |route: &Route| {
            calls.fetch_add(1, Ordering::SeqCst);
            if route.lid % 2 == 1 {
                gate.wait();
            }
            match route.lid % 100 {
                1 => Err(io::ErrorKind::TimedOut.into()),
                _ => Ok(route.lid),
            }
        };
        Addresses::new(make).expect("a descriptor")
    }

    #[test]
    fn an_address_that_takes_its_time_delays_no_other() {
        let (gate, calls) = Default::default();
        let mut addresses = addresses(&gate, &calls);
        for lid in [1, 3, 5] {
            assert_eq!(addresses.get(&route(lid), 0), Lookup::Pending);
        }
        for lid in [2, 4, 6] {
            assert_eq!(addresses.get(&route(lid), 0), Lookup::Pending);
            while addresses.get(&route(lid), 0) == Lookup::Pending {
                next(&mut addresses, 0);
            }
            assert_eq!(addresses.get(&route(lid), 0), Lookup::Ready(lid));
        }
        assert_eq!(addresses.get(&route(3), 0), Lookup::Pending);
        gate.open();
        while addresses.threads > 0 {
            next(&mut addresses, 7);
        }
        assert_eq!(addresses.get(&route(3), 0), Lookup::Ready(3));
        let until = 7 + NO_ADDRESS_FOR;
        assert_eq!(addresses.get(&route(1), until - 1), Lookup::Absent(until));
        assert_eq!(calls.load(Ordering::SeqCst), 6, "each was made once");
        assert_eq!(addresses.get(&route(1), until), Lookup::Pending);
    }

    #[test]
    fn threads_are_few_and_what_was_forgotten_is_made_again() {
        let (gate, calls) = Default::default();
        let mut addresses = addresses(&gate, &calls);
        for lid in 0..500 {
            addresses.get(&route(2 * lid + 1), 0);
        }
        assert_eq!(addresses.threads, MOST_THREADS);
        addresses.forget();
        assert_eq!(addresses.get(&route(3), 0), Lookup::Pending);
        gate.open();
        while addresses.threads > 0 {
            next(&mut addresses, 0);
        }
        assert_eq!(addresses.get(&route(3), 0), Lookup::Ready(3));
        assert_eq!(calls.load(Ordering::SeqCst), MOST_THREADS + 1);
        assert_eq!(addresses.known.len(), 1, "nothing of before is known");
    }

    #[test]
    fn no_more_addresses_are_kept_than_the_limit() {
        let (gate, calls) = Default::default();
        let mut addresses = addresses(&gate, &calls);
        gate.open();
        for lid in 0..3_000 {
            addresses.get(&route(lid), 0);
            assert!(addresses.known.len() <= MOST_ADDRESSES);
        }
    }
}
