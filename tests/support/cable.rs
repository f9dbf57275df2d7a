//! A cable between two network namespaces that loses or delays packets: two TAP interfaces, and a thread that carries frames.
//! Kernels of small machines have no `netem`, and a probability needs none.
#![allow(
    unsafe_code,
    reason = "TUNSETIFF and poll take pointers, and no crate that the tests have wraps them"
)]

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::namespace::Namespace;

/// No frame here is longer.
const LONGEST: usize = 4096;
/// How long to wait for a frame before looking whether to end.
const PATIENCE: Duration = Duration::from_millis(100);
const UDP: u8 = 17;

/// A cable; it is pulled when dropped.
pub(crate) struct Cable {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Probes of every hundred that are lost from the first end to the second.
    percent: AtomicU64,
    lost: AtomicU64,
    /// Probes of every thousand that are late, and by how much.
    late_per_mille: AtomicU64,
    late_micros: AtomicU64,
}

impl Cable {
    /// Joins two interfaces, which it makes; none, with the reason, where this machine has no TAP.
    pub(crate) fn join(
        test: &str,
        first: (&Namespace, &str),
        second: (&Namespace, &str),
    ) -> Option<Self> {
        let opened = [first, second].map(|(namespace, name)| {
            let device = namespace.inside(|| tap(name));
            device.inspect(|_| {
                namespace.ip(&format!("link set {name} up"));
            })
        });
        let [Ok(first), Ok(second)] = opened else {
            eprintln!("SKIPPED: {test}: no TAP interface: {opened:?}");
            return None;
        };
        let shared = Arc::new(Shared::default());
        let carried = Arc::clone(&shared);
        let thread = thread::spawn(move || carry(&[first, second], &carried));
        Some(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Loses so many of every hundred probes from the first end to the second, at random.
    pub(crate) fn lose(&self, percent: u64) {
        self.shared.percent.store(percent, Ordering::Relaxed);
    }

    /// Delays so many of every thousand probes in each direction, at random, and no others.
    pub(crate) fn delay(&self, per_mille: u64, by: Duration) {
        self.shared
            .late_micros
            .store(by.as_micros() as u64, Ordering::Relaxed);
        self.shared
            .late_per_mille
            .store(per_mille, Ordering::Relaxed);
    }

    /// How many probes it has lost.
    pub(crate) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// A TAP interface of this name in the namespace of this thread; it is there while the file is open.
fn tap(name: &str) -> std::io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")?;
    rustix::io::ioctl_fionbio(&file, true)?;
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the file is open, and the request is a valid `ifreq` whose name ends with a zero.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if made < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(file)
}

fn carry(ends: &[File; 2], shared: &Shared) {
    let mut frame = [0; LONGEST];
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let mut late: VecDeque<(Instant, usize, Vec<u8>)> = VecDeque::new();
    while !shared.stop.load(Ordering::Relaxed) {
        let next = late
            .front()
            .map(|(due, _, _)| due.saturating_duration_since(Instant::now()));
        wait_for_frame(ends, next.map_or(PATIENCE, |next| next.min(PATIENCE)));
        let now = Instant::now();
        let is_due = |(due, _, _): &(Instant, usize, Vec<u8>)| *due <= now;
        for (_, to, frame) in late.drain(..late.iter().take_while(|one| is_due(one)).count()) {
            (&ends[to]).write_all(&frame).ok();
        }
        for (from, to) in [(0, 1), (1, 0)] {
            while let Ok(length) = (&ends[from]).read(&mut frame) {
                let frame = &frame[..length];
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                let happens = |share: &AtomicU64, of: u64| {
                    (dice >> 11) % of < share.load(Ordering::Relaxed) && is_probe(frame)
                };
                if from == 0 && happens(&shared.percent, 100) {
                    shared.lost.fetch_add(1, Ordering::Relaxed);
                } else if happens(&shared.late_per_mille, 1000) {
                    let by = Duration::from_micros(shared.late_micros.load(Ordering::Relaxed));
                    late.push_back((Instant::now() + by, to, frame.to_vec()));
                } else {
                    // An interface that was switched off accepts none.
                    (&ends[to]).write_all(frame).ok();
                }
            }
        }
    }
}

/// Waits until one of the ends has a frame, or for so long.
fn wait_for_frame(ends: &[File; 2], longest: Duration) {
    let mut waiting = [0, 1].map(|end: usize| libc::pollfd {
        fd: ends[end].as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let longest = libc::timespec {
        tv_sec: longest.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(longest.subsec_nanos() as i32),
    };
    // SAFETY: two descriptors of open files, in an array of two; the time outlives the call, and no signal mask is given.
    unsafe {
        libc::ppoll(
            waiting.as_mut_ptr(),
            2,
            &raw const longest,
            std::ptr::null(),
        )
    };
}

/// Whether an Ethernet frame is a probe that counts: UDP over IPv4 from `RSPB`, not a trace packet.
fn is_probe(frame: &[u8]) -> bool {
    let udp = frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&UDP);
    udp && frame.get(42..46) == Some(b"RSPB") && frame.get(48) == Some(&0)
}
