//! This program as a job: its first act is to write down when it began.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};

const FLAG: &str = "--mark";
/// Sleeps until an instant and then executes this program as the job.
const PREPARED_FLAG: &str = "--prepared-mark";

/// Nanoseconds since the epoch.
pub(crate) fn now() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos())
}

/// Acts as the job when started as one.
pub(crate) fn main() -> bool {
    let began = now();
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(arg) if arg == FLAG => {}
        Some(arg) if arg == PREPARED_FLAG => return execute_in_time(args),
        _ => return false,
    }
    let file = args.next().map(PathBuf::from).unwrap_or_default();
    let due = std::env::var("CRONLATCH_SCHEDULED_AT").unwrap_or_else(|_| "-".to_owned());
    let job = std::env::var("CRONLATCH_JOB").unwrap_or_else(|_| "-".to_owned());
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(file) {
        let _ = file.write_all(format!("{due} {began} {job}\n").as_bytes());
    }
    true
}

/// Becomes the job at the instant given before its file. Returns only if that fails.
fn execute_in_time(mut args: impl Iterator<Item = OsString>) -> bool {
    let instant = args.next().and_then(|arg| arg.to_str()?.parse().ok());
    let command = args.next().and_then(|file| command(Path::new(&file)).ok());
    let (Some(instant), Some(mut command)) = (instant, command) else {
        return true;
    };
    let _ = nix::sys::prctl::set_timerslack(1);
    let until = TimeSpec::from(Duration::from_nanos(instant));
    let _ = clock_nanosleep(
        ClockId::CLOCK_REALTIME,
        ClockNanosleepFlags::TIMER_ABSTIME,
        &until,
    );
    let _ = command.exec();
    true
}

/// A command that prepares all it can, and marks into `file` at an instant in nanoseconds.
pub(crate) fn prepared(file: &Path, instant: u128) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|e| format!("no program: {e}"))?;
    let mut command = Command::new(program);
    command
        .arg(PREPARED_FLAG)
        .arg(instant.to_string())
        .arg(file);
    Ok(command)
}

/// The command that marks into `file`, as a job list has it.
pub(crate) fn argv(file: &Path) -> Result<Vec<String>, String> {
    let program = std::env::current_exe().map_err(|e| format!("no program: {e}"))?;
    Ok(vec![
        program.display().to_string(),
        FLAG.to_owned(),
        file.display().to_string(),
    ])
}

/// The same, to be started by hand.
pub(crate) fn command(file: &Path) -> Result<Command, String> {
    let argv = argv(file)?;
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]);
    Ok(command)
}

/// What one job has written.
pub(crate) struct Mark {
    /// Its name; `-` if it was started by hand.
    pub(crate) job: String,
    /// When it was due, in milliseconds; `None` if it was started by hand.
    pub(crate) due: Option<i64>,
    /// When it began, in nanoseconds.
    pub(crate) began: u128,
}

/// The marks so far.
pub(crate) fn all(file: &Path) -> Vec<Mark> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mark = |line: &str| {
        let mut fields = line.split(' ');
        let due = cronlatch::time::Timestamp::parse(fields.next()?).ok();
        Some(Mark {
            due: due.map(cronlatch::time::Timestamp::millis),
            began: fields.next()?.parse().ok()?,
            job: fields.next()?.to_owned(),
        })
    };
    text.lines().filter_map(mark).collect()
}

/// When each was due, and when it began.
pub(crate) fn read(file: &Path) -> Vec<(Option<i64>, u128)> {
    let marks = all(file).into_iter();
    marks.map(|mark| (mark.due, mark.began)).collect()
}
