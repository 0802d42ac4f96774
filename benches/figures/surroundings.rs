//! Servers, daemons and arithmetic for the figures.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A Redis server of our own; gone with this value.
pub(crate) struct Redis {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Redis {
    pub(crate) fn start() -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("cannot start redis-server: {e}");
        let dir = tempfile::tempdir().map_err(failed)?;
        let free = TcpListener::bind(("127.0.0.1", 0)).map_err(failed)?;
        let port = free.local_addr().map_err(failed)?.port();
        drop(free);
        let child = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--save",
                "",
                "--bind",
                "127.0.0.1",
            ])
            .current_dir(&dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let redis = Self {
            child,
            port,
            _dir: dir,
        };
        until("redis-server answers", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        })?;
        runtime()?.block_on(async {
            let settings = cronlatch::store::check_url(&redis.url())?;
            let store = cronlatch::store::open(&settings).map_err(|e| e.to_string())?;
            store.init().await.map_err(|e| e.to_string())
        })?;
        Ok(redis)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A daemon with a job list; gone with this value.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts one in `dir` and waits until it says that it is ready.
    pub(crate) fn start(dir: &Path, list: &str, store: &str) -> Result<Self, String> {
        Self::start_as("bench", dir, list, store)
    }

    /// The same, as a host of this name.
    pub(crate) fn start_as(
        host: &str,
        dir: &Path,
        list: &str,
        store: &str,
    ) -> Result<Self, String> {
        Self::start_with(&[], host, dir, list, store)
    }

    /// The same as [`Self::start`], on a host whose wall clock is shifted by so many seconds.
    pub(crate) fn start_shifted(
        seconds: f64,
        dir: &Path,
        list: &str,
        store: &str,
    ) -> Result<Self, String> {
        let offset = format!("{seconds:+.3}s");
        let environment = [
            ("LD_PRELOAD", faketime()?),
            ("FAKETIME", offset),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("NO_FAKE_STAT", "1".to_owned()),
        ];
        Self::start_with(&environment, "bench", dir, list, store)
    }

    fn start_with(
        environment: &[(&str, String)],
        host: &str,
        dir: &Path,
        list: &str,
        store: &str,
    ) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("cannot start the daemon: {e}");
        let file = dir.join("jobs.yaml");
        fs::write(&file, list).map_err(failed)?;
        let socket = dir.join("notify");
        let notices = std::os::unix::net::UnixDatagram::bind(&socket).map_err(failed)?;
        notices
            .set_read_timeout(Some(Duration::from_secs(120)))
            .map_err(failed)?;
        let log = dir.join("log");
        let child = Command::new(program())
            .args([
                "run",
                "--host",
                host,
                "--store",
                store,
                "--log-level",
                "warn",
            ])
            .arg(&file)
            .env("NOTIFY_SOCKET", &socket)
            .env("STATE_DIRECTORY", dir)
            .env_remove("WATCHDOG_USEC")
            .env_remove("RUST_LOG")
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let daemon = Self { child, log };
        let mut buffer = [0_u8; 4096];
        loop {
            let length = notices
                .recv(&mut buffer)
                .map_err(|e| format!("the daemon is not ready ({e}):\n{}", daemon.log()))?;
            if String::from_utf8_lossy(&buffer[..length]).contains("READY=1") {
                return Ok(daemon);
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The guard ends the jobs once its daemon is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program that is measured: `PROGRAM`, such as that of a package, or else the one of this build.
fn program() -> OsString {
    std::env::var_os("PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_cronlatch").into())
}

/// Where libfaketime is.
fn faketime() -> Result<String, String> {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    folders
        .map(|folder| folder.path().join("faketime/libfaketime.so.1"))
        .find(|path| path.exists())
        .map(|path| path.display().to_string())
        .ok_or_else(|| "libfaketime is not installed; `make bench` installs it".to_owned())
}

/// Waits until something holds, at most five minutes.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<(), String> {
    let began = Instant::now();
    while !holds() {
        if began.elapsed() > Duration::from_secs(300) {
            return Err(format!("waited in vain: {what}"));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The value below which `percent` of the values lie; they need not be sorted.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// Milliseconds from one instant in nanoseconds to another; negative when it lies before.
#[expect(clippy::cast_precision_loss, reason = "differences are small")]
pub(crate) fn millis_between(from: u128, to: u128) -> f64 {
    let magnitude = to.abs_diff(from) as f64 / 1e6;
    if to < from { -magnitude } else { magnitude }
}

/// A runtime for questions to a store.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("no runtime: {e}"))
}
