//! A cgroup of its own for each command, where the daemon's cgroup was delegated to it.
//!
//! systemd marks a delegated cgroup with an extended attribute; elsewhere we make none, since a
//! cgroup has one manager. A cgroup names every descendant at once, whatever it did to its
//! session, its parent and its environment.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Usage;
use super::sys::{self, Fork};

/// The daemon's delegated cgroup.
#[derive(Debug)]
pub(super) struct Delegated {
    dir: PathBuf,
    /// The same as `/proc/PID/cgroup` shows it.
    path: String,
    name: String,
    entry: CgroupEntry,
}

/// How a new process gets into its cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CgroupEntry {
    /// `clone3` with `CLONE_INTO_CGROUP` creates the process there (Linux 5.7).
    Clone,
    /// The child writes itself to `cgroup.procs` before it does anything else. Slower, because
    /// the kernel takes a global lock to move a process. It is the only way where a filter
    /// rejects `clone3`: `RestrictNamespaces=` in a unit, or a container runtime.
    Join,
}

/// Why commands of this process get no cgroup of their own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoCgroup {
    /// There is no `/proc` to read it from.
    #[error("/proc cannot be read: {0}")]
    NoProc(#[source] io::Error),
    /// This process is in no cgroup of version 2, or that hierarchy is not mounted.
    #[error("this process is in no mounted cgroup of version 2")]
    NotMounted,
    /// The cgroup belongs to somebody else.
    #[error("the cgroup {} is not delegated to this process", .0.display())]
    NotDelegated(PathBuf),
    /// No cgroup can be created in the delegated one.
    #[error("cannot create a cgroup in {}: {source}", .dir.display())]
    NotWritable {
        /// The delegated cgroup.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel cannot kill a whole cgroup.
    #[error("the kernel has no cgroup.kill (Linux 5.14)")]
    NoKill,
    /// No process can be put into a new cgroup.
    #[error("cannot move a process into a cgroup in {}: {source}", .dir.display())]
    NoEntry {
        /// The delegated cgroup.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Delegated {
    /// Returns the cgroup of this process if it is of version 2, delegated and usable. A trial
    /// shows what the kernel and the filters of this process allow.
    pub(super) fn find() -> Result<Self, NoCgroup> {
        let dir = own_cgroup()?;
        if !is_delegated(&dir) {
            return Err(NoCgroup::NotDelegated(dir));
        }
        let own = fs::read_to_string("/proc/self/cgroup").map_err(NoCgroup::NoProc)?;
        let path = path_in(&own).ok_or(NoCgroup::NotMounted)?.to_owned();
        let mut found = Self {
            dir,
            path,
            name: name_of(std::process::id().cast_signed()),
            entry: CgroupEntry::Clone,
        };
        if found.allows_entry().is_err() {
            found.entry = CgroupEntry::Join;
            found.allows_entry()?;
        }
        Ok(found)
    }

    /// Puts a process into a cgroup made for the purpose.
    fn allows_entry(&self) -> Result<(), NoCgroup> {
        let trial = self
            .make(u64::MAX)
            .map_err(|source| NoCgroup::NotWritable {
                dir: self.dir.clone(),
                source,
            })?;
        let whole = fs::exists(trial.path.join("cgroup.kill")).unwrap_or(false);
        let entered = trial.try_entry();
        trial.remove();
        if !whole {
            return Err(NoCgroup::NoKill);
        }
        entered.map_err(|source| NoCgroup::NoEntry {
            dir: self.dir.clone(),
            source,
        })
    }

    /// Returns the command in whose cgroup, or in a cgroup below it, the process is.
    pub(super) fn serial_of(&self, pid: i32) -> Option<u64> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        serial_in(&groups, &self.name)
    }

    /// Whether the process is in neither this cgroup nor one below it. False once it has ended.
    pub(super) fn is_left_by(&self, pid: i32) -> bool {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        path_in(&groups).is_some_and(|path| !is_within(path, &self.path))
    }

    /// Creates a cgroup for a command.
    pub(super) fn make(&self, serial: u64) -> io::Result<Cgroup> {
        let path = self.dir.join(format!("{}-{serial}", self.name));
        fs::create_dir(&path)?;
        let door = match self.entry {
            CgroupEntry::Clone => File::open(&path).map(Door::Clone),
            CgroupEntry::Join => fs::OpenOptions::new()
                .write(true)
                .open(path.join("cgroup.procs"))
                .map(Door::Join),
        };
        match door {
            Ok(door) => Ok(Cgroup { path, door }),
            Err(error) => {
                let _ = fs::remove_dir(&path);
                Err(error)
            }
        }
    }
}

/// Checks that commands of this process get cgroups of their own.
pub(crate) fn delegated() -> Result<(), NoCgroup> {
    Delegated::find().map(|_| ())
}

/// The cgroup of version 2 that this process is in, as a directory.
fn own_cgroup() -> Result<PathBuf, NoCgroup> {
    let own = fs::read_to_string("/proc/self/cgroup").map_err(NoCgroup::NoProc)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(NoCgroup::NoProc)?;
    directory_of(&own, &mounts).ok_or(NoCgroup::NotMounted)
}

fn directory_of(own: &str, mounts: &str) -> Option<PathBuf> {
    let path = path_in(own)?;
    mounts.lines().find_map(|mount| {
        let (mounted, kind) = mount.split_once(" - ")?;
        let mut fields = mounted.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = path.strip_prefix(root.trim_end_matches('/'))?;
        kind.starts_with("cgroup2 ")
            .then(|| Path::new(point).join(below.trim_start_matches('/')))
    })
}

/// The cgroup of version 2 in what `/proc/PID/cgroup` shows.
fn path_in(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Whether a cgroup is this one or below it.
fn is_within(path: &str, group: &str) -> bool {
    let below = path.strip_prefix(group.trim_end_matches('/'));
    below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

fn serial_in(groups: &str, name: &str) -> Option<u64> {
    path_in(groups)?.split('/').find_map(|part| {
        let serial = part.strip_prefix(name)?.strip_prefix('-')?;
        serial.parse().ok()
    })
}

/// How the names of a guard's cgroups begin.
fn name_of(guard: i32) -> String {
    format!("cronlatch-{guard}")
}

/// Kills all that a guard which is gone had in cgroups, and removes those; false while some
/// cannot be removed yet.
pub(super) fn end_all_of(guard: i32) -> bool {
    let Ok(own) = own_cgroup() else {
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
    door: Door,
}

/// What a process enters a cgroup by.
#[derive(Debug)]
enum Door {
    /// The directory, for [`CgroupEntry::Clone`].
    Clone(File),
    /// `cgroup.procs`, open for writing, for [`CgroupEntry::Join`].
    Join(File),
}

impl Cgroup {
    /// Where [`sys::fork`] must create the process; `None` if it calls [`Cgroup::join`] instead.
    pub(super) fn to_clone_into(&self) -> Option<BorrowedFd<'_>> {
        match &self.door {
            Door::Clone(dir) => Some(dir.as_fd()),
            Door::Join(_) => None,
        }
    }

    /// Moves the calling process into the cgroup unless it was created there.
    pub(super) fn join(&self) -> io::Result<()> {
        match &self.door {
            Door::Clone(_) => Ok(()),
            Door::Join(procs) => write_pid(procs, 0),
        }
    }

    /// Puts a process into the cgroup and ends it again.
    fn try_entry(&self) -> io::Result<()> {
        // SAFETY: with several threads, too: the child makes one system call and nothing else.
        let pid = match unsafe { sys::fork(self.to_clone_into()) }? {
            Fork::Child => loop {
                // SAFETY: waits for the signal that ends it.
                unsafe { libc::pause() };
            },
            Fork::Parent(pid) => pid,
        };
        // From here and not in the child: a process 1 reaps it before its exit code is read.
        let entered = match &self.door {
            Door::Clone(_) => Ok(()),
            Door::Join(procs) => write_pid(procs, pid),
        };
        // SAFETY: plain integers; the process is a child that cannot have ended.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), None);
        entered
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

    /// What all processes in it have used; of what the kernel does not count here, what the main process
    /// used.
    pub(super) fn usage(&self, of_main: Usage) -> Usage {
        let read = |file: &str| fs::read_to_string(self.path.join(file)).unwrap_or_default();
        Usage {
            cpu: cpu_in(&read("cpu.stat")).unwrap_or(of_main.cpu),
            peak_memory: read("memory.peak")
                .trim()
                .parse()
                .unwrap_or(of_main.peak_memory),
        }
    }

    /// Removes it, and what the command may have made below it.
    pub(super) fn remove(self) {
        remove(&self.path, 0);
    }
}

/// The CPU time in the text of `cpu.stat`, which every control group has (Linux 4.15).
fn cpu_in(stat: &str) -> Option<Duration> {
    let micros = stat
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "))?;
    Some(Duration::from_micros(micros.trim().parse().ok()?))
}

/// Moves a process; 0 is the writing one.
fn write_pid(mut procs: &File, pid: i32) -> io::Result<()> {
    use std::io::Write as _;
    // One write: the kernel takes each for a whole number.
    procs.write_all(pid.to_string().as_bytes())
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{cpu_in, is_within};

    #[test]
    fn the_cpu_time_of_a_control_group_is_read_whatever_else_its_file_has() {
        let stat = "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n";
        assert_eq!(cpu_in(stat), Some(Duration::from_millis(1_500)));
        assert_eq!(cpu_in("nr_periods 0\n"), None);
    }

    #[test]
    fn a_cgroup_whose_name_only_begins_alike_is_another() {
        let unit = "/system.slice/cronlatch.service";
        assert!(is_within(unit, unit));
        assert!(is_within("/system.slice/cronlatch.service/run", unit));
        assert!(!is_within("/system.slice/cronlatch.service2", unit));
        assert!(!is_within("/system.slice", unit));
        assert!(is_within("/any", "/"), "the root of a container holds all");
        assert!(!is_within("/../outside", "/inside"));
    }
}
