//! Checks the path of the file: it is created for its owner only, never on a network file system, and
//! never behind a link that another user may have created.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::error::denied;
use crate::store::StoreError;

/// Device and inode, which differ if another file takes the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

/// Returns the identity of the file at this path, if there is one.
pub(super) fn identity(path: &Path) -> io::Result<Option<FileId>> {
    match std::fs::metadata(path) {
        Ok(meta) => Ok(Some(FileId(meta.dev(), meta.ino()))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The file, ready to be opened.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) identity: FileId,
    /// Whether other users may write to its directory. Then `path` has no links, and none is followed.
    pub(super) is_shared: bool,
    pub(super) path: PathBuf,
}

/// Creates the directory (0700) and the file (0600) if they are missing.
pub(super) fn prepare(path: &Path) -> Result<Prepared, StoreError> {
    let refused = |e: io::Error| match e.kind() {
        io::ErrorKind::PermissionDenied => StoreError::refused(denied(path.display())),
        _ => StoreError::refused_by(path.display(), e),
    };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|e| StoreError::refused_by(directory.display(), e))?;
    refuse_network(directory)?;
    let is_shared = others_may_write(directory).map_err(refused)?;
    let mut path = path.to_owned();
    if is_shared {
        if let Some(name) = path.file_name() {
            path = directory.canonicalize().map_err(refused)?.join(name);
        }
        refuse_link(&path)?;
    }
    if identity(&path).map_err(refused)?.is_none() {
        // Not `create_new`, because another process may create it at the same time. `SQLite` gives
        // its other files the same mode.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        if is_shared {
            options.custom_flags(libc::O_NOFOLLOW);
        }
        options.open(&path).map_err(refused)?;
    }
    let identity = identity(&path).map_err(refused)?;
    let vanished = || StoreError::refused(format!("{}: vanished while opened", path.display()));
    Ok(Prepared {
        identity: identity.ok_or_else(vanished)?,
        is_shared,
        path,
    })
}

/// Returns whether another user except root may create files in a directory, including a sticky one.
fn others_may_write(directory: &Path) -> io::Result<bool> {
    let meta = std::fs::metadata(directory)?;
    let owner_is_trusted = meta.uid() == 0 || meta.uid() == nix::unistd::geteuid().as_raw();
    Ok(!owner_is_trusted || meta.mode() & 0o022 != 0)
}

fn refuse_link(path: &Path) -> Result<(), StoreError> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_symlink() => Err(StoreError::refused(format!(
            "{} is a symbolic link in a directory that other users may write to, and is not \
             followed: name the file itself, or a directory of your own",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Returns the name of the network file system that a directory lies on; `None` for a local one. A FUSE
/// file system with an unknown program counts as local.
pub(crate) fn network_file_system(directory: &Path) -> io::Result<Option<String>> {
    let statfs = nix::sys::statfs::statfs(directory)?;
    let magic = magic(statfs.filesystem_type().0);
    Ok(match network_name(magic) {
        Some(name) => Some(name.to_owned()),
        None if magic == FUSE => fuse_type(directory).filter(|kind| is_network_fuse(kind)),
        None => None,
    })
}

fn refuse_network(directory: &Path) -> Result<(), StoreError> {
    let name = network_file_system(directory)
        .map_err(|e| StoreError::refused_by(directory.display(), e))?;
    match name {
        None => Ok(()),
        Some(name) => Err(StoreError::refused(format!(
            "{} lies on {name}, which does not keep file locks and shared memory in step \
             between machines: use a local file system, or Redis if several hosts share the jobs",
            directory.display()
        ))),
    }
}

/// The kernel's numbers have 32 bits; the field's width and sign differ between platforms.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the upper half is sign extension"
)]
fn magic<N: Into<i128>>(number: N) -> u32 {
    number.into() as u32
}

const FUSE: u32 = 0x6573_5546;

/// The network file systems by their magic number (statfs(2), linux/magic.h).
fn network_name(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517B => "SMB",
        0xFF53_4D42 => "CIFS",
        0xFE53_4D42 => "SMB2",
        0x0102_1997 => "9p",
        0x5346_414F | 0x6B41_4653 => "AFS",
        0x00C3_6400 => "Ceph",
        0x7375_7245 => "Coda",
        0x564C => "NCP",
        0x0BD0_0BD0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x0116_1970 => "GFS2",
        0x7461_636F => "OCFS2",
        0x1983_0326 => "BeeGFS",
        0x786F_4256 => "a VirtualBox shared folder",
        0xAAD7_AAEA => "PanFS",
        _ => return None,
    })
}

/// Whether the program behind a FUSE file system, which its type names (`fuse.sshfs`), reads files from
/// other machines. The name may have a suffix (`fuse.s3fs-fuse`) or `fuse-` before it.
fn is_network_fuse(kind: &str) -> bool {
    const NETWORK: &[&str] = &[
        "sshfs",
        "s3fs",
        "rclone",
        "gluster",
        "glusterfs",
        "ceph",
        "gcsfuse",
        "goofys",
        "davfs",
        "davfs2",
        "curlftpfs",
        "juicefs",
        "seaweedfs",
        "virtiofs",
        "smbnetfs",
        "moosefs",
        "mfs",
        "lizardfs",
        "hdfs",
        "fuse_dfs",
        "beegfs",
        "nfs",
        "grpcfuse",
        "osxfs",
        "geesefs",
        "mountpoint-s3",
        "blobfuse",
        "blobfuse2",
    ];
    let program = kind.strip_prefix("fuse.").unwrap_or(kind);
    let program = program.strip_prefix("fuse-").unwrap_or(program);
    NETWORK.iter().any(|name| {
        let suffix = program.strip_prefix(name);
        suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('-'))
    })
}

/// Returns the type of the mount of `directory` from `/proc/self/mountinfo`.
fn fuse_type(directory: &Path) -> Option<String> {
    let device = std::fs::metadata(directory).ok()?.dev();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mount_type(&mounts, (libc::major(device), libc::minor(device)))
}

fn mount_type(mounts: &str, (major, minor): (u32, u32)) -> Option<String> {
    let device = format!("{major}:{minor}");
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let kind = kind.split(' ').next()?;
        (place.split(' ').nth(2)? == device).then(|| kind.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::{is_network_fuse, magic, mount_type, network_name};

    #[test]
    fn network_file_systems_are_known_by_their_magic() {
        assert_eq!(network_name(magic(0x6969_i64)), Some("NFS"));
        assert_eq!(
            network_name(magic(0xFF53_4D42_u32.cast_signed())),
            Some("CIFS")
        );
        assert_eq!(network_name(magic(0xFE53_4D42_i64)), Some("SMB2"));
        assert_eq!(network_name(magic(0x0102_1997_i64)), Some("9p"));
        for local in [
            0xEF53_i64,
            0x0102_1994,
            0x5846_5342,
            0x9123_683E,
            0x794C_7630,
        ] {
            assert_eq!(network_name(magic(local)), None);
        }
    }

    #[test]
    fn fuse_is_judged_by_the_program_behind_it() {
        let mounts = "36 35 98:0 /m /mnt rw,noatime master:1 - fuse.sshfs host:/ rw\n\
                      37 35 98:1 / /over rw - fuse.fuse-overlayfs x rw\n";
        assert_eq!(mount_type(mounts, (98, 0)).as_deref(), Some("fuse.sshfs"));
        assert_eq!(mount_type(mounts, (98, 2)), None);
        assert!(is_network_fuse("fuse.sshfs"));
        assert!(is_network_fuse("virtiofs"));
        for network in [
            "fuse.ceph-fuse",
            "fuse.rclone",
            "fuse.fuse-nfs",
            "fuse.s3fs-fuse",
            "fuse.glusterfs",
            "fuse.mountpoint-s3",
        ] {
            assert!(is_network_fuse(network), "{network}");
        }
        for local in [
            "fuse",
            "fuse.fuse-overlayfs",
            "fuse.unionfs",
            "fuse.memfs",
            "fuseblk",
        ] {
            assert!(!is_network_fuse(local), "{local}");
        }
    }
}
