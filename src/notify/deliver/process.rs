//! A program that reads a message from its standard input.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::failure::SendFailure;
use crate::guard::Program;

/// How many bytes of a program's standard error are shown.
const SHOWN: usize = 300;
/// The pause between two looks whether a program has ended.
const LOOK: Duration = Duration::from_millis(20);
/// How long to wait for its last output.
const LAST_OUTPUT: Duration = Duration::from_millis(200);

/// Runs a program to its end; kills it, and all of its process group, when the limit has passed.
pub(super) fn run(mut command: Command, input: &[u8], limit: Duration) -> Result<(), SendFailure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let cannot = |error: &io::Error| {
        let why = format!("{name} cannot be started: {error}");
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => SendFailure::never(why),
            _ => SendFailure::later(why),
        }
    };
    // A file, not a pipe: a program that does not read cannot hold us up.
    let input = in_memory(input).map_err(|error| cannot(&error))?;
    let began = Instant::now();
    command
        .stdin(input)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut program = Program::start(&mut command).map_err(|error| cannot(&error))?;
    let stderr = program.child.stderr.take().map(read_stderr);
    let ended = wait(&mut program.child, began, limit);
    let text = stderr.and_then(|text| text.recv_timeout(LAST_OUTPUT).ok());
    let text = text.filter(|text| !text.is_empty());
    let text = text.map_or_else(String::new, |text| format!(": {text}"));
    match ended {
        Ok(Some(status)) if status.success() => Ok(()),
        Ok(Some(status)) => Err(SendFailure::later(format!(
            "{name} ended with {status}{text}"
        ))),
        Ok(None) => Err(SendFailure::later(format!(
            "{name} did not end within {limit:.1?} and was killed{text}"
        ))),
        Err(error) => Err(cannot(&error)),
    }
}

fn in_memory(input: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"notification", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(input)?;
    file.rewind()?;
    Ok(file)
}

/// Waits for the end; `None` if the program was killed at the limit.
fn wait(child: &mut Child, began: Instant, limit: Duration) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() >= limit {
            // Not reaped yet, so the number is still that of its group.
            if let Ok(group) = i32::try_from(child.id()) {
                let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            }
            let _ = child.wait();
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}

/// Reads all that a program writes to standard error; keeps the beginning, on one line.
fn read_stderr(mut stderr: ChildStderr) -> mpsc::Receiver<String> {
    let (text, received) = mpsc::channel();
    let read = move || {
        let mut kept = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stderr.read(&mut buffer) {
            let room = SHOWN.saturating_sub(kept.len());
            kept.extend_from_slice(&buffer[..length.min(room)]);
        }
        let kept = String::from_utf8_lossy(&kept);
        let line: Vec<&str> = kept.split_whitespace().collect();
        let _ = text.send(line.join(" "));
    };
    // Without the thread the program's output is not shown, and SIGPIPE may end the program.
    let _ = std::thread::Builder::new()
        .name("notify-stderr".to_owned())
        .spawn(read);
    received
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt as _;

    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::notify::deliver::Again;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_gets_the_message_and_its_errors_are_shown_when_it_fails() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("message");
        let script = format!("cat > '{}'", file.display());
        assert_eq!(run(shell(&script), b"hello", LONG), Ok(()));
        assert_eq!(std::fs::read(&file).expect("a file"), b"hello");
        let failure = run(shell("echo no route >&2; exit 3"), b"", LONG).expect_err("it fails");
        assert!(
            failure.why.ends_with("exit status: 3: no route"),
            "{failure:?}"
        );
        assert_eq!(failure.again, Again::Later);
        let missing = run(Command::new("/nonexistent"), b"", LONG).expect_err("it fails");
        assert_eq!(missing.again, Again::Never);
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children_and_one_that_does_not_read_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("held");
        mkfifo(&path, Mode::S_IRWXU).expect("a named pipe");
        let open = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path);
        let mut pipe = open.expect("the reading end");
        let script = format!(
            "exec 3>'{}'; echo up >&3; sleep 1000 & wait",
            path.display()
        );
        let failure = run(shell(&script), b"", Duration::from_secs(2)).expect_err("it hangs");
        assert!(failure.why.contains("was killed"), "{failure:?}");
        // The pipe ends when the last process that holds it has gone.
        let (text, ended) = mpsc::channel();
        std::thread::spawn(move || {
            fcntl(&pipe, FcntlArg::F_SETFL(OFlag::empty())).expect("reads that wait");
            let mut held = String::new();
            pipe.read_to_string(&mut held).expect("readable");
            text.send(held)
        });
        assert_eq!(ended.recv_timeout(LONG).as_deref(), Ok("up\n"));
        let much = vec![b'x'; 1 << 20];
        assert_eq!(run(shell("exit 0"), &much, LONG), Ok(()));
        let noisy = "head -c 1000000 /dev/zero >&2";
        assert_eq!(run(shell(noisy), b"", LONG), Ok(()));
    }
}
