//! The log that jobs of fault tests write, and what must hold of it.
//!
//! Every line is one short write to a file opened for appending, so lines of many processes never
//! mix; instants are the machine's true clock, whatever the daemon was told the time is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cronlatch::time::Timestamp;

/// The file, and the text of jobs that write it.
#[derive(Debug)]
pub(crate) struct RunLog {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

/// One run as its job saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) job: String,
    pub(crate) run_id: String,
    pub(crate) host: String,
    /// 0 for a run without a lock.
    pub(crate) fence: u64,
    pub(crate) attempt: u32,
    /// When it was due, in milliseconds; `None` for a manual run.
    pub(crate) scheduled: Option<i64>,
    pub(crate) pid: i32,
    /// When it began, in milliseconds.
    pub(crate) start: i64,
    /// The last instant at which it said that it lives.
    pub(crate) last_sign: i64,
    /// Whether it came to its end by itself.
    pub(crate) ended: bool,
}

const NOW: &str = "$(date +%s%3N)";

impl RunLog {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Self {
            path: dir.path().join("runs"),
            _dir: dir,
        }
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets jobs of other users write it.
    #[track_caller]
    pub(crate) fn open_to_all(&self) {
        use std::os::unix::fs::PermissionsExt as _;
        fs::write(&self.path, "").expect("a directory of the test");
        let dir = self.path.parent().expect("a file in a directory");
        for (path, mode) in [(dir, 0o755), (&self.path, 0o666)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
        }
    }

    /// Shell text that writes the line of a beginning. Children see the true time from there on.
    ///
    /// Fit for a job list as it is: `$$` and `${` mean something else there.
    pub(crate) fn begin(&self) -> String {
        format!(
            "unset LD_PRELOAD FAKETIME; read pid rest < /proc/self/stat; say() {{ echo \"$*\" >> {path}; }}; \
             say begin $CRONLATCH_RUN_ID $CRONLATCH_ATTEMPT $CRONLATCH_JOB $CRONLATCH_HOST \
             \"$CRONLATCH_FENCING_TOKEN\" \"$CRONLATCH_SCHEDULED_AT\" $pid {NOW}",
            path = self.path.display(),
        )
    }

    /// Shell text that writes the line of an end.
    pub(crate) fn end() -> String {
        format!("say end $CRONLATCH_RUN_ID $CRONLATCH_ATTEMPT {NOW}")
    }

    /// A job that takes so many seconds, as `sleep` reads them, as one line of shell.
    pub(crate) fn job(&self, seconds: &str) -> String {
        format!("{}; sleep {seconds}; {}", self.begin(), Self::end())
    }

    /// A job that gives signs of life until somebody ends it.
    pub(crate) fn endless_job(&self) -> String {
        let sign = format!("say sign $CRONLATCH_RUN_ID $CRONLATCH_ATTEMPT {NOW}");
        format!("{}; while :; do {sign}; sleep 0.05; done", self.begin())
    }

    /// What the jobs wrote, in the order in which they began.
    #[track_caller]
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let mut entries: BTreeMap<(String, u32), Entry> = BTreeMap::new();
        // The last line may be half there: only what ends in a line end counts.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let key = |run: &str, attempt: &str| (run.to_owned(), number(attempt, line));
            match words.as_slice() {
                ["begin", run, attempt, job, host, fence, scheduled, pid, at] => {
                    let entry = Entry {
                        job: (*job).to_owned(),
                        run_id: (*run).to_owned(),
                        host: (*host).to_owned(),
                        fence: if fence.is_empty() {
                            0
                        } else {
                            number(fence, line)
                        },
                        attempt: number(attempt, line),
                        scheduled: Timestamp::parse(scheduled).ok().map(Timestamp::millis),
                        pid: number(pid, line),
                        start: number(at, line),
                        last_sign: number(at, line),
                        ended: false,
                    };
                    let twice = entries.insert(key(run, attempt), entry);
                    assert!(twice.is_none(), "an attempt began twice:\n{text}");
                }
                [word @ ("sign" | "end"), run, attempt, at] => {
                    let Some(entry) = entries.get_mut(&key(run, attempt)) else {
                        panic!("{line:?} of a run that never began:\n{text}");
                    };
                    entry.last_sign = entry.last_sign.max(number(at, line));
                    entry.ended |= *word == "end";
                }
                _ => panic!("{line:?} is no line of a run log"),
            }
        }
        let mut entries: Vec<Entry> = entries.into_values().collect();
        entries.sort_by_key(|entry| (entry.start, entry.fence));
        entries
    }

    /// Each occurrence at most once.
    #[track_caller]
    pub(crate) fn assert_each_once(&self) {
        let mut seen = BTreeSet::new();
        for entry in self.entries() {
            let occurrence = (entry.job.clone(), entry.scheduled);
            assert!(
                seen.insert(occurrence),
                "ran twice: {entry:#?}\n{}",
                self.text()
            );
        }
    }

    /// No run before its instant, by the true clock.
    #[track_caller]
    pub(crate) fn assert_none_early(&self) {
        for entry in self.entries() {
            let early = entry.scheduled.is_some_and(|due| entry.start < due);
            assert!(!early, "ran early: {entry:#?}\n{}", self.text());
        }
    }

    /// No occurrence left out between the first and the last, `interval` milliseconds apart.
    #[track_caller]
    pub(crate) fn assert_none_missing(&self, interval: i64) {
        let due: BTreeSet<i64> = self.entries().iter().filter_map(|e| e.scheduled).collect();
        for (one, next) in due.iter().zip(due.iter().skip(1)) {
            assert_eq!(next - one, interval, "a hole after {one}:\n{}", self.text());
        }
    }

    /// No two runs at once; all entries are taken to share one lock.
    #[track_caller]
    pub(crate) fn assert_no_overlap(&self) {
        let entries = self.entries();
        for (one, next) in entries.iter().zip(entries.iter().skip(1)) {
            assert!(
                one.last_sign <= next.start,
                "two at once: {one:#?}\n{next:#?}\n{}",
                self.text()
            );
        }
    }

    /// Fencing tokens rise from run to run; all entries are taken to share one lock.
    #[track_caller]
    pub(crate) fn assert_fences_rise(&self) {
        let entries = self.entries();
        for (one, next) in entries.iter().zip(entries.iter().skip(1)) {
            let retry = one.run_id == next.run_id;
            assert!(
                retry || one.fence < next.fence,
                "fence fell: {one:#?}\n{next:#?}\n{}",
                self.text()
            );
        }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.path).unwrap_or_default()
    }
}

#[track_caller]
fn number<T: std::str::FromStr>(word: &str, line: &str) -> T {
    let Ok(number) = word.parse() else {
        panic!("{word:?} is no number in {line:?}");
    };
    number
}
