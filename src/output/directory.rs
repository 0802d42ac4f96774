//! The directory of output files: private to its owner, and never one that another user prepared.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;

use crate::time::Timestamp;

/// A directory that was found to be safe.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    /// Root creates files for the user whose daemon uses the directory.
    owner: Option<(u32, u32)>,
}

/// The room of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// What may still be written.
    pub(super) bytes: u64,
    /// What stays free for others: a twentieth of the file system, at most 1 GiB.
    pub(super) reserved: u64,
}

/// A file of the directory.
#[derive(Debug)]
pub(super) struct OutputFile {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) modified: Timestamp,
}

impl Directory {
    /// Creates the directory if it is missing, and rejects one that other users can change.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            .open(path);
        let opened = opened.map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP | libc::ENOTDIR) => io::Error::other("it is a symbolic link"),
            _ => error,
        })?;
        let own = nix::unistd::geteuid().as_raw();
        let is = opened.metadata()?;
        let parent = fs::metadata(path.parent().unwrap_or(path))?;
        let mut owner = None;
        if own == 0 && parent.uid() != 0 {
            if is.uid() == 0 {
                std::os::unix::fs::fchown(&opened, Some(parent.uid()), Some(parent.gid()))?;
            } else if is.uid() != parent.uid() {
                return Err(foreign(is.uid()));
            }
            owner = Some((parent.uid(), parent.gid()));
        } else if is.uid() != own {
            return Err(foreign(is.uid()));
        }
        if is.mode() & 0o077 != 0 {
            opened.set_permissions(Permissions::from_mode(0o700))?;
        }
        Ok(Self {
            path: path.to_owned(),
            owner,
        })
    }

    /// Creates a file, which must not exist.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(self.path.join(name))?;
        if let Some((user, group)) = self.owner {
            std::os::unix::fs::fchown(&file, Some(user), Some(group))?;
        }
        Ok(file)
    }

    /// Opens a file to read it; a link is not followed.
    pub(super) fn read(&self, name: &str) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.path.join(name))
    }

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The regular files in it.
    pub(super) fn files(&self) -> io::Result<Vec<OutputFile>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            // A file may be removed meanwhile.
            let Ok(is) = entry.metadata() else { continue };
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if is.is_file() {
                found.push(OutputFile {
                    name,
                    bytes: is.len(),
                    modified: Timestamp::from_millis(is.mtime().saturating_mul(1000)),
                });
            }
        }
        Ok(found)
    }

    /// Returns how much room the file system has.
    pub(super) fn room(&self) -> io::Result<Room> {
        const MOST: u64 = 1 << 30;
        let space = statvfs(&self.path)?;
        let block = space.fragment_size();
        let reserved = (space.blocks().saturating_mul(block) / 20).min(MOST);
        let free = space.blocks_available().saturating_mul(block);
        Ok(Room {
            bytes: free.saturating_sub(reserved),
            reserved,
        })
    }
}

fn foreign(user: u32) -> io::Error {
    io::Error::other(format!("it belongs to another user ({user})"))
}
