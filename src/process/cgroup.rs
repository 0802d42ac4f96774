//! A cgroup of its own for each command, where the daemon's cgroup was delegated to it.
//!
//! systemd marks a delegated cgroup with an extended attribute; elsewhere we make none, since a
//! cgroup has one manager. A cgroup names every descendant at once, whatever it did to its
//! session, its parent and its environment.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// The daemon's delegated cgroup.
#[derive(Debug)]
pub(super) struct Delegated {
    dir: PathBuf,
    name: String,
}

impl Delegated {
    /// The cgroup of this process, when it is one of version 2, delegated and writable.
    pub(super) fn find() -> Option<Self> {
        let dir = own_cgroup()?;
        if !is_delegated(&dir) {
            return None;
        }
        let name = name_of(std::process::id().cast_signed());
        let found = Self { dir, name };
        // One try shows whether it can be written and killed as a whole (Linux 5.14).
        let probe = found.make(u64::MAX).ok()?;
        let whole = fs::exists(probe.path.join("cgroup.kill")).unwrap_or(false);
        probe.remove();
        whole.then_some(found)
    }

    /// A new cgroup for a command.
    pub(super) fn make(&self, serial: u64) -> io::Result<Cgroup> {
        let path = self.dir.join(format!("{}-{serial}", self.name));
        fs::create_dir(&path)?;
        match File::open(&path) {
            Ok(dir) => Ok(Cgroup { path, dir }),
            Err(error) => {
                let _ = fs::remove_dir(&path);
                Err(error)
            }
        }
    }
}

/// Whether commands of this process would get cgroups of their own.
pub(crate) fn delegated() -> bool {
    Delegated::find().is_some()
}

/// The cgroup of version 2 that this process is in, as a directory.
fn own_cgroup() -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|mount| {
        let (mounted, kind) = mount.split_once(" - ")?;
        let mut fields = mounted.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = path.strip_prefix(root.trim_end_matches('/'))?;
        kind.starts_with("cgroup2 ")
            .then(|| Path::new(point).join(below.trim_start_matches('/')))
    })
}

/// How the names of a guard's cgroups begin.
fn name_of(guard: i32) -> String {
    format!("cronlatch-{guard}")
}

/// Kills all that a guard which is gone had in cgroups, and removes those; false while some
/// cannot be removed yet.
pub(super) fn end_all_of(guard: i32) -> bool {
    let Some(own) = own_cgroup() else {
        return true;
    };
    let mut removed = true;
    let prefix = format!("{}-", name_of(guard));
    for entry in fs::read_dir(own).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = fs::write(entry.path().join("cgroup.kill"), "1");
            remove(&entry.path(), 0);
            removed &= !entry.path().exists();
        }
    }
    removed
}

fn is_delegated(dir: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let Ok(dir) = std::ffi::CString::new(dir.as_os_str().as_bytes()) else {
        return false;
    };
    [c"trusted.delegate", c"user.delegate"].iter().any(|name| {
        let mut value = [0_u8; 8];
        // SAFETY: two C strings and a buffer with its length; nix has no call for attributes.
        let len = unsafe {
            libc::getxattr(
                dir.as_ptr(),
                name.as_ptr(),
                value.as_mut_ptr().cast(),
                value.len(),
            )
        };
        len == 1 && value[0] == b'1'
    })
}

/// The cgroup of one command.
#[derive(Debug)]
pub(super) struct Cgroup {
    path: PathBuf,
    dir: File,
}

impl Cgroup {
    /// For the fork into it.
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Sends SIGKILL to all that is in it, forks under way included.
    pub(super) fn kill(&self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
    }

    /// Whether a living process is in it or in a cgroup below it.
    pub(super) fn is_populated(&self) -> bool {
        fs::read_to_string(self.path.join("cgroup.events"))
            .is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
    }

    /// The processes directly in it.
    pub(super) fn processes(&self) -> Vec<i32> {
        fs::read_to_string(self.path.join("cgroup.procs"))
            .unwrap_or_default()
            .lines()
            .filter_map(|pid| pid.parse().ok())
            .collect()
    }

    /// Removes it, and what the command may have made below it.
    pub(super) fn remove(self) {
        remove(&self.path, 0);
    }
}

fn remove(path: &Path, depth: usize) {
    if fs::remove_dir(path).is_ok() || depth > 8 {
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path(), depth + 1);
        }
    }
    let _ = fs::remove_dir(path);
}
