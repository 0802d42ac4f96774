//! The words of other tools, and what each is here.
//!
//! Cron jobs of Kubernetes, ofelia, dagu, yacron, jobber, systemd timers and crontabs; keys are compared
//! without regard to case, `_` and `-`.

/// Words for fields of a job.
pub(super) const JOB_WORDS: &[(&str, &str)] = &[
    ("cron", "did you mean `schedule`?"),
    ("crontab", "did you mean `schedule`?"),
    ("when", "did you mean `schedule`?"),
    ("time", "did you mean `schedule`?"),
    ("oncalendar", "did you mean `schedule`? It takes cron text"),
    ("interval", "did you mean `every`?"),
    ("onunitactivesec", "did you mean `every`?"),
    ("cmd", "did you mean `command`?"),
    ("run", "did you mean `command`?"),
    ("exec", "did you mean `command`?"),
    ("execstart", "did you mean `command`?"),
    ("script", "did you mean `command`?"),
    (
        "args",
        "write the arguments into `command: [program, argument, …]`",
    ),
    ("tz", "did you mean `timezone`?"),
    ("crontz", "did you mean `timezone`?"),
    ("cwd", "did you mean `working_dir`?"),
    ("dir", "did you mean `working_dir`?"),
    ("workdir", "did you mean `working_dir`?"),
    ("workingdirectory", "did you mean `working_dir`?"),
    ("environment", "did you mean `env`?"),
    ("environmentfile", "did you mean `env_file`?"),
    ("dotenv", "did you mean `env_file`?"),
    (
        "retries",
        "write `retry: { attempts: N }`: attempts in all, the first included",
    ),
    ("attempts", "write `retry: { attempts: N }`"),
    ("retrypolicy", "write `retry: { attempts: N, delay: 10s }`"),
    ("retrydelay", "write `retry: { attempts: N, delay: 10s }`"),
    (
        "retryinterval",
        "write `retry: { attempts: N, delay: 10s }`",
    ),
    (
        "backofflimit",
        "write `retry: { attempts: N }`: attempts in all, the first included",
    ),
    ("ttl", "write `lock: { ttl: 30s }`"),
    ("key", "write `lock: { key: … }`"),
    ("scope", "write `lock: { scope: … }`"),
    ("disabled", "write `enabled: false`"),
    ("disable", "write `enabled: false`"),
    ("suspend", "write `enabled: false`"),
    ("overlap", "did you mean `on_overlap`?"),
    ("overlappolicy", "did you mean `on_overlap`?"),
    (
        "concurrencypolicy",
        "did you mean `on_overlap`? Forbid is `skip`, the default; Allow is `lock: { scope: none \
         }`, with which every host runs every occurrence; Replace has no counterpart: set `timeout`",
    ),
    (
        "allowoverlap",
        "runs of a job never overlap unless it has `lock: { scope: none }`: remove the line",
    ),
    (
        "nooverlap",
        "runs of a job never overlap unless you ask for it: remove the line",
    ),
    (
        "prohibitoverlap",
        "runs of a job never overlap unless you ask for it: remove the line",
    ),
    (
        "maxactiveruns",
        "one run of a job at a time is the rule: remove the line, or see `on_overlap`",
    ),
    (
        "maxinstances",
        "one run of a job at a time is the rule: remove the line, or see `on_overlap`",
    ),
    ("deadline", "did you mean `start_deadline`?"),
    (
        "misfiregracetime",
        "write `start_deadline: 5m`, a duration with a unit",
    ),
    (
        "startingdeadlineseconds",
        "write `start_deadline: 5m`, a duration with a unit",
    ),
    (
        "activedeadlineseconds",
        "write `timeout: 10m`, a duration with a unit",
    ),
    ("timeoutsec", "write `timeout: 10m`, a duration with a unit"),
    (
        "timeoutstartsec",
        "write `timeout: 10m`, a duration with a unit",
    ),
    (
        "executiontimeout",
        "write `timeout: 10m`, a duration with a unit",
    ),
    ("killtimeout", "did you mean `kill_grace`?"),
    (
        "maxcleanuptimesec",
        "write `kill_grace: 10s`, a duration with a unit",
    ),
    (
        "restartpolicy",
        "write `retry: { attempts: N }` for a command that fails, and `on_crash: rerun` for a host \
         that dies",
    ),
    (
        "skipifsuccessful",
        "each occurrence runs once: remove the line",
    ),
    (
        "coalesce",
        "`catch_up: latest` does the same, and is the default",
    ),
    (
        "preconditions",
        "test it in the command: `test -e FILE || exit 0; …`",
    ),
    (
        "params",
        "write the arguments into `command: [program, argument, …]`",
    ),
    ("shellcommand", "did you mean `command`?"),
    (
        "executor",
        "a job is a command on this host: `command`, and `shell` for a string",
    ),
    (
        "type",
        "a job is a command on this host: remove the line, and write `command`",
    ),
    ("description", "write it as a comment: `# …`"),
    ("desc", "write it as a comment: `# …`"),
    ("comment", "write it as a comment: `# …`"),
    ("owner", "write it as a comment: `# …`"),
    (
        "tags",
        "write it as a comment: `# …`; globs select jobs by name",
    ),
    (
        "labels",
        "write it as a comment: `# …`; globs select jobs by name",
    ),
    ("priority", "did you mean `nice`?"),
    ("lockttl", "write `lock: { ttl: 30s }`"),
    (
        "spec",
        "a job is a command on this host: `name`, `schedule` and `command`",
    ),
    ("catchup", "did you mean `catch_up`?"),
    ("catchupwindow", "did you mean `catch_up_window`?"),
    (
        "persistent",
        "did you mean `catch_up`? It is `latest` by default, for one hour (`catch_up_window`)",
    ),
    (
        "randomizeddelaysec",
        "did you mean `jitter`? It is a delay that stays the same for each job",
    ),
    ("splay", "did you mean `jitter`?"),
    ("signal", "did you mean `kill_signal`?"),
    ("signalonstop", "did you mean `kill_signal`?"),
    ("exitcodes", "did you mean `success_exit_codes`?"),
    ("successexitstatus", "did you mean `success_exit_codes`?"),
    ("uid", "did you mean `user`?"),
    ("gid", "did you mean `group`?"),
    ("runas", "did you mean `user`?"),
    (
        "steps",
        "a job is one command: write a script, or a `command` of several lines",
    ),
    (
        "depends",
        "jobs do not depend on one another: one `command` runs several programs in order",
    ),
    (
        "dependson",
        "jobs do not depend on one another: one `command` runs several programs in order",
    ),
    (
        "jobtemplate",
        "a job is a command on this host: `name`, `schedule` and `command`",
    ),
    (
        "container",
        "a job is a command on this host: write `command: [docker, exec, CONTAINER, …]`",
    ),
    (
        "image",
        "a job is a command on this host: write `command: [docker, run, --rm, IMAGE, …]`",
    ),
    (
        "successfuljobshistorylimit",
        "write `history: { records: 100 }` at the top of the file",
    ),
    (
        "failedjobshistorylimit",
        "write `history: { failures: 50 }` at the top of the file",
    ),
    (
        "histretentiondays",
        "write `history: { keep: 30d }` at the top of the file",
    ),
    (
        "ttlsecondsafterfinished",
        "write `history: { keep: 30d }` at the top of the file",
    ),
    (
        "savefolder",
        "write `output: { keep: all }` at the top of the file",
    ),
    ("stdin", "write it into the command: `program <<EOF`"),
    ("notifications", "did you mean `notify`?"),
    ("alerts", "did you mean `notify`?"),
    (
        "mailto",
        "write `notify: [TARGET]`, and `TARGET: { mail: … }` in `notify` at the top",
    ),
    (
        "mailon",
        "write `notify: [TARGET]`, and `on: [failed]` in the target",
    ),
    (
        "handleron",
        "write `notify: [TARGET]`, and `on: [failed]` in the target",
    ),
    (
        "slackwebhook",
        "write `notify: [TARGET]`, and `TARGET: { slack: … }` in `notify` at the top",
    ),
    (
        "onfailure",
        "write `notify: [TARGET]`, and `on: [failed]` in the target",
    ),
    (
        "onsuccess",
        "write `notify: [TARGET]`, and `on: [succeeded]` in the target",
    ),
    ("healthchecks", "write `ping: healthchecks:UUID`"),
    ("cronitor", "write `ping: cronitor:KEY/MONITOR`"),
    ("sentry", "write `ping: sentry:DSN`"),
    ("store", "`store` belongs at the top of the file"),
    ("history", "`history` belongs at the top of the file"),
    (
        "max_running",
        "`max_running` belongs at the top of the file",
    ),
    (
        "drain_timeout",
        "`drain_timeout` belongs at the top of the file",
    ),
    (
        "spread",
        "`spread` belongs at the top of the file; a job has `jitter`",
    ),
    ("strict", "`strict` belongs at the top of the file"),
    (
        "max_clock_skew",
        "`max_clock_skew` belongs at the top of the file",
    ),
];

/// Words for the fields of a file.
pub(super) const TOP_WORDS: &[(&str, &str)] = &[
    ("redis", "write `store: { redis: redis://… }`"),
    ("sqlite", "write `store: { sqlite: /path }`"),
    ("notifications", "did you mean `notify`?"),
    ("targets", "did you mean `notify`?"),
    ("listen", "write `http: { listen: … }`"),
    (
        "metrics",
        "write `http: { listen: 127.0.0.1:7171 }`; metrics are at /metrics",
    ),
    ("api", "write `http: { listen: 127.0.0.1:7171 }`"),
    ("default", "did you mean `defaults`?"),
    ("job", "did you mean `jobs`?"),
    ("tasks", "did you mean `jobs`?"),
    ("crons", "did you mean `jobs`?"),
    ("cronjobs", "did you mean `jobs`?"),
    ("schedules", "did you mean `jobs`?"),
    ("wait_replicas", "write `store: { wait_replicas: … }`"),
    (
        "apiversion",
        "this is a Kubernetes object: a job here has `name`, `schedule` and `command`, below \
         `jobs:`",
    ),
    (
        "kind",
        "this is a Kubernetes object: a job here has `name`, `schedule` and `command`, below \
         `jobs:`",
    ),
    ("metadata", "write `- name: …` below `jobs:`"),
    ("spec", "write `- name: …` below `jobs:`"),
    (
        "steps",
        "a job is one command: write `jobs:` and below it `- name: …`",
    ),
];

/// Values of `on_overlap` elsewhere.
pub(super) const OVERLAP_WORDS: &[(&str, &str)] = &[
    ("forbid", "`skip` does the same, and is the default"),
    ("deny", "`skip` does the same, and is the default"),
    ("no-overlap", "`skip` does the same, and is the default"),
    ("discard", "`skip` does the same, and is the default"),
    (
        "allow",
        "write `lock: { scope: none }` instead: runs then take no lock, may overlap, and every \
         host runs every occurrence",
    ),
    (
        "parallel",
        "write `lock: { scope: none }` instead: runs then take no lock, may overlap, and every \
         host runs every occurrence",
    ),
    ("false", "`skip` does the same, and is the default"),
    ("no", "`skip` does the same, and is the default"),
    (
        "true",
        "write `lock: { scope: none }` instead: runs then take no lock, may overlap, and every \
         host runs every occurrence",
    ),
    (
        "replace",
        "a run is never ended for the next one: set `timeout` to end it in time, and `wait` to have \
         the newest occurrence follow",
    ),
    (
        "cancel",
        "a run is never ended for the next one: set `timeout` to end it in time, and `wait` to have \
         the newest occurrence follow",
    ),
    (
        "latest",
        "`wait` does the same: the newest occurrence waits",
    ),
    ("delay", "`wait` does the same: the newest occurrence waits"),
    ("all", "`queue` does the same: occurrences run in order"),
    ("serial", "`queue` does the same: occurrences run in order"),
    (
        "buffer",
        "`wait` keeps the newest occurrence, `queue` all of them in order",
    ),
];

/// Values of `catch_up` elsewhere.
pub(super) const CATCH_UP_WORDS: &[(&str, &str)] = &[
    (
        "true",
        "`latest` runs the newest of them, `all` each of them",
    ),
    (
        "yes",
        "`latest` runs the newest of them, `all` each of them",
    ),
    ("once", "`latest` does the same"),
    ("last", "`latest` does the same"),
    ("coalesce", "`latest` does the same"),
    ("false", "`none` does the same"),
    ("no", "`none` does the same"),
    ("off", "`none` does the same"),
    ("skip", "`none` does the same"),
];

/// Values of `on_crash` elsewhere.
pub(super) const CRASH_WORDS: &[(&str, &str)] = &[
    ("restart", "`rerun` does the same"),
    ("retry", "`rerun` does the same"),
    (
        "onfailure",
        "`rerun` runs it again when its host has died; `retry` is for failures",
    ),
    ("never", "`ignore` does the same"),
    ("no", "`ignore` does the same"),
];

/// What a word of another tool is here.
pub(super) fn meaning(
    word: &str,
    words: &'static [(&'static str, &'static str)],
) -> Option<&'static str> {
    let bare = |text: &str| -> String {
        text.chars()
            .filter(|c| !matches!(c, '_' | '-' | ' '))
            .flat_map(char::to_lowercase)
            .collect()
    };
    let word = bare(word);
    words
        .iter()
        .find(|(known, _)| bare(known) == word)
        .map(|(_, help)| *help)
}
