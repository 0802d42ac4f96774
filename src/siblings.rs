//! The daemons of one machine that have the same job list, and which store each of them uses.
//!
//! Two stores cannot see each other, and an embedded one is reachable only from its own machine. So
//! a daemon that is started with another store while its predecessor runs must find it without a
//! store: each daemon listens on an abstract Unix socket, which disappears with its process and
//! needs no directory that both may write to. The name of the socket contains what is compared
//! first; a client that connects receives the rest.
//!
//! It is the same list if it has the same path, or the same jobs and the same state directory.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::AbortHandle;

use crate::config::{self, JobList};
use crate::ground::tasks;
use crate::names::HostName;
use crate::store::StoreSettings;
use crate::time::Timestamp;

/// The prefix of the names. The kernel shows an abstract name with a leading `@`.
const NAMES: &str = "@cronlatch/1/";
/// How long a daemon has to reply. A stopped daemon does not reply, and still has its jobs.
const ANSWER: Duration = Duration::from_secs(5);
/// The maximum length of a reply, in bytes.
const ANSWER_MAX: u64 = 16 * 1024;

/// A job list on this machine, and its store.
#[derive(Debug, Clone)]
pub(crate) struct ListUse {
    path: String,
    state: String,
    list: PathBuf,
    store: BTreeSet<String>,
    shown: String,
}

/// What a daemon reports about itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SiblingReport {
    host: String,
    started_at: Timestamp,
    waits: bool,
    /// The store as people see it.
    shown: String,
    /// Its file, or the addresses of its servers.
    store: BTreeSet<String>,
}

/// Another daemon of this machine with the same list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sibling {
    pub(crate) pid: u32,
    /// The store that it uses, for people; `None` if it does not reply.
    pub(crate) shown: Option<String>,
    /// Whether that is certainly another one.
    pub(crate) differs: bool,
    pub(crate) waits: bool,
    pub(crate) started_at: Timestamp,
}

/// This daemon among its siblings.
#[derive(Debug, Clone)]
pub(crate) struct Siblings {
    place: ListUse,
    started_at: Timestamp,
    waits: Arc<AtomicBool>,
    /// Answers the others.
    listener: Option<AbortHandle>,
}

impl ListUse {
    pub(crate) fn of(list: &JobList, settings: &StoreSettings) -> Self {
        // Processes of another container have other files under the same names.
        let machine = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let key = |parts: &[&str]| digest(&[&[&*machine.to_string_lossy()], parts].concat());
        let path = canonical(&list.path);
        let state = match config::embedded_store() {
            Ok(StoreSettings::Sqlite { path }) => canonical(path.parent().unwrap_or(&path)),
            Ok(_) | Err(_) => PathBuf::new(),
        };
        Self {
            path: key(&["path", &path.to_string_lossy()]),
            state: key(&["state", &state.to_string_lossy(), &list.fingerprint.0]),
            list: path,
            store: identity(settings),
            shown: settings.shown(),
        }
    }

    fn name(&self, pid: u32) -> String {
        let all: Vec<&str> = self.store.iter().map(String::as_str).collect();
        let store = digest(&all);
        format!("{NAMES}{}/{}/{store}/{pid}", self.path, self.state)
    }

    /// The other daemons with this list.
    pub(crate) async fn siblings(&self) -> Vec<Sibling> {
        let text = fs::read_to_string("/proc/net/unix").unwrap_or_else(|error| {
            tracing::debug!("cannot look for other daemons of this host: {error}");
            String::new()
        });
        let me = std::process::id();
        let mut found = Vec::new();
        for (name, pid) in self.alike(&text) {
            if pid != me
                && let Some(word) = self.ask(&name, pid).await
            {
                found.push(self.judge(pid, self.has_same_store(&name), word));
            }
        }
        found
    }

    /// The names of daemons with this list, and their process ids, in the kernel's table of
    /// sockets.
    fn alike(&self, table: &str) -> BTreeSet<(String, u32)> {
        let names = table
            .lines()
            .filter_map(|line| line.split_whitespace().nth(7));
        let parsed = names.filter_map(|name| {
            let mut parts = name.strip_prefix(NAMES)?.split('/');
            let (path, state) = (parts.next()?, parts.next()?);
            let pid = parts.nth(1)?.parse().ok()?;
            let same = path == self.path || state == self.state;
            same.then(|| (name.to_owned(), pid))
        });
        parsed.collect()
    }

    /// Whether the name is that of a daemon whose settings name the same store, wherever it keeps
    /// its state.
    fn has_same_store(&self, name: &str) -> bool {
        let store = |name: &str| name.rsplit('/').nth(1).map(str::to_owned);
        store(name) == store(&self.name(0))
    }

    /// Requests the report of a daemon. Returns `None` if it is gone, or is another user's who has
    /// nothing to do with this list; `Some(None)` if it is there and does not reply.
    async fn ask(&self, name: &str, pid: u32) -> Option<Option<SiblingReport>> {
        let address = name.replacen('@', "\0", 1);
        let mut stream = match UnixStream::connect(&address).await {
            Ok(stream) => stream,
            // It has not taken the calls of a long time.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let process = fs::metadata(format!("/proc/{pid}")).ok()?;
                return self.trusts(process.uid(), process.gid()).then_some(None);
            }
            Err(_) => return None,
        };
        let peer = stream.peer_cred().ok()?;
        if !self.trusts(peer.uid(), peer.gid()) {
            return None;
        }
        let mut text = Vec::new();
        let mut limited = (&mut stream).take(ANSWER_MAX);
        let read = tokio::time::timeout(ANSWER, limited.read_to_end(&mut text)).await;
        let word = read.is_ok().then(|| serde_json::from_slice(&text).ok());
        Some(word.flatten())
    }

    /// Only a user who may run this list can delay a daemon that runs it.
    fn trusts(&self, uid: u32, gid: u32) -> bool {
        let list = fs::metadata(&self.list);
        let owner = list.map_or((0, 0), |list| (list.uid(), list.gid()));
        uid == 0 || uid == nix::unistd::geteuid().as_raw() || uid == owner.0 || gid == owner.1
    }

    fn judge(&self, pid: u32, same_store: bool, word: Option<SiblingReport>) -> Sibling {
        let common = |word: &SiblingReport| !word.store.is_disjoint(&self.store);
        let same_store = same_store || word.as_ref().is_some_and(common);
        Sibling {
            pid,
            differs: !same_store,
            waits: word.as_ref().is_some_and(|word| word.waits),
            started_at: word
                .as_ref()
                .map_or(Timestamp::EPOCH, |word| word.started_at),
            shown: word.map(|word| word.shown),
        }
    }
}

impl Siblings {
    /// Makes this daemon known, as one that waits. Without a socket it is not noticed by others.
    pub(crate) fn join(place: ListUse, host: &HostName, started_at: Timestamp) -> Self {
        let waits = Arc::new(AtomicBool::new(true));
        let listener = listen(&place, host, started_at, &waits);
        Self {
            place,
            started_at,
            waits,
            listener,
        }
    }

    /// Makes this daemon known under the list that it has read now.
    pub(crate) fn rejoin(&mut self, place: ListUse, host: &HostName) {
        let pid = std::process::id();
        if place.name(pid) == self.place.name(pid) {
            return;
        }
        // Others find it under one of the two at any time.
        let listener = listen(&place, host, self.started_at, &self.waits);
        if let Some(before) = std::mem::replace(&mut self.listener, listener) {
            before.abort();
        }
        self.place = place;
    }

    /// A daemon without siblings.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self {
            place: ListUse {
                path: digest(&["no list"]),
                state: digest(&["no state directory"]),
                list: PathBuf::new(),
                store: BTreeSet::new(),
                shown: String::new(),
            },
            started_at: Timestamp::EPOCH,
            waits: Arc::default(),
            listener: None,
        }
    }

    /// Announces to the other daemons whether this daemon waits from now on.
    pub(crate) fn set_waits(&self, waits: bool) {
        self.waits.store(waits, Ordering::SeqCst);
    }

    pub(crate) async fn all(&self) -> Vec<Sibling> {
        self.place.siblings().await
    }

    /// Why this daemon may claim nothing yet; `None` if it may. As among hosts: it waits for those
    /// that claim on another store, and of those that all wait the first goes on, unless one that
    /// claims already uses the same store.
    pub(crate) async fn obstacle(&self) -> Option<String> {
        obstacle((self.started_at, std::process::id()), &self.all().await)
    }
}

impl Sibling {
    /// Who it is, for people.
    pub(crate) fn who(&self) -> String {
        format!(
            "another daemon of this host (process {}) with this list",
            self.pid
        )
    }

    /// What it uses, for people.
    pub(crate) fn uses(&self) -> String {
        self.shown
            .clone()
            .unwrap_or_else(|| "another store".to_owned())
    }
}

fn obstacle(me: (Timestamp, u32), siblings: &[Sibling]) -> Option<String> {
    let is_backed = siblings.iter().any(|other| !other.differs && !other.waits);
    let hinders = |other: &&Sibling| {
        let first = (other.started_at, other.pid) < me;
        other.differs && (!other.waits || (!is_backed && first))
    };
    let texts = siblings.iter().filter(hinders);
    let texts: Vec<_> = texts
        .map(|other| format!("{} uses {}", other.who(), other.uses()))
        .collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Begins to reply to the other daemons. Without a socket they do not see this one.
fn listen(
    place: &ListUse,
    host: &HostName,
    started_at: Timestamp,
    waits: &Arc<AtomicBool>,
) -> Option<AbortHandle> {
    let name = place.name(std::process::id());
    match UnixListener::bind(name.replacen('@', "\0", 1)) {
        Ok(listener) => {
            let report = SiblingReport {
                host: host.to_string(),
                started_at,
                waits: true,
                shown: place.shown.clone(),
                store: place.store.clone(),
            };
            let task = tasks::spawn(tell(listener, report, Arc::clone(waits)));
            Some(task.abort_handle())
        }
        Err(error) => {
            tracing::debug!("other daemons of this host do not see this one: {error}");
            None
        }
    }
}

/// Reports to every client what this daemon is.
async fn tell(listener: UnixListener, mut word: SiblingReport, waits: Arc<AtomicBool>) {
    loop {
        let Ok((mut caller, _)) = listener.accept().await else {
            // Out of descriptors, perhaps.
            tokio::time::sleep(ANSWER).await;
            continue;
        };
        word.waits = waits.load(Ordering::SeqCst);
        // A caller that reads nothing delays nothing, because this is less than the buffer of a
        // socket.
        if let Ok(text) = serde_json::to_vec(&word) {
            let _ = tokio::time::timeout(ANSWER, caller.write_all(&text)).await;
        }
    }
}

/// What two stores share if they are the same store: the file, or at least one server.
fn identity(settings: &StoreSettings) -> BTreeSet<String> {
    match settings {
        StoreSettings::Sqlite { path } => {
            let directory = canonical(path.parent().unwrap_or(path));
            let file = path.file_name().unwrap_or_default();
            [format!("sqlite:{}", directory.join(file).display())].into()
        }
        // The servers are where the Sentinels say.
        StoreSettings::Sentinel(sentinel) => {
            let part = format!("{}#{}", sentinel.master, sentinel.servers.prefix);
            let all = sentinel.sentinels.iter();
            all.map(|one| format!("{}#{part}", one.endpoint.server_and_database()))
                .collect()
        }
        settings => {
            let all = settings.servers().into_iter();
            all.map(|one| format!("{}#{}", one.endpoint.server_and_database(), one.prefix))
                .collect()
        }
    }
}

fn canonical(path: &Path) -> PathBuf {
    let absolute = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.canonicalize().unwrap_or_else(|_| absolute())
}

/// A hash of these texts, as 16 hexadecimal digits.
fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let mut digits = String::new();
    for byte in hash.finalize().iter().take(8) {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::check_url;

    fn place(path: &str, state: &str, store: &str) -> ListUse {
        ListUse {
            path: digest(&[path]),
            state: digest(&[state]),
            list: PathBuf::from("/"),
            store: identity(&check_url(store).unwrap()),
            shown: store.to_owned(),
        }
    }

    fn sibling(pid: u32, differs: bool, waits: bool) -> Sibling {
        Sibling {
            pid,
            shown: Some("sqlite:/s".to_owned()),
            differs,
            waits,
            started_at: Timestamp::from_secs(i64::from(pid)),
        }
    }

    #[test]
    fn a_daemon_is_found_by_the_path_of_its_list_or_by_its_state_directory_and_jobs() {
        let old = place("/etc/jobs", "/var/1", "sqlite:/a");
        let row = |name: &str| format!("0000: 00000002 00000000 00010000 0001 01 77 {name}\n");
        let table = format!(
            "Num\n{}{}{}",
            row("/run/x"),
            row("@cronlatch/1/a"),
            row(&old.name(7))
        );
        let count = |place: &ListUse| place.alike(&table).len();
        assert_eq!(count(&place("/etc/jobs", "/var/2", "redis://h")), 1);
        assert_eq!(count(&place("/etc/new", "/var/1", "redis://h")), 1);
        assert_eq!(count(&place("/etc/new", "/var/2", "sqlite:/a")), 0);
        assert!(old.name(u32::MAX).len() <= 107, "{}", old.name(u32::MAX));
    }

    #[test]
    fn a_daemon_that_does_not_answer_has_the_same_store_though_its_state_is_elsewhere() {
        let ours = place("/etc/jobs", "/var/1", "redis://h");
        let has_same = |theirs: &ListUse| ours.has_same_store(&theirs.name(7));
        assert!(has_same(&place("/etc/jobs", "/var/2", "redis://h")));
        assert!(has_same(&place("/etc/new", "/var/1", "redis://h")));
        assert!(!has_same(&place("/etc/jobs", "/var/1", "redis://other")));
    }

    #[test]
    fn a_store_is_the_same_under_the_address_of_one_of_its_servers() {
        let differs = |ours: &str, theirs: &str| {
            let theirs = place("/l", "/s", theirs);
            let word = SiblingReport {
                host: "h".to_owned(),
                started_at: Timestamp::EPOCH,
                waits: false,
                shown: String::new(),
                store: theirs.store,
            };
            place("/l", "/s", ours).judge(7, false, Some(word)).differs
        };
        assert!(differs("sqlite:/no/a", "sqlite:/no/b"));
        assert!(!differs("sqlite:/no/a", "sqlite:/no/a"));
        assert!(differs("sqlite:/no/a", "redis://h"));
        assert!(!differs("redis://me:secret@h", "redis://h:6379/0"));
        assert!(differs("redis://h/1", "redis://h"));
        assert!(differs("redis://h:1", "redis://h:2"));
        assert!(!differs(
            "redis+cluster://a:1,b:1",
            "redis+cluster://b:1,c:1"
        ));
        let stopped = place("/l", "/s", "redis://h").judge(7, false, None);
        assert!(stopped.differs && !stopped.waits);
    }

    #[test]
    fn a_daemon_waits_for_those_that_claim_and_of_those_that_wait_for_the_first() {
        let me = (Timestamp::from_secs(5), 5);
        assert_eq!(obstacle(me, &[]), None);
        assert_eq!(obstacle(me, &[sibling(1, false, false)]), None);
        assert!(obstacle(me, &[sibling(9, true, false)]).is_some());
        assert!(obstacle(me, &[sibling(1, true, true)]).is_some());
        assert_eq!(obstacle(me, &[sibling(9, true, true)]), None);
        let backed = [sibling(1, true, true), sibling(2, false, false)];
        assert_eq!(obstacle(me, &backed), None);
    }

    #[tokio::test]
    async fn a_daemon_tells_whether_it_waits_and_does_not_meet_itself() {
        let name = format!("/{}", std::process::id());
        let here = place(&name, &name, "sqlite:/a");
        let host = HostName::parse("h").unwrap();
        let siblings = Siblings::join(here.clone(), &host, Timestamp::EPOCH);
        let socket = here.name(std::process::id());
        for waits in [true, false] {
            siblings.set_waits(waits);
            let word = loop {
                // A busy machine may take longer than it has to answer.
                if let Some(word) = here.ask(&socket, 1).await.expect("it is there") {
                    break word;
                }
            };
            assert_eq!(word.waits, waits);
        }
        assert_eq!(siblings.all().await, []);
    }

    #[tokio::test]
    async fn a_daemon_that_has_read_another_list_is_found_under_that_one_alone() {
        let name = format!("/relisted/{}", std::process::id());
        let (old, new) = (
            place(&name, "/old", "sqlite:/a"),
            place(&name, "/new", "sqlite:/a"),
        );
        let host = HostName::parse("h").unwrap();
        let mut siblings = Siblings::join(old.clone(), &host, Timestamp::EPOCH);
        siblings.rejoin(new.clone(), &host);
        assert!(new.ask(&new.name(std::process::id()), 1).await.is_some());
        while (old.ask(&old.name(std::process::id()), 1).await).is_some() {
            // The task that is aborted closes the socket.
            tokio::task::yield_now().await;
        }
    }
}
