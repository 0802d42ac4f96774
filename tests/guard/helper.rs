//! A process of its own for tests that kill or stop the daemon, or give it a terminal, a cgroup
//! or a process id: this test binary again, told to run nothing but the test below.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cronlatch::guard::{self, Credentials, Running, Session, Spawn};
use cronlatch::time::BootInstant;
use nix::sys::signal::Signal;

use crate::support::{announced, finish, on_runtime, options, shell};
use crate::{seccomp, support};

const SCRIPT: &str = "GUARD_TEST_SCRIPT";
const OTHER: &str = "GUARD_TEST_OTHER";
const FILES: &str = "GUARD_TEST_FILES";
const DEADLINE: &str = "GUARD_TEST_DEADLINE_MS";
const STARTS_IN: &str = "GUARD_TEST_STARTS_IN_MS";
const USER: &str = "GUARD_TEST_USER";
const INHERIT: &str = "GUARD_TEST_INHERIT";

/// A daemon with a guard and one command.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) guard: i32,
}

/// How it is started.
pub(crate) struct Setup {
    command: Command,
    has_session: bool,
    files: PathBuf,
}

impl Setup {
    /// The script finds the directory `files` in `$FILES`.
    pub(crate) fn new(script: &str, files: &Path) -> Self {
        Self::through(&[], script, files)
    }

    /// As an argument of another program, such as `unshare`.
    pub(crate) fn through(starter: &[&str], script: &str, files: &Path) -> Self {
        let this = std::env::current_exe().expect("this binary");
        let arguments = ["--exact", "helper::a_daemon_for_other_tests", "--ignored"];
        let mut command = match starter {
            [] => Command::new(this),
            [program, rest @ ..] => {
                let mut command = Command::new(program);
                command.args(rest).arg(this);
                command
            }
        };
        command
            .args(arguments)
            .env(SCRIPT, script)
            .env(FILES, files)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // SAFETY: only system calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                default_signals();
                Ok(())
            });
        }
        Self {
            command,
            has_session: false,
            files: files.to_owned(),
        }
    }

    /// The kernel has no `clone3` for the daemon, its guard and their commands, as under a unit
    /// with `RestrictNamespaces=` and under some container runtimes.
    pub(crate) fn without_clone3(mut self) -> Self {
        // SAFETY: only system calls between fork and exec.
        unsafe { self.command.pre_exec(refuse_clone3) };
        self
    }

    pub(crate) fn deadline(mut self, deadline: Duration) -> Self {
        let deadline = deadline.as_millis().to_string();
        self.command.env(DEADLINE, deadline);
        self
    }

    /// The command waits so long for its instant. Nobody waits for its start.
    pub(crate) fn starts_in(mut self, wait: Duration) -> Self {
        let wait = wait.as_millis().to_string();
        self.command.env(STARTS_IN, wait);
        self
    }

    /// Both commands run as this user.
    pub(crate) fn user(mut self, uid: u32) -> Self {
        self.command.env(USER, uid.to_string());
        self
    }

    /// A second command that runs until the end.
    pub(crate) fn other(mut self, script: &str) -> Self {
        self.command.env(OTHER, script);
        self
    }

    /// The command has the daemon's input and output, and its session; SIGINT is passed on.
    pub(crate) fn inherit(mut self) -> Self {
        self.command.env(INHERIT, "yes");
        self
    }

    pub(crate) fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.command.stdin(stdin);
        self
    }

    /// Its input is open under this number, too.
    pub(crate) fn input_at(mut self, number: i32) -> Self {
        // SAFETY: only system calls between fork and exec.
        unsafe {
            self.command.pre_exec(move || match libc::dup2(0, number) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        self
    }

    /// With this as the terminal of a new session, and as input.
    pub(crate) fn terminal(mut self, terminal: std::fs::File) -> Self {
        self.has_session = true;
        self.command.stdin(terminal);
        // SAFETY: only system calls on numbers between fork and exec.
        unsafe {
            self.command.pre_exec(|| {
                nix::unistd::setsid()?;
                match libc::ioctl(0, libc::TIOCSCTTY, 0) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        self
    }

    pub(crate) fn start(mut self) -> Daemon {
        if !self.has_session {
            // A stopped member of an orphaned group would bring SIGHUP upon all of it.
            self.command.process_group(0);
        }
        let child = self.command.spawn().expect("this binary runs again");
        let guard = announced(&self.files.join("guard")).parse().expect("a pid");
        Daemon { child, guard }
    }
}

/// Makes `clone3` fail with ENOSYS in this process and all that come from it.
fn refuse_clone3() -> std::io::Result<()> {
    seccomp::install(&mut [
        seccomp::load(0),
        seccomp::is(libc::SYS_clone3, 0, 1),
        seccomp::refuse(libc::ENOSYS),
        seccomp::allow(),
    ])
}

/// Undoes what the launcher of the tests may have had ignored, as `nohup` and shells do.
fn default_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: the default disposition of a signal number of this system.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

impl Daemon {
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(crate) fn signal(&self, signal: i32) {
        support::signal(self.pid(), signal);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "not a test: the daemon that other tests start and kill"]
fn a_daemon_for_other_tests() {
    let Ok(script) = std::env::var(SCRIPT) else {
        return;
    };
    let files = PathBuf::from(std::env::var_os(FILES).expect("set by the test"));
    let inherit = std::env::var(INHERIT).is_ok();
    let session = if inherit {
        Session::Callers
    } else {
        Session::Own
    };
    let guard = options(session).start().expect("the guard starts");
    let pid = guard.pid();
    on_runtime(async move {
        let processes = guard.serve().expect("on a runtime");
        let other = match std::env::var(OTHER) {
            Ok(other) => Some(
                processes
                    .spawn(the(&other, &files))
                    .await
                    .expect("it starts"),
            ),
            Err(_) => None,
        };
        let mut spawn = the(&script, &files);
        if inherit {
            spawn.stdio = guard::Stdio::Inherit;
        }
        let name = || std::fs::write(files.join("guard"), format!("{pid}\n"));
        if let Ok(wait) = std::env::var(STARTS_IN) {
            let wait = wait.parse().expect("milliseconds");
            spawn.start = Some(BootInstant::now().plus(Duration::from_millis(wait)));
            name().expect("a directory");
        }
        let running = processes.spawn(spawn).await.expect("it starts");
        name().expect("a directory");
        if inherit {
            let files = files.clone();
            let mut interrupts = interrupts();
            interrupts.recv().await;
            running.signal(Signal::SIGINT);
            std::fs::write(files.join("passed-on"), "yes\n").expect("a directory");
        }
        end(running, other, &files).await;
    });
}

fn interrupts() -> tokio::signal::unix::Signal {
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()).expect("a signal")
}

async fn end(running: Running, other: Option<Running>, files: &Path) {
    let (_, exit) = finish(running).await;
    std::fs::write(files.join("exit"), format!("{exit:?}\n")).expect("a directory");
    if let Some(other) = other {
        finish(other).await;
    }
    if std::env::var(DEADLINE).is_ok() {
        // A machine so slow that the deadline came first: the guard still has a daemon to serve.
        std::future::pending::<()>().await;
    }
}

fn the(script: &str, files: &Path) -> Spawn {
    let mut spawn = shell(script);
    spawn.env.insert("FILES".into(), files.into());
    spawn.grace = Duration::from_millis(500);
    spawn.user = std::env::var(USER).ok().map(|uid| {
        let uid = uid.parse().expect("a number");
        Credentials {
            uid,
            gid: uid,
            groups: Vec::new(),
        }
    });
    spawn.deadline = std::env::var(DEADLINE).ok().map(|ms| {
        let ms = ms.parse().expect("milliseconds");
        BootInstant::now().plus(Duration::from_millis(ms))
    });
    spawn
}
