//! Where the embedded store and the spool lie: on a disk with room, and of this machine.

use std::error::Error as _;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{PROC_SUPER_MAGIC, SYSFS_MAGIC, statfs};
use nix::unistd::AccessFlags;

use super::{Finding, Subject, ids};
use crate::config;
use crate::store::sqlite::network_file_system;
use crate::store::{StoreError, StoreSettings};

const MIB: u64 = 1 << 20;
/// A verdict cannot be kept in less.
const LITTLE: u64 = 8 * MIB;
/// Soon full.
const SMALL: u64 = 64 * MIB;

/// Room for the embedded store, or for verdicts that cannot be delivered.
pub(super) fn look(subject: &Subject) -> Option<Finding> {
    let (directory, is_store) = state_directory(subject)?;
    let room = nix::sys::statvfs::statvfs(&directory).ok()?;
    if room.blocks() == 0 {
        // It has no limit of its own, or keeps no files.
        return None;
    }
    let free = room.blocks_available() * room.fragment_size();
    Some(judge(&directory, free, is_store))
}

/// Whether this process may write there.
pub(super) fn writable(subject: &Subject) -> Option<Finding> {
    let (wanted, is_store) = wanted_directory(subject)?;
    let directory = existing(&wanted)?;
    let may = nix::unistd::eaccess(&directory, AccessFlags::W_OK | AccessFlags::X_OK);
    Some(judge_rights(
        (wanted.as_path(), directory.as_path()),
        may,
        is_store,
    ))
}

/// The directory of the embedded store or of the spool, or the nearest one above that exists, and
/// whether the store lies there.
fn state_directory(subject: &Subject) -> Option<(PathBuf, bool)> {
    let (wanted, is_store) = wanted_directory(subject)?;
    Some((existing(&wanted)?, is_store))
}

/// The same, whether or not it exists.
fn wanted_directory(subject: &Subject) -> Option<(PathBuf, bool)> {
    let (path, is_store) = match &subject.settings {
        StoreSettings::Sqlite { path } => (path.clone(), true),
        _ => match config::embedded_store() {
            Ok(StoreSettings::Sqlite { path }) => (path, false),
            Ok(_) | Err(_) => return None,
        },
    };
    Some((path.parent()?.to_owned(), is_store))
}

/// Judges the rights to `existing`, which is `wanted` or the nearest directory above it.
fn judge_rights(
    (wanted, existing): (&Path, &Path),
    may: nix::Result<()>,
    is_store: bool,
) -> Finding {
    let is_there = wanted == existing || wanted.as_os_str().is_empty();
    let subject = if is_there { existing } else { wanted };
    let subject = subject.display().to_string();
    let Err(errno) = may else {
        let text = if is_there {
            "can be written to"
        } else {
            "can be created"
        };
        return ids::STATE.ok(&subject, text);
    };
    let text = if is_there {
        format!("cannot be written to ({})", errno.desc())
    } else {
        format!(
            "cannot be created in {} ({})",
            existing.display(),
            errno.desc()
        )
    };
    let fix = "run cronlatch by its unit, which has StateDirectory=, or set STATE_DIRECTORY to a \
                directory that its account can write to";
    if is_store {
        let harm = "the embedded store cannot be used, and nothing starts";
        ids::STATE.danger(&subject, format!("{text}: {harm}"), fix)
    } else {
        let harm = "results that cannot be delivered when the daemon stops are lost";
        ids::STATE.warning(&subject, format!("{text}: {harm}"), fix)
    }
}

/// The nearest directory that is there.
fn existing(path: &Path) -> Option<PathBuf> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let there = path.ancestors().find(|p| p.is_dir())?;
    Some(there.to_owned())
}

fn judge(directory: &Path, free: u64, is_store: bool) -> Finding {
    let subject = directory.display().to_string();
    let text = format!("{} MiB free", free / MIB);
    let fix = "free some space, or move the state directory";
    let harm = if is_store {
        "without space the store accepts no claims, and nothing starts"
    } else {
        "without space, results that cannot be delivered when the daemon stops are lost"
    };
    if free < LITTLE && is_store {
        ids::SPACE.danger(&subject, format!("{text}: {harm}"), fix)
    } else if free < SMALL {
        ids::SPACE.warning(&subject, format!("{text}: {harm}"), fix)
    } else {
        ids::SPACE.ok(&subject, text)
    }
}

/// The file of the embedded store cannot be used.
pub(super) fn unusable(shown: &str, error: &StoreError) -> Finding {
    let fix = match error {
        StoreError::Corrupt(_) if error.source().is_some() => {
            "restore the file from a backup, or move it away; then the daemon makes a new one"
        }
        StoreError::Corrupt(_) => "do what the message says, or name another file",
        StoreError::Unreachable(_) => {
            "look which process keeps the file locked (`fuser FILE`), and whether its disk responds"
        }
        _ => "correct what the message names: rights, space or the path of the file",
    };
    ids::REACHABLE.danger(
        shown,
        format!("{error}: nothing starts until this is corrected"),
        fix,
    )
}

/// Whether a directory is one of the kernel's, in which no file can be made.
fn is_of_kernel(directory: &Path) -> bool {
    let found = statfs(directory).map(|it| it.filesystem_type());
    found.is_ok_and(|kind| kind == PROC_SUPER_MAGIC || kind == SYSFS_MAGIC)
}

/// Whether the embedded store would be refused where it is to lie.
pub(super) fn place(path: &Path) -> Option<Finding> {
    let directory = existing(path.parent()?)?;
    let subject = path.display().to_string();
    if is_of_kernel(&directory) {
        let text = format!(
            "no file can be made in {}: nothing starts until this is corrected",
            directory.display()
        );
        return Some(ids::PLACE.danger(&subject, text, "name a file on a disk"));
    }
    Some(match network_file_system(&directory) {
        Ok(None) => ids::PLACE.ok(&subject, "on a file system of this machine"),
        Ok(Some(name)) => ids::PLACE.danger(
            &subject,
            format!(
                "it is on {name}, which does not synchronise file locks and shared memory between \
                 machines: the store refuses to open it"
            ),
            "use a local file system, or Redis if several hosts share the jobs",
        ),
        Err(error) => ids::PLACE.danger(
            &subject,
            format!("its directory cannot be read: {error}"),
            "move it, or change its permissions",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Severity::{Danger, Ok, Warning};

    #[test]
    fn little_room_is_worse_for_the_store_than_for_the_spool() {
        let judged = |free, is_store| judge(Path::new("/x"), free, is_store).severity;
        assert_eq!(judged(MIB, true), Danger);
        assert_eq!(judged(MIB, false), Warning);
        assert_eq!(judged(60 * MIB, true), Warning);
        assert_eq!(judged(100 * MIB, true), Ok);
    }

    #[test]
    fn a_directory_that_cannot_be_written_to_is_worse_for_the_store_than_for_the_spool() {
        let here = (Path::new("/x"), Path::new("/x"));
        let judged = |may, is_store| judge_rights(here, may, is_store).severity;
        let denied = Err(nix::errno::Errno::EROFS);
        assert_eq!(judged(denied, true), Danger);
        assert_eq!(judged(denied, false), Warning);
        assert_eq!(judged(Result::Ok(()), true), Ok);
        let absent = (Path::new("/root/x/cronlatch"), Path::new("/root"));
        let finding = judge_rights(absent, denied, false);
        assert_eq!(finding.subject, "/root/x/cronlatch");
        assert!(
            (finding.text).starts_with("cannot be created in /root (Read-only file system)"),
            "{}",
            finding.text
        );
    }
}
