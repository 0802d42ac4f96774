//! Processes with a wall clock of their own: libfaketime, preloaded into a daemon; a library of a
//! few lines, preloaded into a server.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use chrono::{DateTime, Utc};

/// Where libfaketime is.
#[track_caller]
fn library() -> PathBuf {
    let multi = std::fs::read_dir("/usr/lib").into_iter().flatten();
    let folders = multi.filter_map(Result::ok).map(|entry| entry.path());
    folders
        .chain([PathBuf::from("/usr/lib"), PathBuf::from("/usr/lib64")])
        .map(|folder| folder.join("faketime/libfaketime.so.1"))
        .find(|path| path.exists())
        .expect("libfaketime is not installed; `make test` installs it")
}

/// Shifts the command's wall clock by this many milliseconds, and leaves its other clocks alone.
pub(crate) fn shift(command: &mut Command, millis: i64) {
    preload(command).env("FAKETIME", offset(millis));
}

/// As [`shift`], by what a file says ([`set`]): within a second of a change the clock steps.
pub(crate) fn follow(command: &mut Command, file: &Path) {
    preload(command)
        .env("FAKETIME_TIMESTAMP_FILE", file)
        .env("FAKETIME_CACHE_DURATION", "1");
}

/// Sets the clocks of those that [`follow`] this file.
pub(crate) fn set(file: &Path, millis: i64) {
    // In one step: nobody may read half of it.
    let new = file.with_extension("new");
    std::fs::write(&new, offset(millis) + "\n").expect("a writable directory");
    std::fs::rename(&new, file).expect("a writable directory");
}

fn preload(command: &mut Command) -> &mut Command {
    command
        .env("LD_PRELOAD", library())
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("DONT_FAKE_MONOTONIC", "1")
        .env("NO_FAKE_STAT", "1")
}

fn offset(millis: i64) -> String {
    format!("{:+.3}s", seconds(millis))
}

/// Lets a server's wall clock follow this file, as [`set_server`] writes it, and leaves its other
/// clocks alone.
#[track_caller]
pub(crate) fn follow_server(command: &mut Command, file: &Path) {
    command
        .env("LD_PRELOAD", server_clock())
        .env("CLOCK_FILE", file);
}

/// Sets the clock of the server that follows this file, at once.
#[track_caller]
pub(crate) fn set_server(file: &Path, millis: i64) {
    // In place: the server has the file mapped.
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).open(file);
    let nanos = (millis * 1_000_000).to_ne_bytes();
    let written = file.and_then(|file| file.write_all_at(&nanos, 0));
    written.expect("a writable directory");
}

/// The library for servers, built by the compiler that links Rust programs.
#[track_caller]
fn server_clock() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/server_clock.c");
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("server_clock.so");
        // Other test programs may be at it.
        let own = library.with_extension(std::process::id().to_string());
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&own, &source])
            .status();
        assert!(built.is_ok_and(|exit| exit.success()), "cc cannot build it");
        std::fs::rename(&own, &library).expect("the directory for the tests' files");
        library
    })
}

#[expect(clippy::cast_precision_loss, reason = "offsets are a few seconds")]
fn seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}

/// The instant at which a line of log was written, by the clock of the one who wrote it.
pub(crate) fn instant_of(line: &str) -> Option<DateTime<Utc>> {
    line.split(|c: char| c.is_whitespace() || c == '"')
        .find_map(|word| DateTime::parse_from_rfc3339(word).ok())
        .map(|instant| instant.to_utc())
}
