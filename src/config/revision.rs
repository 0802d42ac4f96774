//! The files that a list is read from, and their versions, so that a change is noticed.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The versions of the files of a list: equal while none of them was written, replaced, added or
/// removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision(Vec<(PathBuf, Option<FileVersion>)>);

/// What changes when a file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

/// Returns the present revision of the list at `path`, a file or a directory, which may be missing.
/// Follows symbolic links, as reading the list does.
pub fn revision(path: &Path) -> Revision {
    let files = if path.is_dir() {
        super::files_of(path).unwrap_or_default()
    } else {
        vec![path.to_owned()]
    };
    let version = |file: PathBuf| {
        let metadata = std::fs::metadata(&file).ok();
        let version = metadata.map(|it| FileVersion {
            device: it.dev(),
            inode: it.ino(),
            size: it.size(),
            written: (it.mtime(), it.mtime_nsec()),
            changed: (it.ctime(), it.ctime_nsec()),
        });
        (file, version)
    };
    Revision(files.into_iter().map(version).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_change_a_list_gives_it_another_revision() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("a.yaml");
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let mut known = vec![revision(&file)];
        let mut changes = |what: &str, path: &Path| {
            let now = revision(path);
            assert!(!known.contains(&now), "{what}");
            assert_eq!(now, revision(path), "{what}, and looked at again");
            known.push(now);
        };
        write("a.yaml", "jobs: []");
        changes("it is there", &file);
        write("new", "jobs: []");
        std::fs::rename(dir.path().join("new"), &file).unwrap();
        changes("it was replaced by a file of the same text", &file);
        write("b.yml", "jobs: []");
        changes("a file was added", dir.path());
        std::fs::remove_file(&file).unwrap();
        changes("a file was removed", dir.path());
    }
}
