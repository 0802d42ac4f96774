//! Where the embedded store and the spool lie: on a disk with room, and of this machine.

use std::path::{Path, PathBuf};

use super::{Finding, Subject, ids};
use crate::config;
use crate::store::StoreSettings;
use crate::store::sqlite::network_file_system;

const MIB: u64 = 1 << 20;
/// A verdict cannot be kept in less.
const LITTLE: u64 = 8 * MIB;
/// Soon full.
const SMALL: u64 = 64 * MIB;

/// Room for the embedded store, or for verdicts that cannot be delivered.
pub(super) fn look(subject: &Subject) -> Option<Finding> {
    let (path, is_store) = match &subject.settings {
        StoreSettings::Sqlite { path } => (path.clone(), true),
        _ => match config::embedded_store() {
            Ok(StoreSettings::Sqlite { path }) => (path, false),
            Ok(_) | Err(_) => return None,
        },
    };
    let directory = existing(path.parent()?)?;
    let room = nix::sys::statvfs::statvfs(&directory).ok()?;
    let free = room.blocks_available() * room.fragment_size();
    Some(judge(&directory, free, is_store))
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
    let mend = "make room, or put the state directory elsewhere";
    let harm = if is_store {
        "without room the store takes no claims, and nothing is started"
    } else {
        "without room verdicts that cannot be delivered when the daemon stops are lost"
    };
    if free < LITTLE && is_store {
        ids::SPACE.danger(&subject, format!("{text}: {harm}"), mend)
    } else if free < SMALL {
        ids::SPACE.warning(&subject, format!("{text}: {harm}"), mend)
    } else {
        ids::SPACE.ok(&subject, text)
    }
}

/// Whether the embedded store would be refused where it is to lie.
pub(super) fn refusal(path: &Path) -> Option<Finding> {
    let directory = existing(path.parent()?)?;
    let subject = path.display().to_string();
    Some(match network_file_system(&directory) {
        Ok(None) => ids::PLACE.ok(&subject, "on a file system of this machine"),
        Ok(Some(name)) => ids::PLACE.danger(
            &subject,
            format!(
                "it lies on {name}, which does not keep file locks and shared memory in step \
                 between machines: the store refuses to open it"
            ),
            "a local file system, or Redis for several hosts",
        ),
        Err(error) => ids::PLACE.danger(
            &subject,
            format!("its directory cannot be looked at: {error}"),
            "another place, or other permissions",
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
}
