//! The memory allocator of the C library.

#![allow(unsafe_code)] // one call into the C library

/// Lets all threads of the process share one arena. To be called before there are any.
///
/// glibc gives each thread an arena of its own, up to eight for each CPU (`mallopt(3)`, `M_ARENA_MAX`), and each
/// keeps the most that its thread ever needed. A page is half a megabyte, and made on whichever thread
/// is asked: without a limit the resident size creeps up for a day, the more the more CPUs there are. Our few threads
/// never wait for one arena.
pub fn share_one_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: takes two numbers and changes only the allocator's own settings.
        let taken = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        if taken == 0 {
            tracing::debug!("the allocator takes no limit on arenas");
        }
    }
}
