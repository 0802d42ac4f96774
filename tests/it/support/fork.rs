//! A kernel that has no memory for another process, as a filter of system calls plays it.

#[path = "../../support/seccomp.rs"]
mod seccomp;

use std::io;

use seccomp::{allow, install, is, load, refuse, step};

/// Makes each fork fail with ENOMEM, in this process and in all that come from it.
///
/// `clone3` is unknown, which makes the C library fall back to `clone`. Its flags tell a fork from
/// a thread and from `posix_spawn`, which share the memory of their parent and are let through.
pub(crate) fn refuse_forks() -> io::Result<()> {
    let shares_memory = step(
        libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K,
        1,
        0,
        libc::CLONE_VM.unsigned_abs(),
    );
    install(&mut [
        // The number of the system call; the low half of its first argument begins at byte 16.
        load(0),
        is(libc::SYS_clone3, 5, 0),
        is(libc::SYS_clone, 0, 3),
        load(16),
        shares_memory,
        refuse(libc::ENOMEM),
        allow(),
        refuse(libc::ENOSYS),
    ])
}
