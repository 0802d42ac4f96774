//! The socket between daemon and guard: packets, and the file descriptors sent with them.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};

/// File descriptors sent with one packet: input, output, error output, a file with the order, and, from
/// the guard to a reaper, a permit.
pub(super) const FDS_MAX: usize = 5;

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
    let fds: Vec<RawFd> = fds.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let beside = if fds.is_empty() { &[] } else { &rights[..] };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    loop {
        match sendmsg::<()>(
            socket.as_raw_fd(),
            &[IoSlice::new(packet)],
            beside,
            flags,
            None,
        ) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives one packet without waiting into `buffer`: its length and the descriptors sent with it. Zero
/// bytes: the other side is gone.
pub(super) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    receive_with(MsgFlags::MSG_DONTWAIT, socket, buffer)
}

/// The same, and waits for one.
pub(super) fn receive_waiting(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    receive_with(MsgFlags::empty(), socket, buffer)
}

fn receive_with(
    flags: MsgFlags,
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = nix::cmsg_space!([RawFd; FDS_MAX]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
    loop {
        let message = match recvmsg::<()>(
            socket.as_fd().as_raw_fd(),
            &mut parts,
            Some(&mut space),
            flags,
        ) {
            Ok(message) => message,
            Err(Errno::EINTR) => continue,
            Err(Errno::ECONNRESET) => return Ok((0, Vec::new())),
            Err(error) => return Err(error.into()),
        };
        let mut fds = Vec::new();
        for part in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = part {
                // SAFETY: the kernel has just made these descriptors for us; nobody else owns
                // them. nix hands them out raw.
                fds.extend(
                    raw.into_iter()
                        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
                );
            }
        }
        return Ok((message.bytes, fds));
    }
}
