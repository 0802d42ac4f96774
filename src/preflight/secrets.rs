//! Who can read passwords and verdicts, and who can change what jobs do.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{Finding, Subject, ids};
use crate::config::{self, CLOCK_FILES, JobList, OUTPUT_DIRECTORY, SPOOL_FILES};
use crate::ground::sorting::SortShort as _;
use crate::store::{RedisSettings, StoreSettings};

const OTHERS_READ: u32 = 0o004;
const OTHERS_WRITE: u32 = 0o002;
/// Others may add to such a directory, but not replace what is another's.
const STICKY: u32 = 0o1000;

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The job list; `true` when a password stands in it.
    List(bool),
    /// A password, or variables of a job.
    Secret,
    /// State of this host: the spool, the embedded store; `true` when nothing else lies beside it.
    State(bool),
}

pub(super) fn look(subject: &Subject) -> Vec<Finding> {
    let mut files = Vec::new();
    if let Some(list) = &subject.list {
        files.extend(list_files(list));
        let env = list
            .jobs
            .iter()
            .filter_map(|job| job.process.env_file.clone());
        files.extend(env.map(|path| (path, Use::Secret)));
    }
    for server in doors(&subject.settings) {
        files.extend(server.password_file.clone().map(|p| (p, Use::Secret)));
    }
    let state = state(&subject.settings);
    files.extend(state.map(|(path, store)| (path.clone(), Use::State(is_ours(&path, &store)))));
    files.sort_short_by(|a, b| a.0.cmp(&b.0));
    files.dedup_by(|a, b| a.0 == b.0);
    files
        .iter()
        .filter_map(|(path, what)| look_at(path, *what))
        .collect()
}

/// All that have a user and a password of their own: servers and Sentinels.
fn doors(settings: &StoreSettings) -> Vec<&RedisSettings> {
    let mut all = settings.servers();
    if let StoreSettings::Sentinel(sentinel) = settings {
        all.extend(&sentinel.sentinels);
    }
    all
}

fn list_files(list: &JobList) -> Vec<(PathBuf, Use)> {
    let has_password = list.store.as_ref().is_some_and(|store| {
        doors(store)
            .iter()
            .any(|server| server.endpoint.has_login())
    });
    let mut files = vec![(list.path.clone(), Use::List(has_password))];
    if list.path.is_dir() {
        let inside = std::fs::read_dir(&list.path)
            .into_iter()
            .flatten()
            .flatten();
        let yaml = inside.map(|entry| entry.path()).filter(|path| {
            let extension = path.extension();
            extension.is_some_and(|e| e == "yaml" || e == "yml")
        });
        files.extend(yaml.map(|path| (path, Use::List(has_password))));
    }
    files
}

/// The directory of spool and embedded store, and the name of that store's file.
fn state(settings: &StoreSettings) -> Option<(PathBuf, OsString)> {
    let path = match settings {
        StoreSettings::Sqlite { path } => path.clone(),
        _ => match config::embedded_store() {
            Ok(StoreSettings::Sqlite { path }) => path,
            Ok(_) | Err(_) => return None,
        },
    };
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new(".")).to_owned();
    Some((directory, path.file_name()?.to_owned()))
}

fn look_at(path: &Path, what: Use) -> Option<Finding> {
    match std::fs::metadata(path) {
        Ok(meta) => Some(judge(path, what, &meta)),
        Err(error) if what == Use::Secret => Some(ids::SECRETS.warning(
            &path.display().to_string(),
            format!("it cannot be read: {error}; jobs and commands that need it fail"),
            "create the file so that the account that runs cronlatch can read it",
        )),
        // The daemon makes its state directory itself.
        Err(_) => None,
    }
}

fn judge(path: &Path, what: Use, meta: &Metadata) -> Finding {
    let (mode, subject) = (meta.mode() & 0o7777, path.display().to_string());
    let open = mode & OTHERS_WRITE != 0 && mode & STICKY == 0;
    if open && what == Use::State(false) {
        return ids::SECRETS.danger(
            &subject,
            format!("mode {mode:04o}: everybody on this host can forge or delete verdicts"),
            "move the store into a directory of its own, which only the daemon's user can write to",
        );
    }
    if open {
        let harm = match what {
            Use::List(_) => "everybody on this host can make cronlatch run anything",
            Use::Secret => "everybody on this host can change it",
            Use::State(_) => "everybody on this host can forge or delete verdicts",
        };
        return ids::SECRETS.danger(
            &subject,
            format!("mode {mode:04o}: {harm}"),
            format!("chmod o-w {subject}"),
        );
    }
    let stranger = meta.uid() != 0 && meta.uid() != nix::unistd::geteuid().as_raw();
    if stranger && matches!(what, Use::List(_)) {
        return ids::SECRETS.warning(
            &subject,
            format!(
                "its owner is user {}, who can make cronlatch run anything",
                meta.uid()
            ),
            format!("chown root {subject}"),
        );
    }
    let told = match what {
        Use::List(true) => Some("everybody on this host can read the store's password"),
        Use::Secret => Some("everybody on this host can read it"),
        Use::List(false) | Use::State(_) => None,
    };
    if let Some(harm) = told.filter(|_| mode & OTHERS_READ != 0 && !meta.is_dir()) {
        return ids::SECRETS.warning(
            &subject,
            format!("mode {mode:04o}: {harm}"),
            format!("chmod o-rwx {subject}"),
        );
    }
    match what {
        Use::State(true) if mode & OTHERS_READ != 0 => ids::SECRETS.hint(
            &subject,
            format!("mode {mode:04o}: everybody on this host can list its contents"),
            format!("chmod 0700 {subject}"),
        ),
        // Others may need the directory: `/tmp`, `/var/lib`, a home.
        Use::State(false) if mode & OTHERS_READ != 0 => ids::SECRETS.hint(
            &subject,
            format!("mode {mode:04o}: everybody on this host can see what cronlatch keeps here"),
            "give cronlatch a directory of its own, as by sqlite:/var/lib/cronlatch/store.db or \
             STATE_DIRECTORY=/var/lib/cronlatch (chmod 0700 /var/lib/cronlatch)",
        ),
        _ => ids::SECRETS.ok(&subject, format!("mode {mode:04o}")),
    }
}

/// Whether a directory holds nothing but what cronlatch has made there, `store` among it.
fn is_ours(directory: &Path, store: &OsStr) -> bool {
    let made = [CLOCK_FILES, SPOOL_FILES, OUTPUT_DIRECTORY].map(OsStr::new);
    let is_ours = |name: &OsStr| {
        let begins = |with: &OsStr| name.as_encoded_bytes().starts_with(with.as_encoded_bytes());
        begins(store) || made.into_iter().any(begins)
    };
    let is_sticky = std::fs::metadata(directory).is_ok_and(|meta| meta.mode() & STICKY != 0);
    // What cannot be read may be another's.
    let Ok(mut entries) = std::fs::read_dir(directory) else {
        return false;
    };
    !is_sticky && entries.all(|entry| entry.is_ok_and(|entry| is_ours(&entry.file_name())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::preflight::Severity::{self, Danger, Hint, Ok, Warning};

    fn judged(mode: u32, what: Use) -> Severity {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(file.path(), permissions).expect("a mode");
        let found = look_at(file.path(), what).expect("it is there");
        found.severity
    }

    #[test]
    fn modes_are_weighed_by_what_a_file_is_for() {
        assert_eq!(judged(0o600, Use::Secret), Ok);
        assert_eq!(judged(0o640, Use::Secret), Ok);
        assert_eq!(judged(0o644, Use::Secret), Warning);
        assert_eq!(judged(0o646, Use::Secret), Danger);
        assert_eq!(judged(0o644, Use::List(false)), Ok);
        assert_eq!(judged(0o644, Use::List(true)), Warning);
        assert_eq!(judged(0o666, Use::List(false)), Danger);
        assert_eq!(judged(0o755, Use::State(true)), Hint);
        assert_eq!(judged(0o1777, Use::State(true)), Hint);
        assert_eq!(judged(0o777, Use::State(true)), Danger);
        let gone = look_at(Path::new("/nowhere/at/all"), Use::Secret);
        assert_eq!(gone.map(|f| f.severity), Some(Warning));
    }

    #[test]
    fn nobody_is_advised_to_close_a_directory_that_others_use() {
        let advice = |mode: u32, entries: &[&str]| {
            let place = tempfile::tempdir().expect("a directory");
            for entry in entries {
                std::fs::write(place.path().join(entry), "").expect("a file");
            }
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(place.path(), permissions).expect("a mode");
            let use_of = Use::State(is_ours(place.path(), OsStr::new("cronlatch.db")));
            let found = look_at(place.path(), use_of).expect("it is there");
            (found.severity, found.fix.starts_with("chmod"))
        };
        let own = ["cronlatch.db", "cronlatch.db-wal", "clock-web1", "output"];
        assert_eq!(advice(0o755, &own), (Hint, true));
        assert_eq!(advice(0o777, &own), (Danger, true));
        assert_eq!(
            advice(0o755, &["cronlatch.db", "another.socket"]),
            (Hint, false)
        );
        assert_eq!(
            advice(0o777, &["cronlatch.db", "another.socket"]),
            (Danger, false)
        );
        assert_eq!(advice(0o1777, &["cronlatch.db"]), (Hint, false), "/tmp");
        let unreadable = Path::new("/nowhere/at/all");
        assert!(!is_ours(unreadable, OsStr::new("cronlatch.db")));
    }
}
