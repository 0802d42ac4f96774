//! Filters of system calls, with which a test process plays a kernel that refuses some of them.

use std::io;

/// One step of a filter. `jt` and `jf` are how many steps it skips if its test holds, and if it does not.
pub(crate) fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: u16::try_from(code).expect("a 16-bit code"),
        jt,
        jf,
        k,
    }
}

/// The last step for a call that fails with this error.
pub(crate) fn refuse(errno: i32) -> libc::sock_filter {
    let value = libc::SECCOMP_RET_ERRNO | errno.unsigned_abs();
    step(libc::BPF_RET | libc::BPF_K, 0, 0, value)
}

/// The last step for a call that is let through.
pub(crate) fn allow() -> libc::sock_filter {
    step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW)
}

/// A test whether the loaded word is the number of this system call.
pub(crate) fn is(number: libc::c_long, jt: u8, jf: u8) -> libc::sock_filter {
    step(
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        jt,
        jf,
        u32::try_from(number).expect("a small number"),
    )
}

/// Loads a word of what the filter sees, from this byte on. The first word is the number of the system call.
pub(crate) fn load(offset: u32) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
}

/// Puts a filter into force in this process, and in all that come from it.
pub(crate) fn install(steps: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(steps.len()).expect("a few steps"),
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: plain integers, and a filter that outlives the call.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    if done {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
