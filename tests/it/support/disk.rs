//! A disk that fills up: a small file system in memory.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A small file system in memory; gone with this.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where this process may not mount.
    pub(crate) fn new(path: &Path) -> Option<Self> {
        Self::mount(path, MsFlags::empty(), "size=400k").then(|| Self(path.to_owned()))
    }

    fn mount(path: &Path, flags: MsFlags, options: &str) -> bool {
        mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(options)).is_ok()
    }

    /// Makes room.
    pub(crate) fn grow(&self) {
        assert!(Self::mount(&self.0, MsFlags::MS_REMOUNT, "size=8m"));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}
