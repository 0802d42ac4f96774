//! The daemon's side: what callers hold of the guard and of running commands.

use std::fs::{File, OpenOptions};
use std::future::pending;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::pin;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{getpgrp, pipe2};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::crowd::{Crowds, Place};
use super::output::{self, StreamReader, StreamReaders};
use super::process::{OutputSink, ProcessEvent, Spawn, SpawnError, Stdio, Stream};
use super::refusal;
use super::service::{GuardTask, PendingSpawn, TaskCommand};
use super::wire::{self, PACKET_MAX};
use super::{channel, orphans, sys};
use crate::ground::tasks;
use crate::names::RunId;
use crate::time::BootInstant;

/// Events that wait for their reader, per command.
const EVENTS: usize = 64;

/// The most commands whose files are open here for the guard to take. More would use up the open files of this process
/// if thousands are to start at once. A process that may open few files has fewer ([`orders`]).
const ORDERS: usize = 256;

/// A client of the guard, which starts commands. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Processes {
    shared: Arc<ClientState>,
}

/// Moves the deadlines of running processes; synchronous, for use outside the runtime.
#[derive(Debug, Clone)]
pub struct Deadlines {
    socket: Arc<OwnedFd>,
}

/// A running command.
#[derive(Debug)]
pub struct Running {
    /// Its process id.
    pub pid: i32,
    /// When its process had become the command, as the guard saw it.
    pub started_at: BootInstant,
    /// Lines as they come, then [`ProcessEvent::Exited`] as the last one, once the whole tree is dead.
    pub events: mpsc::Receiver<ProcessEvent>,
    run: RunId,
    serial: u64,
    stdio: Stdio,
    /// The deadline that it was started with.
    deadline: Option<BootInstant>,
    commands: mpsc::UnboundedSender<TaskCommand>,
}

/// The turn of one command to be sent to the guard ([`Processes::turn`]).
#[derive(Debug)]
pub struct SpawnTurn {
    /// What allows it to wait as a process for its instant; kept until it has begun.
    place: Option<Place>,
    /// What allows it to have files open here; kept until the guard has taken them.
    permit: Option<OwnedSemaphorePermit>,
}

/// What all clones of [`Processes`] share.
#[derive(Debug)]
pub(super) struct ClientState {
    pub(super) commands: mpsc::UnboundedSender<TaskCommand>,
    serials: AtomicU64,
    deadlines: Arc<OwnedFd>,
    null: File,
    crowds: Crowds,
    /// A permit for each command whose files are open here until the guard has taken them.
    orders: Arc<Semaphore>,
    gone: watch::Receiver<bool>,
}

/// Serves a guard that was started with this end of its socket.
pub(super) fn serve(socket: OwnedFd, child: Child) -> io::Result<Processes> {
    let guard_pid = child.id().cast_signed();
    let deadlines = Arc::new(socket.try_clone()?);
    fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let (commands, inbox) = mpsc::unbounded_channel();
    let (gone_tx, gone) = watch::channel(false);
    let service = GuardTask::new(socket, child, gone_tx)?;
    tasks::spawn(service.serve(inbox));
    if std::process::id() == 1 {
        tasks::spawn(orphans::reap_as_init(guard_pid));
    }
    let null = OpenOptions::new().read(true).open("/dev/null")?;
    Ok(Processes {
        shared: Arc::new(ClientState {
            commands,
            serials: AtomicU64::new(0),
            deadlines,
            null,
            crowds: Crowds::new(),
            orders: Arc::new(Semaphore::new(orders())),
            gone,
        }),
    })
}

/// How many commands may have files open here at a time: each has up to six, and half of all files are for others.
fn orders() -> usize {
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(now, _)| now / 12);
    usize::try_from(most).map_or(ORDERS, |most| most.clamp(1, ORDERS))
}

impl Processes {
    /// Starts a command; its events then arrive in [`Running::events`]. When the future is
    /// dropped before its end, the command is ended.
    pub async fn spawn(&self, spawn: Spawn) -> Result<Running, SpawnError> {
        let turn = self.turn(spawn.start).await;
        self.spawn_unless(turn, spawn, None, pending()).await
    }

    /// Waits until a command that begins at `start` may be sent to the guard; `None`: as soon as it is prepared.
    /// Cancel-safe: a caller that gives up loses its place in the queue.
    pub async fn turn(&self, start: Option<BootInstant>) -> SpawnTurn {
        let place = match start {
            Some(start) => self.shared.crowds.place(start).await,
            None => None,
        };
        // Never closed; without a permit the command is sent at once.
        let permit = Arc::clone(&self.shared.orders).acquire_owned().await.ok();
        SpawnTurn { place, permit }
    }

    /// Starts a command as [`Processes::spawn`] does, in its turn; with [`Stdio::Capture`], `sink` receives the output,
    /// too. If `withdrawn` ends while the command waits for its instant, the command does not begin
    /// ([`SpawnError::Withdrawn`]). Once the guard has the order, it decides which of the two came first, and this
    /// returns what it decided.
    pub async fn spawn_unless(
        &self,
        turn: SpawnTurn,
        mut spawn: Spawn,
        sink: Option<Arc<dyn OutputSink>>,
        withdrawn: impl Future<Output = ()>,
    ) -> Result<Running, SpawnError> {
        let serial = self.shared.serials.fetch_add(1, Ordering::Relaxed);
        refusal::nul(&spawn)?;
        let mut withdrawn = pin!(withdrawn);
        let SpawnTurn { place, permit } = turn;
        if let Some(place) = &place {
            spawn.start = Some(place.begins_at);
        }
        let receive = |source| refusal::of_host("open pipes for its output".to_owned(), source);
        let (mut fds, sources) = self.shared.stdio(spawn.stdio, sink).map_err(receive)?;
        let join = match spawn.stdio {
            Stdio::Capture => None,
            Stdio::Inherit => Some(getpgrp().as_raw()),
        };
        let mut packet = wire::spawn(serial, &spawn, join);
        if packet.len() > PACKET_MAX {
            fds.push(file_of(&packet).map_err(receive)?);
            packet = wire::spawn_in_file(serial);
        }
        let (started_tx, mut started) = oneshot::channel();
        let (exited_tx, exited) = oneshot::channel();
        let start = PendingSpawn {
            serial,
            run: spawn.run.clone(),
            start: spawn.start,
            packet,
            fds,
            turn: permit,
            started: started_tx,
            exited: exited_tx,
        };
        let sent = self
            .shared
            .commands
            .send(TaskCommand::Spawn(Box::new(start)));
        sent.map_err(|_| SpawnError::GuardGone)?;
        // Both arms are cancel-safe: a channel, and what is not polled again once it has ended.
        let started = tokio::select! {
            started = &mut started => started,
            () = &mut withdrawn => {
                let withdraw = TaskCommand::Send(wire::withdraw(serial));
                let _ = self.shared.commands.send(withdraw);
                started.await
            }
        };
        let (pid, started_at) = match started {
            Ok(Ok(started)) => started,
            Ok(Err(refused)) => return Err(refusal::explain(&refused, &spawn)),
            // The serving task broke off: the guard may have been asked.
            Err(_) => return Err(SpawnError::NoReport),
        };
        let (sender, events) = mpsc::channel(EVENTS);
        tasks::spawn(output::pump(sources, exited, sender));
        Ok(Running {
            pid,
            started_at,
            events,
            run: spawn.run,
            serial,
            stdio: spawn.stdio,
            deadline: spawn.deadline,
            commands: self.shared.commands.clone(),
        })
    }

    /// The way to move deadlines, for the watchdog thread.
    pub fn deadlines(&self) -> Deadlines {
        Deadlines {
            socket: Arc::clone(&self.shared.deadlines),
        }
    }

    /// Waits until the guard is gone, which it should never be. Cancel-safe.
    pub async fn guard_gone(&self) {
        // The sender lives as long as the serving task; without it there is no guard either.
        let _ = self.shared.gone.clone().wait_for(|gone| *gone).await;
    }
}

impl ClientState {
    /// What goes to the command as input, output, error output, and what is read here.
    fn stdio(
        &self,
        stdio: Stdio,
        sink: Option<Arc<dyn OutputSink>>,
    ) -> io::Result<(Vec<OwnedFd>, Option<StreamReaders>)> {
        match stdio {
            Stdio::Capture => {
                let (out, out_writer) = pipe2(OFlag::O_CLOEXEC)?;
                let (err, err_writer) = pipe2(OFlag::O_CLOEXEC)?;
                let sources = StreamReaders {
                    out: StreamReader::new(out, Stream::Out, sink.clone())?,
                    err: StreamReader::new(err, Stream::Err, sink)?,
                };
                let null = self.null.as_fd().try_clone_to_owned()?;
                Ok((vec![null, out_writer, err_writer], Some(sources)))
            }
            Stdio::Inherit => {
                let fds = vec![
                    io::stdin().as_fd().try_clone_to_owned()?,
                    io::stdout().as_fd().try_clone_to_owned()?,
                    io::stderr().as_fd().try_clone_to_owned()?,
                ];
                Ok((fds, None))
            }
        }
    }
}

impl Running {
    /// Ends the whole tree: the first signal, the grace, SIGKILL. The exit comes as an event.
    /// Once is enough; a second call changes nothing.
    pub fn end(&self) {
        let _ = self
            .commands
            .send(TaskCommand::Send(wire::end(self.serial)));
    }

    /// The process tree now has until `to` to live; an instant that has passed, or one before its
    /// present deadline, is ignored.
    pub fn extend(&self, to: BootInstant) {
        // For most runs it is the deadline that they were started with, and the guard has many of them.
        if self.deadline.is_none_or(|deadline| to <= deadline) {
            return;
        }
        for packet in wire::extend([(self.run.as_str(), to)]) {
            let _ = self.commands.send(TaskCommand::Send(packet));
        }
    }

    /// Sends one signal to the process group; with [`Stdio::Inherit`] to the main process, for
    /// the group is the caller's. There a signal that the terminal has sent to that group by
    /// itself (Ctrl-C, Ctrl-\\) is not sent twice.
    pub fn signal(&self, signal: Signal) {
        if self.stdio == Stdio::Inherit && comes_from_terminal(signal) {
            return;
        }
        let packet = wire::signal(self.serial, signal as i32);
        let _ = self.commands.send(TaskCommand::Send(packet));
    }
}

/// What a guard receives, and no process: for tests of those who follow one.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct ScriptedGuard {
    run: RunId,
    commands: mpsc::UnboundedReceiver<TaskCommand>,
    pub(crate) events: mpsc::Sender<ProcessEvent>,
}

#[cfg(test)]
impl ScriptedGuard {
    /// A guard, and the process that it reports about.
    pub(crate) fn start() -> (Self, Running) {
        let run = RunId::new();
        let (sent, commands) = mpsc::unbounded_channel();
        let (events, received) = mpsc::channel(1);
        let running = Running {
            pid: 0,
            started_at: BootInstant::BOOT,
            events: received,
            run: run.clone(),
            serial: 0,
            stdio: Stdio::Capture,
            deadline: Some(BootInstant::BOOT),
            commands: sent,
        };
        let guard = Self {
            run,
            commands,
            events,
        };
        (guard, running)
    }

    /// The deadline that the next packet sets; `None` if it does something else.
    pub(crate) async fn next_deadline(&mut self) -> Option<BootInstant> {
        let TaskCommand::Send(packet) = self.commands.recv().await? else {
            return None;
        };
        match wire::GuardRequest::read(&packet)? {
            wire::GuardRequest::Extend(runs) => {
                let own = self.run.as_str().as_bytes();
                runs.iter().find(|(run, _)| *run == own).map(|(_, to)| *to)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
impl Processes {
    /// A client of a host on which one command of each crowd may wait as a process, and what it sends to the guard.
    fn of_small_host() -> (Self, mpsc::UnboundedReceiver<TaskCommand>) {
        let (commands, sent) = mpsc::unbounded_channel();
        let null = || File::open("/dev/null").expect("every host has it");
        let shared = ClientState {
            commands,
            serials: AtomicU64::new(0),
            deadlines: Arc::new(null().into()),
            null: null(),
            crowds: Crowds::of(1, 2),
            orders: Arc::new(Semaphore::new(ORDERS)),
            gone: watch::channel(false).1,
        };
        let shared = Arc::new(shared);
        (Self { shared }, sent)
    }

    /// The same without a guard: for tests of those who wait for a turn.
    pub(crate) fn without_guard() -> Self {
        Self::of_small_host().0
    }
}

fn comes_from_terminal(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGQUIT)
        && sys::foreground_group() == Some(getpgrp().as_raw())
}

impl crate::lease::ExtendRuns for Deadlines {
    fn extend(&self, runs: &[(RunId, BootInstant)]) -> io::Result<()> {
        Self::extend(self, runs)
    }
}

impl Deadlines {
    /// Every process tree of each run now has until `to` to live; an instant that has passed, or
    /// a run that is not there, is ignored. Waits at most a second for a guard that does not
    /// take the message.
    pub fn extend(&self, runs: &[(RunId, BootInstant)]) -> io::Result<()> {
        for packet in wire::extend(runs.iter().map(|(run, to)| (run.as_str(), *to))) {
            self.send(&packet)?;
        }
        Ok(())
    }

    fn send(&self, packet: &[u8]) -> io::Result<()> {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        loop {
            match channel::send(self.socket.as_fd(), packet, &[]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut writable = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
                    if poll(&mut writable, PollTimeout::from(1000_u16))? == 0 {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                sent => return sent,
            }
        }
    }
}

/// A memory file with the packet, for the guard to read.
fn file_of(packet: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(c"cronlatch-order", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(packet)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    fn start_at(start: BootInstant) -> Spawn {
        Spawn {
            run: RunId::new(),
            argv: vec!["true".into()],
            inherited: Arc::default(),
            env: BTreeMap::new(),
            working_dir: None,
            user: None,
            umask: None,
            nice: None,
            start: Some(start),
            start_until: None,
            deadline: None,
            signal: Signal::SIGTERM,
            grace: Duration::ZERO,
            stdio: Stdio::Inherit,
        }
    }

    /// The next order.
    async fn next(sent: &mut mpsc::UnboundedReceiver<TaskCommand>) -> Box<PendingSpawn> {
        let next = tokio::time::timeout(Duration::from_secs(10), sent.recv());
        match next.await.expect("in time") {
            Some(TaskCommand::Spawn(order)) => order,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_nul_byte_in_any_text_of_a_command_is_rejected() {
        let (processes, _sent) = Processes::of_small_host();
        let spawn = || start_at(BootInstant::now());
        let variable = || BTreeMap::from([("A".into(), "\0".into())]);
        let with_nul = [
            Spawn {
                argv: vec!["true".into(), "\0".into()],
                ..spawn()
            },
            Spawn {
                inherited: Arc::new(variable()),
                ..spawn()
            },
            Spawn {
                env: variable(),
                ..spawn()
            },
            Spawn {
                working_dir: Some("\0".into()),
                ..spawn()
            },
        ];
        for spawn in with_nul {
            let error = processes
                .spawn(spawn.clone())
                .await
                .expect_err("a NUL byte");
            let text = format!("{error:?}");
            assert!(text.contains("NUL"), "{spawn:?}: {text}");
        }
    }

    #[tokio::test]
    async fn a_command_that_must_not_wait_as_a_process_is_sent_once_another_has_begun() {
        let (processes, mut sent) = Processes::of_small_host();
        let spawn = |start: BootInstant| {
            let processes = processes.clone();
            tokio::spawn(async move { processes.spawn(start_at(start)).await.is_ok() })
        };
        let far = BootInstant::now().plus(Duration::from_secs(3_600));
        let first = spawn(far);
        let order = next(&mut sent).await;
        let _second = spawn(far);
        // This runtime has one thread: the second comes as far as it can.
        tokio::task::yield_now().await;
        assert!(sent.try_recv().is_err(), "there is no place for the second");
        let third = spawn(BootInstant::now());
        let due = next(&mut sent).await;
        for order in [order, due] {
            order
                .started
                .send(Ok((1, BootInstant::now())))
                .expect("it is awaited");
        }
        assert!(first.await.expect("no panic") && third.await.expect("no panic"));
        next(&mut sent).await;
    }
}
