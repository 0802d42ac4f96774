//! The one task that talks to the guard.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::Child;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::time::{Interval, MissedTickBehavior};

use super::process::{EndedBy, Exit, Lack, Status};
use super::wire::{self, GuardReply, REPLY_MAX, StartStep};
use super::{channel, orphans};
use crate::names::RunId;
use crate::time::BootInstant;

/// Packets read from the guard before others get their turn.
const BATCH: usize = 64;

/// How often a guard that has work is asked for a sign of life.
const ROUND: Duration = Duration::from_secs(1);
/// After this many rounds without a reply the guard may have been stopped: it receives SIGCONT.
const NUDGE_AFTER: u32 = 3;
/// After so many it is given up: killed, whereupon its jobs are ended from here. Well within the
/// default `ttl`, and far beyond what a busy machine makes it wait.
const GIVE_UP_AFTER: u32 = 15;

/// What the serving task is asked for.
#[derive(Debug)]
pub(super) enum TaskCommand {
    Spawn(Box<PendingSpawn>),
    Send(Vec<u8>),
}

/// A command to start, ready to be sent.
#[derive(Debug)]
pub(super) struct PendingSpawn {
    pub(super) serial: u64,
    pub(super) run: RunId,
    /// See [`super::Spawn::start`].
    pub(super) start: Option<BootInstant>,
    pub(super) packet: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
    /// Another one takes its turn once the guard has the files of this one.
    pub(super) turn: Option<OwnedSemaphorePermit>,
    pub(super) started: oneshot::Sender<Result<(i32, BootInstant), SpawnRefused>>,
    pub(super) exited: oneshot::Sender<Exit>,
}

/// Why the guard did not start a command.
#[derive(Debug)]
pub(super) enum SpawnRefused {
    Failed(StartStep, i32),
    TooLate,
    /// It was never asked.
    GuardGone,
    /// It was asked, and is gone.
    NoReport,
}

/// The task's state.
pub(super) struct GuardTask {
    socket: AsyncFd<OwnedFd>,
    child: Child,
    entries: HashMap<u64, GuardedRun>,
    unsent: VecDeque<Unsent>,
    gone: watch::Sender<bool>,
    /// Rounds since it was asked for a sign of life and gave none; none when it is not asked.
    silence: Option<u32>,
}

/// A packet that the guard has not received yet.
struct Unsent {
    packet: Vec<u8>,
    fds: Vec<OwnedFd>,
    /// The command that it starts.
    order: Option<u64>,
    _turn: Option<OwnedSemaphorePermit>,
}

/// A command the guard is to start.
struct GuardedRun {
    run: RunId,
    start: Option<BootInstant>,
    state: StartState,
    /// The guard has got the order.
    sent: bool,
    exited: oneshot::Sender<Exit>,
}

enum StartState {
    Asked(oneshot::Sender<Result<(i32, BootInstant), SpawnRefused>>),
    Started(i32),
}

enum Woken {
    Command(Option<TaskCommand>),
    Readable,
    Writable,
    Round,
}

impl GuardTask {
    pub(super) fn new(
        socket: OwnedFd,
        child: Child,
        gone: watch::Sender<bool>,
    ) -> io::Result<Self> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        // SAFETY: an `OwnedFd` returns one open descriptor for as long as it lives, and `AsyncFd`
        // is its only owner. The safe constructors are deprecated.
        let socket = unsafe { AsyncFd::register_with_interest(socket, interest)? };
        Ok(Self {
            socket,
            child,
            entries: HashMap::new(),
            unsent: VecDeque::new(),
            gone,
            silence: None,
        })
    }

    /// Serves until all clients are gone and nothing runs.
    pub(super) async fn serve(mut self, mut inbox: mpsc::UnboundedReceiver<TaskCommand>) {
        let mut asked = true;
        let mut round = tokio::time::interval(ROUND);
        // Rounds are counted, not time: that this process was stopped itself says nothing about
        // the guard.
        round.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while asked || !self.entries.is_empty() {
            match self.wait(&mut inbox, asked, &mut round).await {
                Woken::Command(Some(command)) => self.command(command),
                Woken::Command(None) => asked = false,
                Woken::Writable => self.flush(),
                Woken::Readable => {
                    if self.read().is_err() {
                        return self.guard_gone(inbox).await;
                    }
                }
                Woken::Round => {
                    if self.look_after_guard().is_err() {
                        return self.guard_gone(inbox).await;
                    }
                }
            }
        }
    }

    async fn wait(
        &self,
        inbox: &mut mpsc::UnboundedReceiver<TaskCommand>,
        asked: bool,
        round: &mut Interval,
    ) -> Woken {
        // All are cancel-safe: a command is taken out only when this arm wins, readiness stays
        // until it is used up, and a tick until it is taken.
        tokio::select! {
            command = inbox.recv(), if asked => Woken::Command(command),
            _ = self.socket.readable() => Woken::Readable,
            _ = self.socket.writable(), if !self.unsent.is_empty() => Woken::Writable,
            _ = round.tick(), if !self.entries.is_empty() => Woken::Round,
        }
    }

    /// A stopped guard enforces no deadline, so it is sent SIGCONT. A guard that still does not
    /// respond is killed.
    fn look_after_guard(&mut self) -> io::Result<()> {
        let Some(silence) = &mut self.silence else {
            self.silence = Some(0);
            self.queue(wire::ping());
            self.flush();
            return Ok(());
        };
        *silence += 1;
        if *silence >= GIVE_UP_AFTER {
            tracing::error!("the guard process does not respond: killing it, and all jobs with it");
            return Err(io::ErrorKind::TimedOut.into());
        }
        if *silence == NUDGE_AFTER {
            tracing::warn!(
                "the guard process does not respond; sending SIGCONT in case it was stopped"
            );
        }
        if *silence >= NUDGE_AFTER {
            // Our child, not reaped. Without effect on one that was not stopped.
            let _ = kill(
                Pid::from_raw(self.child.id().cast_signed()),
                Signal::SIGCONT,
            );
        }
        Ok(())
    }

    fn command(&mut self, command: TaskCommand) {
        match command {
            TaskCommand::Spawn(start) => {
                let entry = GuardedRun {
                    run: start.run,
                    start: start.start,
                    state: StartState::Asked(start.started),
                    sent: false,
                    exited: start.exited,
                };
                self.entries.insert(start.serial, entry);
                self.unsent.push_back(Unsent {
                    packet: start.packet,
                    fds: start.fds,
                    order: Some(start.serial),
                    _turn: start.turn,
                });
            }
            TaskCommand::Send(packet) => self.queue(packet),
        }
        self.flush();
    }

    /// Sends what the guard will take. That it is gone is noticed by reading.
    fn flush(&mut self) {
        while let Some(next) = self.unsent.front() {
            let fds: Vec<BorrowedFd<'_>> = next.fds.iter().map(|fd| fd.as_fd()).collect();
            let send = |socket: &OwnedFd| channel::send(socket.as_fd(), &next.packet, &fds);
            let sent = match self.socket.try_io(Interest::WRITABLE, send) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                sent => sent,
            };
            let serial = self.unsent.pop_front().and_then(|next| next.order);
            let Some(serial) = serial else { continue };
            match sent {
                Ok(()) => {
                    if let Some(entry) = self.entries.get_mut(&serial) {
                        entry.sent = true;
                    }
                }
                Err(error) if Lack::of(&error).is_some() => {
                    let errno = error.raw_os_error().unwrap_or(libc::ENOMEM);
                    self.refuse(serial, SpawnRefused::Failed(StartStep::Receive, errno));
                }
                Err(_) => {}
            }
        }
    }

    /// Has a packet sent that starts no command.
    fn queue(&mut self, packet: Vec<u8>) {
        self.unsent.push_back(Unsent {
            packet,
            fds: Vec::new(),
            order: None,
            _turn: None,
        });
    }

    /// Reads a message of the guard; fails when the guard is gone.
    fn read(&mut self) -> io::Result<()> {
        let mut packet = Vec::with_capacity(REPLY_MAX);
        for _ in 0..BATCH {
            let receive = |socket: &OwnedFd| channel::receive(socket, &mut packet);
            match self.socket.try_io(Interest::READABLE, receive) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
                Ok(_) if packet.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    if let Some(answer) = GuardReply::read(&packet) {
                        self.answer(answer);
                    }
                }
            }
        }
        Ok(())
    }

    fn answer(&mut self, answer: GuardReply) {
        self.silence = None;
        match answer {
            GuardReply::Ready => {}
            GuardReply::Started(serial, pid, at) => self.started(serial, pid, at),
            GuardReply::Failed(serial, step, errno) => {
                self.refuse(serial, SpawnRefused::Failed(step, errno));
            }
            GuardReply::TooLate(serial) => self.refuse(serial, SpawnRefused::TooLate),
            GuardReply::Exited {
                serial,
                status,
                ended_by,
                left_behind,
                survivors,
                usage,
                at,
            } => {
                if let Some(entry) = self.entries.remove(&serial) {
                    let _ = entry.exited.send(Exit {
                        status,
                        ended_by,
                        left_behind: left_behind as usize,
                        survivors: survivors as usize,
                        usage,
                        at,
                    });
                }
            }
        }
    }

    fn started(&mut self, serial: u64, pid: i32, at: BootInstant) {
        let Some(entry) = self.entries.get_mut(&serial) else {
            return;
        };
        if let StartState::Asked(started) =
            std::mem::replace(&mut entry.state, StartState::Started(pid))
            && started.send(Ok((pid, at))).is_err()
        {
            // The caller has given up meanwhile.
            self.queue(wire::end(serial));
            self.flush();
        }
    }

    fn refuse(&mut self, serial: u64, why: SpawnRefused) {
        if let Some(entry) = self.entries.remove(&serial)
            && let StartState::Asked(started) = entry.state
        {
            let _ = started.send(Err(why));
        }
    }

    /// Kills what the guard left, reports that to all callers, and rejects further commands.
    async fn guard_gone(mut self, mut inbox: mpsc::UnboundedReceiver<TaskCommand>) {
        self.gone.send_replace(true);
        // Those that wait for a turn learn of it, too.
        self.unsent.clear();
        let guard = self.child.id().cast_signed();
        // It is dead, or has closed its end of the socket.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let gone_at = BootInstant::now();
        let entries: Vec<GuardedRun> = self.entries.drain().map(|(_, entry)| entry).collect();
        let left: Vec<_> = entries
            .iter()
            .map(|entry| orphans::OrphanedRun {
                run: entry.run.clone(),
                main: match entry.state {
                    StartState::Asked(_) => None,
                    StartState::Started(pid) => Some(pid),
                },
            })
            .collect();
        let ended = tokio::task::spawn_blocking(move || orphans::end_all(guard, &left)).await;
        let mut ended = ended.unwrap_or_default().into_iter();
        for entry in entries {
            let (left_behind, survivors) = ended.next().unwrap_or_default();
            if let StartState::Asked(started) = entry.state {
                // A process that waits for its instant looks for the guard before it executes the command.
                let waited = entry.start.is_some_and(|start| start > gone_at);
                let why = if entry.sent && !waited {
                    SpawnRefused::NoReport
                } else {
                    SpawnRefused::GuardGone
                };
                let _ = started.send(Err(why));
            }
            let _ = entry.exited.send(Exit {
                status: Status::Unknown,
                ended_by: EndedBy::GuardGone,
                left_behind,
                survivors,
                usage: None,
                at: BootInstant::now(),
            });
        }
        while let Some(command) = inbox.recv().await {
            if let TaskCommand::Spawn(start) = command {
                let _ = start.started.send(Err(SpawnRefused::GuardGone));
            }
        }
    }
}

impl Drop for GuardTask {
    /// The guard must see the end even while a [`Deadlines`] still has its copy of the socket.
    fn drop(&mut self) {
        use std::os::fd::AsRawFd as _;
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
        let _ = self.child.try_wait();
    }
}
