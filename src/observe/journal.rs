//! The journal of systemd, by its native protocol: each entry has fields that `journalctl` can select.
//!
//! The protocol is described in <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>: one datagram for each
//! entry, or a sealed memory file for one that does not fit into a datagram.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::plain::plain_event;
use super::stderr::Stderr;

/// Where journald listens.
const SOCKET: &str = "/run/systemd/journal/socket";

/// How long an entry waits for journald to read.
const PATIENCE: Duration = Duration::from_millis(500);

/// The ids of messages that programs look for: the name of an event, and its `MESSAGE_ID`.
const MESSAGE_IDS: [(&str, &str); 4] = [
    ("run_started", "56ab80c72f8c476db47dbabd85c3df20"),
    ("run_output", "e7f446c3a86442a5bc368f15daf04328"),
    ("run_finished", "a5c010de6fd24d5d93cf75a6efb74eb5"),
    ("lease_lost", "8e8361a829bc468baff4e145781a4c33"),
];

/// Sends events to the journal. Never blocks for longer than [`PATIENCE`].
#[derive(Debug)]
pub(super) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
    /// How many entries were dropped since one was sent last.
    dropped: Mutex<u64>,
}

impl Journal {
    /// The journal of this machine; an error if journald does not listen.
    pub(super) fn open() -> io::Result<Self> {
        Self::at(Path::new(SOCKET))
    }

    fn at(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        // Whether somebody listens; the entries name the address again, so that journald may restart.
        UnixDatagram::unbound()?.connect(path)?;
        Ok(Self {
            socket,
            path: path.to_owned(),
            dropped: Mutex::new(0),
        })
    }

    fn send(&self, entry: &JournalEntry) {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        // While entries are dropped none waits: journald is known to be away.
        let patience = if *dropped == 0 {
            PATIENCE
        } else {
            Duration::ZERO
        };
        let mut packet = Vec::with_capacity(512);
        entry.write_to(&mut packet);
        if *dropped > 0 {
            write_field(
                &mut packet,
                "CRONLATCH_DROPPED_ENTRIES",
                &dropped.to_string(),
            );
        }
        match self.send_packet(&packet, Instant::now() + patience) {
            Ok(()) => *dropped = 0,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => *dropped += 1,
            // journald is gone. Standard error may still be read.
            Err(_) => {
                let line = format!("<{}>{}\n", entry.priority, entry.message());
                let _ = Stderr { colours: false }.write_all(line.as_bytes());
            }
        }
    }

    fn send_packet(&self, packet: &[u8], until: Instant) -> io::Result<()> {
        loop {
            match self.socket.send_to(packet, &self.path) {
                Ok(_) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                    return self.send_in_file(packet);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = until.saturating_duration_since(Instant::now());
                    let left = u16::try_from(left.as_millis()).unwrap_or(u16::MAX);
                    // An unconnected socket has room before its receiver has: look again soon.
                    let step = left.min(10);
                    if left == 0 {
                        return Err(error);
                    }
                    let mut room = [PollFd::new(self.socket.as_fd(), PollFlags::POLLERR)];
                    let _ = poll(&mut room, PollTimeout::from(step));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Passes an entry that is too large for a datagram in a memory file that nobody can change.
    fn send_in_file(&self, packet: &[u8]) -> io::Result<()> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let mut file = File::from(memfd_create(c"cronlatch-journal", flags)?);
        file.write_all(packet)?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::all()))?;
        let fds = [file.as_raw_fd()];
        sendmsg(
            self.socket.as_raw_fd(),
            &[IoSlice::new(&[])],
            &[ControlMessage::ScmRights(&fds)],
            MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
            Some(&UnixAddr::new(&self.path)?),
        )?;
        Ok(())
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut entry = JournalEntry {
            priority: priority(*metadata.level()),
            id: MESSAGE_IDS
                .iter()
                .find(|(name, _)| *name == metadata.name())
                .map(|(_, id)| *id),
            text: String::new(),
            fields: Vec::new(),
        };
        event.record(&mut entry);
        self.send(&entry);
    }
}

/// The priority of syslog(3).
pub(super) fn priority(level: Level) -> u8 {
    if level == Level::ERROR {
        3
    } else if level == Level::WARN {
        4
    } else if level == Level::INFO {
        6
    } else {
        7
    }
}

/// An entry of the journal.
#[derive(Debug)]
struct JournalEntry {
    priority: u8,
    id: Option<&'static str>,
    text: String,
    /// The fields of the event: name, value, and the value as the text log shows it.
    fields: Vec<(&'static str, String, String)>,
}

impl JournalEntry {
    /// What `journalctl` shows: the same line as that of the text log.
    fn message(&self) -> String {
        let mut line = self.text.clone();
        for (name, _, shown) in &self.fields {
            let blank = if line.is_empty() { "" } else { " " };
            // Writing to a `String` cannot fail.
            let _ = write!(line, "{blank}{name}={shown}");
        }
        plain_event(&line).into_owned()
    }

    fn write_to(&self, packet: &mut Vec<u8>) {
        write_field(packet, "MESSAGE", &self.message());
        write_field(packet, "PRIORITY", &self.priority.to_string());
        write_field(packet, "SYSLOG_IDENTIFIER", "cronlatch");
        if let Some(id) = self.id {
            write_field(packet, "MESSAGE_ID", id);
        }
        for (name, value, _) in &self.fields {
            write_field(packet, &journal_name(name), value);
        }
    }
}

impl Visit for JournalEntry {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.text);
        } else {
            let shown = format!("{value:?}");
            self.fields.push((field.name(), value.to_owned(), shown));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        if field.name() == "message" {
            self.text = value;
        } else {
            self.fields.push((field.name(), value.clone(), value));
        }
    }
}

/// The name of a field in the journal: that of the variable which the job sees, where there is one.
fn journal_name(field: &str) -> String {
    let name = match field {
        "fence" => "FENCING_TOKEN",
        other => other,
    };
    let name: String = name
        .chars()
        .map(|c| match c.to_ascii_uppercase() {
            c @ ('A'..='Z' | '0'..='9') => c,
            _ => '_',
        })
        .collect();
    format!("CRONLATCH_{name}")
}

fn write_field(packet: &mut Vec<u8>, name: &str, value: &str) {
    packet.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        packet.push(b'\n');
        packet.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        packet.push(b'=');
    }
    packet.extend_from_slice(value.as_bytes());
    packet.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

    use nix::sys::socket::{ControlMessageOwned, recvmsg};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    struct Journald {
        socket: UnixDatagram,
        dir: tempfile::TempDir,
    }

    impl Journald {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let socket = UnixDatagram::bind(dir.path().join("socket")).expect("a free path");
            Self { socket, dir }
        }

        fn journal(&self) -> Journal {
            Journal::at(&self.dir.path().join("socket")).expect("it listens")
        }

        /// The next entry: from the datagram, or from the memory file that came with it.
        fn receive(&self) -> Vec<u8> {
            let mut buffer = vec![0; 1 << 20];
            let mut space = nix::cmsg_space!([RawFd; 1]);
            let mut parts = [io::IoSliceMut::new(&mut buffer)];
            let fd = self.socket.as_raw_fd();
            let message = recvmsg::<()>(fd, &mut parts, Some(&mut space), MsgFlags::empty());
            let message = message.expect("an entry");
            let rights = message.cmsgs().expect("whole").find_map(|with| match with {
                ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
                _ => None,
            });
            let length = message.bytes;
            let Some(fd) = rights else {
                buffer.truncate(length);
                return buffer;
            };
            // SAFETY: the kernel has just made this descriptor for us.
            let file = unsafe { OwnedFd::from_raw_fd(fd) };
            let mut entry = Vec::new();
            let mut file = File::from(file);
            std::io::Seek::rewind(&mut file).expect("a file");
            file.read_to_end(&mut entry).expect("a file");
            entry
        }
    }

    fn logged(journal: Journal, log: impl FnOnce()) {
        let subscriber = tracing_subscriber::registry().with(journal);
        tracing::subscriber::with_default(subscriber, log);
    }

    #[test]
    fn an_entry_has_the_fields_of_its_event_and_the_line_of_the_text_log() {
        let journald = Journald::new();
        logged(journald.journal(), || {
            tracing::warn!(name: "run_output", job = %"backup", run_id = %"r1", stream = "stderr",
                "disk\x1b[2J\nfull");
        });
        let entry = String::from_utf8(journald.receive()).expect("text");
        assert_eq!(
            entry,
            "MESSAGE=disk\\u001b[2J\\u000afull job=backup run_id=r1 stream=\"stderr\"\nPRIORITY=4\n\
             SYSLOG_IDENTIFIER=cronlatch\nMESSAGE_ID=e7f446c3a86442a5bc368f15daf04328\n\
             CRONLATCH_JOB=backup\nCRONLATCH_RUN_ID=r1\nCRONLATCH_STREAM=stderr\n"
        );
    }

    #[test]
    fn a_value_of_several_lines_cannot_forge_a_field() {
        let mut packet = Vec::new();
        write_field(&mut packet, "A", "b\nPRIORITY=0");
        assert_eq!(packet, b"A\n\x0c\0\0\0\0\0\0\0b\nPRIORITY=0\n");
    }

    #[test]
    fn an_entry_that_is_too_large_for_a_datagram_arrives_whole() {
        let journald = Journald::new();
        let text = "x".repeat(2 << 20);
        logged(journald.journal(), || tracing::info!("{text}"));
        let entry = String::from_utf8(journald.receive()).expect("text");
        assert!(entry.starts_with(&format!("MESSAGE={text}\nPRIORITY=6\n")));
    }

    #[test]
    fn a_journald_that_does_not_read_drops_entries_and_is_told_how_many() {
        let journald = Journald::new();
        let began = Instant::now();
        logged(journald.journal(), || {
            for n in 0..2000 {
                tracing::info!("entry {n}");
            }
            let waited = began.elapsed();
            assert!(
                waited < Duration::from_secs(60),
                "each entry waited: {waited:?}"
            );
            // The socket has room again.
            for _ in 0..5 {
                journald.receive();
            }
            tracing::info!("after");
        });
        journald.socket.set_nonblocking(true).expect("allowed");
        let mut last = Vec::new();
        let mut buffer = vec![0; 4096];
        while let Ok(length) = journald.socket.recv(&mut buffer) {
            last = buffer[..length].to_vec();
        }
        let last = String::from_utf8(last).expect("text");
        assert!(last.starts_with("MESSAGE=after\n"), "{last}");
        assert!(last.contains("CRONLATCH_DROPPED_ENTRIES="), "{last}");
    }
}
