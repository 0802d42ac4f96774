//! A journald that a test plays: its socket, and a daemon that believes to be connected to it.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::mount::{MsFlags, mount};

/// Where journald's sockets are.
const DIRECTORY: &str = "/run/systemd/journal";

/// Whether this process may give a child a directory of its own in the place of journald's.
pub(crate) fn is_possible() -> bool {
    std::fs::create_dir_all(DIRECTORY).is_ok()
        && Command::new("unshare")
            .args(["--mount", "true"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}

/// Lets a command see `directory` in the place of journald's, with its standard error on a stream socket
/// that `JOURNAL_STREAM` names.
pub(super) fn connect(command: &mut Command, directory: &Path) {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let stat = nix::sys::stat::fstat(theirs.as_fd()).expect("an open socket");
    command.env("JOURNAL_STREAM", format!("{}:{}", stat.st_dev, stat.st_ino));
    command.stderr(Stdio::from(OwnedFd::from(theirs)));
    // The other end stays open for as long as the test runs, as journald's does.
    std::mem::forget(ours);
    let source = CString::new(directory.as_os_str().as_bytes()).expect("a path");
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if libc::unshare(libc::CLONE_NEWNS) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
            let bind = MsFlags::MS_BIND;
            mount(
                Some(source.as_c_str()),
                DIRECTORY,
                None::<&str>,
                bind,
                None::<&str>,
            )?;
            Ok(())
        });
    }
}

/// The next entry that was sent to the socket. Values of several lines are not understood.
pub(crate) fn receive(socket: &UnixDatagram) -> BTreeMap<String, String> {
    let mut buffer = vec![0; 1 << 16];
    let length = socket.recv(&mut buffer).expect("an entry in time");
    let text = String::from_utf8_lossy(&buffer[..length]);
    let fields = text.lines().filter_map(|line| line.split_once('='));
    fields
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
