//! The socket between daemon and guard: packets, and the file descriptors sent with them.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair,
};

/// File descriptors sent with one packet: input, output, error output, a file with the order, and, from
/// the guard to a reaper, a permit.
pub(super) const FDS_MAX: u32 = 5;

/// Both ends, closed on exec.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?)
}

/// Sends one packet without waiting; `WouldBlock` when the other side has too many unread.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    packet: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    send_parts(socket, &[IoSlice::new(packet)], fds)
}

/// The same, with a packet in several parts.
pub(super) fn send_parts(
    socket: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let fds: Vec<RawFd> = fds.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let control = if fds.is_empty() { &[] } else { &rights[..] };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    loop {
        match sendmsg::<()>(socket.as_raw_fd(), parts, control, flags, None) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives one packet without waiting into `packet`, which has room for all of it. Returns the descriptors sent with
/// it, as many as this process may open. An empty packet: the other side is gone.
pub(super) fn receive(socket: impl AsFd, packet: &mut Vec<u8>) -> io::Result<Vec<OwnedFd>> {
    receive_with(MsgFlags::MSG_DONTWAIT, socket, packet)
}

/// The same, and waits for one.
pub(super) fn receive_waiting(socket: impl AsFd, packet: &mut Vec<u8>) -> io::Result<Vec<OwnedFd>> {
    receive_with(MsgFlags::empty(), socket, packet)
}

/// The buffer for control messages, which carry the descriptors; aligned as the kernel wants it.
#[repr(C)]
union ControlBuffer {
    _align: libc::cmsghdr,
    bytes: [u8; CONTROL_MAX],
}

// SAFETY: it computes a number.
const CONTROL_MAX: usize = unsafe { libc::CMSG_SPACE(FDS_MAX * 4) } as usize;

/// What finds no room in the open files of this process is missing, and what has found some is returned. (nix
/// returns neither in that case, so nobody could close them.)
fn receive_with(
    flags: MsgFlags,
    socket: impl AsFd,
    packet: &mut Vec<u8>,
) -> io::Result<Vec<OwnedFd>> {
    packet.clear();
    let mut control = ControlBuffer {
        bytes: [0; CONTROL_MAX],
    };
    let mut part = libc::iovec {
        iov_base: packet.as_mut_ptr().cast(),
        iov_len: packet.capacity(),
    };
    // SAFETY: all-zero is a valid message: no name, no parts.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    let flags = (flags | MsgFlags::MSG_CMSG_CLOEXEC).bits();
    loop {
        message.msg_controllen = size_of::<ControlBuffer>() as _;
        // SAFETY: the message refers to `packet` and `control`, which live on, and to their sizes.
        let len = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
        match usize::try_from(len) {
            Ok(len) => {
                // SAFETY: the kernel has written so many bytes, no more than there is room for.
                unsafe { packet.set_len(len) };
                return Ok(descriptors(&message));
            }
            Err(_) => match Errno::last() {
                Errno::EINTR => {}
                Errno::ECONNRESET => return Ok(Vec::new()),
                errno => return Err(errno.into()),
            },
        }
    }
}

/// Takes the descriptors out of a message that was just received.
fn descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel has written whole headers with their lengths into the space that the message
    // refers to. Nobody else owns the descriptors that it has just made.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(part) = header.as_ref() {
            if part.cmsg_level == libc::SOL_SOCKET && part.cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header).cast::<[u8; 4]>();
                let end = header.cast::<u8>().wrapping_add(part.cmsg_len as _);
                for index in 0.. {
                    let fd = data.wrapping_add(index);
                    if fd.wrapping_add(1).cast() > end {
                        break;
                    }
                    fds.push(OwnedFd::from_raw_fd(RawFd::from_ne_bytes(fd.read())));
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    fds
}
