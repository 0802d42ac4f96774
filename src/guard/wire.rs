//! The messages between daemon and guard: one packet of a `SOCK_SEQPACKET` pair each.
//!
//! Integers are in native order (both ends are this very program on this very machine); bytes and texts follow
//! their length, and a text ends in a zero byte. File descriptors are sent with the packet.
//!
//! The packets are written by hand because the two ends have different types: the daemon writes the [`Spawn`]
//! of a caller, and the process that becomes the command passes the texts of the packet to `execve` as they are.
//! JSON, the only format of serde among the dependencies, has no bytes that are not UTF-8, which arguments and
//! environment may have, and [`extend`] must know the size of a packet while it writes it ([`PACKET_MAX`]).

mod bytes;

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use crate::guard::tree::MARKER;
use crate::guard::{Credentials, EndedBy, Spawn, Status, Usage};
use crate::time::BootInstant;
use bytes::{ByteReader, Writer};

/// The largest packet sent; what does not fit goes through a memory file.
pub(super) const PACKET_MAX: usize = 32 * 1024;

/// Every packet of the guard is shorter.
pub(super) const REPLY_MAX: usize = 256;

const SPAWN: u8 = 1;
const SPAWN_IN_FILE: u8 = 2;
const EXTEND: u8 = 3;
const END: u8 = 4;
const SIGNAL: u8 = 5;
const PING: u8 = 6;
const WITHDRAW: u8 = 7;

const READY: u8 = 64;
const STARTED: u8 = 65;
const FAILED: u8 = 66;
const TOO_LATE: u8 = 67;
const EXITED: u8 = 68;

/// What the daemon asks for.
#[derive(Debug)]
pub(super) enum GuardRequest<'a> {
    /// Start a command; its input, output and error output are sent with the packet.
    Spawn(StartRequest<'a>),
    /// The order of this serial is in the fourth file sent with the packet.
    SpawnInFile(u64),
    /// Move the deadlines of these runs.
    Extend(Vec<(&'a [u8], BootInstant)>),
    /// First signal, grace, SIGKILL.
    End(u64),
    /// Do not start a command that still waits for its instant.
    Withdraw(u64),
    /// One signal.
    Signal(u64, i32),
    /// Reply with [`GuardReply::Ready`].
    Ping,
}

/// A message of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuardReply {
    /// It is ready to serve, or still alive.
    Ready,
    /// The command runs, under this process id, since this instant.
    Started(u64, i32, BootInstant),
    /// A step on the way to the command failed with this error number.
    Failed(u64, StartStep, i32),
    /// The deadline or `start_until` had passed.
    TooLate(u64),
    /// The main process ended and nothing of its tree is left but `survivors`.
    Exited {
        serial: u64,
        status: Status,
        ended_by: EndedBy,
        left_behind: u32,
        survivors: u32,
        usage: Option<Usage>,
        at: BootInstant,
    },
}

/// A step on the way to a running command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum StartStep {
    Fork = 1,
    Receive,
    Parent,
    Stdio,
    Group,
    Groups,
    Gid,
    Uid,
    Nice,
    Dir,
    Run,
    Cgroup,
    /// The wait for the instant of the start.
    Wait,
}

impl StartStep {
    pub(super) fn from_code(code: u8) -> Option<Self> {
        [
            Self::Fork,
            Self::Receive,
            Self::Parent,
            Self::Stdio,
            Self::Group,
            Self::Groups,
            Self::Gid,
            Self::Uid,
            Self::Nice,
            Self::Dir,
            Self::Run,
            Self::Cgroup,
            Self::Wait,
        ]
        .into_iter()
        .find(|step| *step as u8 == code)
    }
}

/// A command to start: what the guard knows of it. The rest stays in the packet until the process reads it that
/// becomes the command.
#[derive(Debug)]
pub(super) struct StartRequest<'a> {
    pub(super) serial: u64,
    pub(super) run: &'a [u8],
    /// The command is not executed before this instant.
    pub(super) start: Option<BootInstant>,
    /// The command is not executed at this instant or later.
    pub(super) start_until: Option<BootInstant>,
    pub(super) deadline: Option<BootInstant>,
    pub(super) signal: i32,
    pub(super) grace: Duration,
    /// The caller's process group, which the command is to join if it can.
    pub(super) join: Option<i32>,
    /// A [`CommandRequest`].
    command: &'a [u8],
}

/// What a process executes, and what it does before. The texts are those in the packet.
#[derive(Debug)]
pub(super) struct CommandRequest<'a> {
    pub(super) user: Option<Credentials>,
    pub(super) umask: Option<u32>,
    pub(super) nice: Option<i32>,
    pub(super) dir: Option<&'a CStr>,
    pub(super) argv: Vec<&'a CStr>,
    pub(super) env: Vec<&'a CStr>,
}

/// The packet of a spawn; it may be longer than [`PACKET_MAX`].
pub(super) fn spawn(serial: u64, spawn: &Spawn, join: Option<i32>) -> Vec<u8> {
    let mut w = Writer(Vec::with_capacity(2048));
    w.u8(SPAWN).u64(serial).bytes(spawn.run.as_str().as_bytes());
    for at in [spawn.start, spawn.start_until, spawn.deadline] {
        w.option(at, |w, at| {
            w.duration(at.to_duration());
        });
    }
    w.i32(spawn.signal as i32).duration(spawn.grace);
    w.option(join, |w, group| {
        w.i32(group);
    });
    w.option(spawn.user.as_ref(), |w, user| {
        w.u32(user.uid).u32(user.gid);
        w.list(&user.groups, |w, group| {
            w.u32(*group);
        });
    });
    w.option(spawn.umask, |w, umask| {
        w.u32(umask);
    });
    w.option(spawn.nice, |w, nice| {
        w.i32(nice);
    });
    w.option(spawn.working_dir.as_ref(), |w, dir| {
        w.text(&[dir.as_os_str().as_bytes()]);
    });
    w.list(&spawn.argv, |w, argument| {
        w.text(&[argument.as_bytes()]);
    });
    // What strays out of the tree is recognised by it.
    let marker = OsStr::new(MARKER);
    let is_marked = spawn.env.contains_key(marker) || spawn.inherited.contains_key(marker);
    let mark = (!is_marked).then_some((marker, OsStr::new(spawn.run.as_str())));
    w.list(spawn.variables().chain(mark), |w, (name, value)| {
        w.text(&[name.as_bytes(), b"=", value.as_bytes()]);
    });
    w.0
}

/// Returns the packet for an order that is in a file.
pub(super) fn spawn_in_file(serial: u64) -> Vec<u8> {
    let mut w = Writer(vec![SPAWN_IN_FILE]);
    w.u64(serial);
    w.0
}

/// The packets that move the deadlines of these runs.
pub(super) fn extend<'a>(
    runs: impl IntoIterator<Item = (&'a str, BootInstant)>,
) -> impl Iterator<Item = Vec<u8>> {
    let mut runs = runs.into_iter().peekable();
    std::iter::from_fn(move || {
        runs.peek()?;
        let mut w = Writer(vec![EXTEND]);
        while let Some((run, to)) =
            runs.next_if(|(run, _)| w.0.len() == 1 || w.0.len() + run.len() + 12 <= PACKET_MAX)
        {
            w.bytes(run.as_bytes()).duration(to.to_duration());
        }
        Some(w.0)
    })
}

/// The packet that ends a command.
pub(super) fn end(serial: u64) -> Vec<u8> {
    let mut w = Writer(vec![END]);
    w.u64(serial);
    w.0
}

/// The packet that withdraws a command that waits for its instant.
pub(super) fn withdraw(serial: u64) -> Vec<u8> {
    let mut w = Writer(vec![WITHDRAW]);
    w.u64(serial);
    w.0
}

/// The packet that signals a command.
pub(super) fn signal(serial: u64, signal: i32) -> Vec<u8> {
    let mut w = Writer(vec![SIGNAL]);
    w.u64(serial).i32(signal);
    w.0
}

/// The packet that asks for a sign of life.
pub(super) fn ping() -> Vec<u8> {
    vec![PING]
}

/// Reads from its file what was too long for a packet.
pub(super) fn read_file(file: OwnedFd) -> io::Result<Vec<u8>> {
    let mut file = File::from(file);
    let mut packet = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut packet)?;
    Ok(packet)
}

impl<'a> StartRequest<'a> {
    fn read(r: &mut ByteReader<'a>) -> Option<Self> {
        let instant = |r: &mut ByteReader<'a>| r.duration().map(BootInstant::from_duration);
        Some(Self {
            serial: r.u64()?,
            run: r.bytes()?,
            start: r.option(instant)?,
            start_until: r.option(instant)?,
            deadline: r.option(instant)?,
            signal: r.i32()?,
            grace: r.duration()?,
            join: r.option(ByteReader::i32)?,
            command: r.rest(),
        })
    }

    /// Reads what the process of the command needs; `None` when it is not one of ours.
    pub(super) fn command(&self) -> Option<CommandRequest<'a>> {
        CommandRequest::read(&mut ByteReader(self.command))
    }

    /// A request with a grace of five seconds, without a command.
    #[cfg(test)]
    pub(super) fn until(serial: u64, deadline: Option<BootInstant>) -> Self {
        Self {
            serial,
            run: b"run",
            start: None,
            start_until: None,
            deadline,
            signal: libc::SIGTERM,
            grace: Duration::from_secs(5),
            join: None,
            command: &[],
        }
    }

    /// Whether it is too late to execute the command.
    pub(super) fn is_late(&self) -> bool {
        let now = BootInstant::now();
        let limits = [self.start_until, self.deadline];
        limits.into_iter().flatten().any(|at| at <= now)
    }
}

impl<'a> GuardRequest<'a> {
    /// Reads a packet; `None` when it is not one of ours.
    pub(super) fn read(packet: &'a [u8]) -> Option<Self> {
        let mut r = ByteReader(packet);
        Some(match r.u8()? {
            SPAWN => Self::Spawn(StartRequest::read(&mut r)?),
            SPAWN_IN_FILE => Self::SpawnInFile(r.u64()?),
            EXTEND => {
                let mut runs = Vec::new();
                while !r.0.is_empty() {
                    let run = r.bytes()?;
                    runs.push((run, BootInstant::from_duration(r.duration()?)));
                }
                Self::Extend(runs)
            }
            END => Self::End(r.u64()?),
            WITHDRAW => Self::Withdraw(r.u64()?),
            SIGNAL => Self::Signal(r.u64()?, r.i32()?),
            PING => Self::Ping,
            _ => return None,
        })
    }
}

impl<'a> CommandRequest<'a> {
    fn read(r: &mut ByteReader<'a>) -> Option<Self> {
        Some(Self {
            user: r.option(|r| {
                Some(Credentials {
                    uid: r.u32()?,
                    gid: r.u32()?,
                    groups: r.list(ByteReader::u32)?,
                })
            })?,
            umask: r.option(ByteReader::u32)?,
            nice: r.option(ByteReader::i32)?,
            dir: r.option(ByteReader::text)?,
            argv: r.list(ByteReader::text)?,
            env: r.list(ByteReader::text)?,
        })
    }
}

impl GuardReply {
    /// The packet.
    pub(super) fn write(self) -> Vec<u8> {
        let mut w = Writer(Vec::with_capacity(32));
        match self {
            Self::Ready => w.u8(READY),
            Self::Started(serial, pid, at) => w
                .u8(STARTED)
                .u64(serial)
                .i32(pid)
                .duration(at.to_duration()),
            Self::Failed(serial, step, errno) => w.u8(FAILED).u64(serial).u8(step as u8).i32(errno),
            Self::TooLate(serial) => w.u8(TOO_LATE).u64(serial),
            Self::Exited {
                serial,
                status,
                ended_by,
                left_behind,
                survivors,
                usage,
                at,
            } => {
                let (kind, value) = match status {
                    Status::Code(code) => (0, code),
                    Status::Signal(signal) => (1, signal),
                    Status::Unknown => (2, 0),
                };
                let by = match ended_by {
                    EndedBy::Itself => 0,
                    EndedBy::Deadline => 1,
                    EndedBy::Request => 2,
                    EndedBy::GuardGone => 3,
                };
                w.u8(EXITED).u64(serial).u8(kind).i32(value).u8(by);
                w.u32(left_behind).u32(survivors).duration(at.to_duration());
                let micros = |cpu: Duration| u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX);
                match usage {
                    Some(usage) => w.u8(1).u64(micros(usage.cpu)).u64(usage.peak_memory),
                    None => w.u8(0),
                }
            }
        };
        w.0
    }

    /// Reads a packet; `None` when it is not one of ours.
    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        let mut r = ByteReader(packet);
        Some(match r.u8()? {
            READY => Self::Ready,
            STARTED => Self::Started(
                r.u64()?,
                r.i32()?,
                BootInstant::from_duration(r.duration()?),
            ),
            FAILED => Self::Failed(r.u64()?, StartStep::from_code(r.u8()?)?, r.i32()?),
            TOO_LATE => Self::TooLate(r.u64()?),
            EXITED => {
                let serial = r.u64()?;
                let kind = r.u8()?;
                let value = r.i32()?;
                Self::Exited {
                    serial,
                    status: match kind {
                        0 => Status::Code(value),
                        1 => Status::Signal(value),
                        _ => Status::Unknown,
                    },
                    ended_by: match r.u8()? {
                        0 => EndedBy::Itself,
                        1 => EndedBy::Deadline,
                        2 => EndedBy::Request,
                        _ => EndedBy::GuardGone,
                    },
                    left_behind: r.u32()?,
                    survivors: r.u32()?,
                    at: BootInstant::from_duration(r.duration()?),
                    usage: r.option(|r| {
                        Some(Usage {
                            cpu: Duration::from_micros(r.u64()?),
                            peak_memory: r.u64()?,
                        })
                    })?,
                }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;
    use std::sync::Arc;

    use nix::sys::signal::Signal;

    use super::*;
    use crate::guard::Stdio;
    use crate::names::RunId;

    #[test]
    fn an_order_is_read_as_it_was_written_and_not_at_all_if_its_end_is_missing() {
        let run = RunId::new();
        let spawned = Spawn {
            run: run.clone(),
            argv: vec!["".into(), OsString::from_vec(vec![0xff])],
            inherited: Arc::new(["A", "B"].map(|name| (name.into(), "other".into())).into()),
            env: [("A".into(), "b c".into())].into(),
            working_dir: Some("/x".into()),
            user: None,
            umask: Some(0o27),
            nice: None,
            start: None,
            start_until: None,
            deadline: None,
            signal: Signal::SIGTERM,
            grace: Duration::from_secs(5),
            stdio: Stdio::Capture,
        };
        let packet = spawn(7, &spawned, Some(3));
        let Some(GuardRequest::Spawn(order)) = GuardRequest::read(&packet) else {
            panic!("it is one");
        };
        assert_eq!((order.serial, order.join), (7, Some(3)));
        let command = order.command().expect("it is whole");
        assert_eq!(command.argv, [c"", c"\xff"]);
        assert_eq!(command.dir, Some(c"/x"));
        assert_eq!(command.umask, Some(0o27));
        let marker = format!("CRONLATCH_RUN_ID={run}");
        assert_eq!(command.env[..2], [c"B=other", c"A=b c"]);
        assert_eq!(command.env[2].to_bytes(), marker.as_bytes());
        assert_eq!(command.env.len(), 3);
        for len in 0..packet.len() {
            let whole = match GuardRequest::read(&packet[..len]) {
                Some(GuardRequest::Spawn(order)) => order.command().is_some(),
                _ => false,
            };
            assert!(!whole, "{len} bytes");
        }
    }
}
