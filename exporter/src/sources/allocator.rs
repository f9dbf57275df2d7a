//! The memory allocator of the C library.

#![allow(unsafe_code)] // calls into the C library

/// Blocks of this size, bytes, come from the kernel and go back to it: glibc's own first threshold.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MMAP_THRESHOLD: i32 = 128 << 10;

/// Keeps the resident size flat: one arena for all threads of the process, and no large blocks in it. To be
/// called before there are threads.
///
/// glibc gives each thread a separate arena, up to eight for each CPU (`mallopt(3)`, `M_ARENA_MAX`), and each
/// keeps the most that its thread ever needed. An exposition is built on whichever thread handles the request: without a limit
/// the resident size creeps up for a day, the more the more CPUs there are. Our few threads never wait for one arena.
///
/// glibc raises its threshold to the largest block that was ever freed (`M_MMAP_THRESHOLD`). From then on expositions
/// of the full profile, 0.2 MB and more, are in the heap briefly, and labels that are allocated meanwhile and stay,
/// of a device that was plugged in or of a new NVML worker, stand above them: the heap never shrinks below these
/// again.
pub fn keep_memory_flat() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (setting, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD),
    ] {
        // SAFETY: takes two numbers and changes only the allocator's own settings.
        let taken = unsafe { libc::mallopt(setting, value) };
        if taken == 0 {
            tracing::debug!(setting, value, "the allocator does not take this");
        }
    }
}
