//! A daemon under test: one host of a fleet, with its own name, list, log and clock.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use chrono::{DateTime, Utc};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{command, faketime, fork, journald, tree, wait};

/// What a daemon is started with.
#[derive(Debug)]
pub(crate) struct Builder {
    host: String,
    jobs: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    shift: i64,
    journal: bool,
    /// The directory that it sees in place of journald's.
    journald: Option<PathBuf>,
    clock: Option<PathBuf>,
    user: Option<u32>,
    list: Option<PathBuf>,
    refuses_forks: bool,
    /// The program, if it is not the one under test.
    program: Option<PathBuf>,
}

/// The file in which the daemon of a host keeps undelivered results, if it is there.
pub(crate) fn spool_file(state: &Path, host: &str) -> Option<PathBuf> {
    let begin = format!("undelivered-{host}+");
    let is_spool = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&begin) && name.ends_with(".jsonl") && !name.contains('@')
    };
    let files = fs::read_dir(state).ok()?.flatten();
    files.map(|entry| entry.path()).find(is_spool)
}

/// A running daemon; dropping it kills it and every process of its tree.
#[derive(Debug)]
pub(crate) struct Daemon {
    host: String,
    child: Child,
    exit: Option<ExitStatus>,
    mark: String,
    notices: Arc<Mutex<Vec<String>>>,
    dir: tempfile::TempDir,
    list: PathBuf,
}

impl Daemon {
    /// A daemon for the host of this name, with this job list.
    ///
    /// `STATE_DIRECTORY` is a directory of its own: unless told of a store, it uses an embedded
    /// one there.
    pub(crate) fn on(host: &str, jobs: impl Into<String>) -> Builder {
        Builder {
            host: host.to_owned(),
            jobs: jobs.into(),
            args: Vec::new(),
            env: Vec::new(),
            shift: 0,
            journal: false,
            journald: None,
            clock: None,
            user: None,
            list: None,
            refuses_forks: false,
            program: None,
        }
    }

    /// Its job list.
    pub(crate) fn list(&self) -> PathBuf {
        self.list.clone()
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id")
    }

    /// Everything it has logged so far.
    pub(crate) fn log(&self) -> String {
        let bytes = fs::read(self.dir.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How many lines of its log hold all of these words.
    pub(crate) fn lines_with(&self, words: &[&str]) -> usize {
        let holds = |line: &&str| words.iter().all(|word| line.contains(word));
        self.log().lines().filter(holds).count()
    }

    /// What it told its service manager, message by message.
    pub(crate) fn notices(&self) -> Vec<String> {
        self.notices.lock().expect("no holder panics").clone()
    }

    /// Sends a signal to the daemon process itself.
    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal) {
        assert!(self.exit.is_none(), "{} has ended", self.host);
        kill(Pid::from_raw(self.pid()), signal).expect("a child of ours, not yet reaped");
    }

    /// The process id of its guard. No run may be open that leads to a process of the daemon's own.
    #[track_caller]
    pub(crate) fn guard(&self) -> Pid {
        let daemon = self.pid();
        let children = format!("/proc/{daemon}/task/{daemon}/children");
        let children = fs::read_to_string(children).expect("it runs");
        match children.split_whitespace().collect::<Vec<_>>()[..] {
            [guard] => Pid::from_raw(guard.parse().expect("a process id")),
            _ => panic!("one child is the guard, and these are {children:?}"),
        }
    }

    /// Every process that it or its jobs started, itself included.
    pub(crate) fn processes(&self) -> Vec<i32> {
        tree::members(&self.mark)
    }

    /// Waits until it says that it is ready.
    #[track_caller]
    pub(crate) fn wait_ready(&mut self) {
        self.wait_until("it says READY", |daemon| {
            let ready = |notice: &String| notice.lines().any(|line| line == "READY=1");
            daemon.notices().iter().any(ready)
        });
    }

    /// Waits until a line of its log holds all of these words.
    #[track_caller]
    pub(crate) fn wait_log(&mut self, words: &[&str]) {
        self.wait_until(&format!("its log says {words:?}"), |daemon| {
            daemon.lines_with(words) > 0
        });
    }

    /// Waits until something holds; fails at once when the daemon has ended.
    #[track_caller]
    pub(crate) fn wait_until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let held = wait::try_for(|| {
            if holds(self) {
                return Some(Ok(()));
            }
            let exit = self.child.try_wait().expect("a child of ours");
            self.exit = exit;
            exit.map(Err)
        });
        match held {
            Some(Ok(())) => {}
            Some(Err(exit)) => panic!("{} ended ({exit}) before {what}", self.host),
            None => panic!("waited for {} in vain: {what}", self.host),
        }
    }

    /// Waits until it ends.
    #[track_caller]
    pub(crate) fn wait_exit(&mut self) -> ExitStatus {
        if let Some(exit) = self.exit {
            return exit;
        }
        let exit = wait::try_for(|| self.child.try_wait().expect("a child of ours"));
        self.exit = exit;
        exit.unwrap_or_else(|| panic!("{} does not end", self.host))
    }

    /// SIGTERM, then waits until the drain is done.
    #[track_caller]
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait_exit()
    }

    /// SIGKILL for the daemon process alone, and its end.
    #[track_caller]
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.wait_exit();
    }

    /// Runs `cronlatch` with these arguments on this daemon's list, host name and state.
    #[track_caller]
    pub(crate) fn ask<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> super::Output {
        let mut command = command::command(command::BINARY);
        command
            .args(args)
            .env("CRONLATCH_CONFIG", self.list())
            .env("CRONLATCH_HOST", &self.host)
            .env("STATE_DIRECTORY", self.dir.path());
        command::output(command)
    }

    /// Waits until the log proves that the daemon's clock is shifted as asked.
    ///
    /// A line found in the log was written after the last look at which it was not there, and
    /// before this look; an instant outside that span by half of the shift is proof, however slow
    /// the machine is.
    #[track_caller]
    fn prove_shift(&mut self, shift: i64, before_start: DateTime<Utc>) {
        let mut seen = 0;
        let mut last_look = before_start;
        self.wait_until("its log shows the shifted clock", |daemon| {
            let log = daemon.log();
            let look = Utc::now();
            let new = log.lines().skip(seen);
            let proven = new.filter_map(faketime::instant_of).any(|written| {
                if shift < 0 {
                    (last_look - written).num_milliseconds() >= -shift / 2
                } else {
                    (written - look).num_milliseconds() >= shift / 2
                }
            });
            seen = log.lines().count();
            last_look = look;
            proven
        });
    }
}

impl Builder {
    /// The store to use.
    pub(crate) fn store(self, url: &str) -> Self {
        self.arg("--store").arg(url)
    }

    /// One more argument of `cronlatch run`.
    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// A variable of its environment.
    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Shifts its wall clock by so many milliseconds.
    pub(crate) fn clock_shifted_by(mut self, millis: i64) -> Self {
        self.shift = millis;
        self
    }

    /// Lets it believe that its log goes to the journal.
    pub(crate) fn on_journal(mut self) -> Self {
        self.journal = true;
        self
    }

    /// Lets its log go to the journal, whose socket is the one in this directory. Root only: it runs in a
    /// mount namespace of its own.
    pub(crate) fn on_journald(mut self, directory: &Path) -> Self {
        self.journald = Some(directory.to_owned());
        self
    }

    /// Lets its wall clock follow this file, as [`faketime::set`] writes it; now as shifted.
    pub(crate) fn clock_in(mut self, file: PathBuf) -> Self {
        self.clock = Some(file);
        self
    }

    /// Runs this program, of another version.
    pub(crate) fn program(mut self, program: PathBuf) -> Self {
        self.program = Some(program);
        self
    }

    /// The file that is its job list, in place of one of its own.
    pub(crate) fn list(mut self, path: &Path) -> Self {
        self.list = Some(path.to_owned());
        self
    }

    /// Runs it as this user, who should be a user of this test alone. Root only.
    pub(crate) fn run_by(mut self, uid: u32) -> Self {
        self.user = Some(uid);
        self
    }

    /// The kernel has no memory for a process that it or its guard forks. It still has threads, and
    /// its guard, which is not forked but spawned.
    pub(crate) fn without_memory_for_processes(mut self) -> Self {
        self.refuses_forks = true;
        self
    }

    /// Starts it, and waits until it is ready.
    #[track_caller]
    pub(crate) fn start(self) -> Daemon {
        let mut daemon = self.spawn();
        daemon.wait_ready();
        daemon
    }

    /// Starts it and does not wait, unless its clock is shifted: then until its log proves that.
    #[track_caller]
    pub(crate) fn spawn(self) -> Daemon {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let list = self.list.unwrap_or_else(|| {
            let list = dir.path().join("jobs.yaml");
            fs::write(&list, &self.jobs).expect("a writable directory");
            list
        });
        let log = File::create(dir.path().join("log")).expect("a writable directory");
        let stream = log.metadata().expect("an open file");
        let socket = dir.path().join("notify");
        let notices = listen(&socket);
        let mark = tree::new_mark();

        let mut command = match self.user {
            None => match &self.program {
                Some(program) => command::command(program),
                None => command::command(command::BINARY),
            },
            Some(uid) => as_user(uid, dir.path(), &socket),
        };
        command
            .arg("run")
            .arg(&list)
            .args(["--host", &self.host])
            .args(&self.args)
            .current_dir(dir.path())
            .env(tree::MARK_VARIABLE, &mark)
            .env("NOTIFY_SOCKET", &socket)
            .env("STATE_DIRECTORY", dir.path())
            .stdout(log.try_clone().expect("a file handle"))
            .stderr(Stdio::from(log));
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if self.journal {
            let stream = format!("{}:{}", stream.dev(), stream.ino());
            command.env("JOURNAL_STREAM", stream);
        }
        if let Some(directory) = &self.journald {
            journald::connect(&mut command, directory);
        }
        if let Some(clock) = &self.clock {
            faketime::set(clock, self.shift);
            faketime::follow(&mut command, clock);
        } else if self.shift != 0 {
            faketime::shift(&mut command, self.shift);
        }
        if self.refuses_forks {
            // SAFETY: only system calls between fork and exec.
            unsafe { command.pre_exec(fork::refuse_forks) };
        }
        let before_start = Utc::now();
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("cannot run {command:?}: {error}"),
        };
        let mut daemon = Daemon {
            host: self.host,
            child,
            exit: None,
            mark,
            notices,
            dir,
            list,
        };
        if self.shift != 0 {
            daemon.prove_shift(self.shift, before_start);
        }
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of {} ---\n{}---", self.host, self.log());
        }
        // The daemon first, and reaped: it must not be there to notice the death of its guard.
        let _ = self.child.kill();
        let _ = self.child.wait();
        tree::kill_all(&self.mark);
    }
}

/// The program under another user, who owns its directory, under another name there: others may not reach
/// the directory of the build.
fn as_user(uid: u32, dir: &Path, socket: &Path) -> std::process::Command {
    let program = dir.join("cronlatch");
    // A link is made in no time.
    if fs::hard_link(command::BINARY, &program).is_err() {
        fs::copy(command::BINARY, &program).expect("room");
    }
    for path in [dir, socket] {
        std::os::unix::fs::chown(path, Some(uid), Some(uid)).expect("only root does this");
    }
    let mut command = command::command("setpriv");
    command
        .arg(format!("--reuid={uid}"))
        .arg(format!("--regid={uid}"))
        .arg("--clear-groups")
        .arg(program);
    command
}

/// Collects what is sent to a notification socket until nobody wants to know any more.
fn listen(path: &Path) -> Arc<Mutex<Vec<String>>> {
    let socket = UnixDatagram::bind(path).expect("a free path, short enough for a socket");
    let pause = Some(Duration::from_millis(100));
    socket.set_read_timeout(pause).expect("a valid time-out");
    let notices = Arc::new(Mutex::new(Vec::new()));
    let wanted: Weak<Mutex<Vec<String>>> = Arc::downgrade(&notices);
    std::thread::spawn(move || {
        let mut buffer = [0_u8; 4096];
        while let Some(notices) = wanted.upgrade() {
            if let Ok(length) = socket.recv(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                notices.lock().expect("no holder panics").push(text);
            }
        }
    });
    notices
}
