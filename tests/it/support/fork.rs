//! A kernel that has no memory for another process, as a filter of system calls plays it.

use std::io;

/// Makes each fork fail with ENOMEM, in this process and in all that come from it.
///
/// `clone3` is unknown, which makes the C library fall back to `clone`. Its flags tell a fork from
/// a thread and from `posix_spawn`, which share the memory of their parent and are let through.
pub(crate) fn refuse() -> io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).expect("a 16-bit code"),
        jt,
        jf,
        k,
    };
    let load = |offset| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let is = |number: libc::c_long, jt, jf| {
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            jt,
            jf,
            u32::try_from(number).expect("a small number"),
        )
    };
    let refuse = |errno: i32| {
        let value = libc::SECCOMP_RET_ERRNO | errno.unsigned_abs();
        step(libc::BPF_RET | libc::BPF_K, 0, 0, value)
    };
    let shares_memory = step(
        libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K,
        1,
        0,
        libc::CLONE_VM.unsigned_abs(),
    );
    let mut steps = [
        // The number of the system call; the low half of its first argument begins at byte 16.
        load(0),
        is(libc::SYS_clone3, 5, 0),
        is(libc::SYS_clone, 0, 3),
        load(16),
        shares_memory,
        refuse(libc::ENOMEM),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        refuse(libc::ENOSYS),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(steps.len()).expect("eight"),
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
