//! Moving in: crontabs as lists (`import`), and crontabs that run as they are.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::docs::{ROOT, blocks};
use crate::support::{Daemon, Output, command};

struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Runs `cronlatch` on a host whose time zone is Berlin's.
    #[track_caller]
    fn run(&self, args: &[&str]) -> Output {
        let mut command = command::command(command::BINARY);
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("TZ", "Europe/Berlin")
            .env("HOME", self.dir.path())
            .env("CRONLATCH_HOST", "here")
            .env("STATE_DIRECTORY", self.dir.path());
        command::output(command)
    }
}

/// A way of crontabs, what the report has to contain for it, and whether it becomes a job.
struct Trap {
    line: &'static str,
    remark: Option<&'static str>,
    is_job: bool,
}

const fn trap(line: &'static str, remark: &'static str) -> Trap {
    Trap {
        line,
        remark: Some(remark),
        is_job: true,
    }
}

const fn plain(line: &'static str) -> Trap {
    Trap {
        line,
        remark: None,
        is_job: true,
    }
}

const fn lost(line: &'static str, remark: &'static str) -> Trap {
    Trap {
        line,
        remark: Some(remark),
        is_job: false,
    }
}

const TRAPS: [Trap; 38] = [
    plain("30 2 * * * /usr/local/bin/backup --all >> /var/log/backup.log 2>&1"),
    trap(
        "0 3 * * * mysqldump app | gzip > /b/app.gz",
        "exit code of a pipe",
    ),
    plain("0 4 * * * tar cf /b/$(date +\\%F).tar /srv"),
    plain("0 9 * * 1 mail -s week boss@example.org%Dear boss,%all is well.%"),
    trap(
        "*/5 * * * * flock -n /tmp/queue.lock php /srv/queue.php",
        "became `lock: { name: queue.lock }`",
    ),
    trap(
        "*/7 * * * * flock /tmp/slow.lock php /srv/slow.php",
        "for no longer than `start_deadline`",
    ),
    trap(
        "*/9 * * * * flock -w 30 /tmp/queue.lock php /srv/other.php",
        "only the newest",
    ),
    trap(
        "*/5 * * * * (flock -n 9 || exit 1; x) 9>/tmp/l",
        "`flock` stays in the command",
    ),
    lost("@reboot /usr/local/bin/warm-caches", "@reboot is left out"),
    plain("@daily logrotate /etc/logrotate.d/app"),
    plain("@hourly /usr/local/bin/hourly"),
    plain("@weekly /usr/local/bin/weekly"),
    trap(
        "MAILTO=ops@example.org",
        "MAILTO=ops@example.org became a target of `notify`",
    ),
    trap("MAILTO=\"\"", "an empty MAILTO"),
    trap("CRON_TZ=EST", "`EST` keeps one offset"),
    trap("CRON_TZ=CEST", "`CEST` is not a time zone"),
    plain("CRON_TZ=Europe/Vienna"),
    plain("SHELL=/no/such/shell"),
    trap(
        "4 4 * * * /usr/local/bin/lost",
        "there is no shell /no/such/shell",
    ),
    trap("SHELL=bash", "SHELL=`bash` is left out"),
    plain("SHELL=/bin/bash"),
    trap("5 5 * * * dump | xz > /b/x", "with bash a pipe fails"),
    plain("SHELL=/bin/sh"),
    trap("PATH=$HOME/bin:/usr/bin", "cron replaces no variables"),
    plain("PATH=/usr/local/bin:/usr/bin:/bin"),
    plain("HOME=/tmp"),
    trap(
        "*/10 * * * * sleep $((RANDOM \\% 120)); /usr/local/bin/ping",
        "`jitter: 10m`",
    ),
    trap(
        "1 0 * * * tar cf /b/$(date +%F).tar /srv",
        "cron ends this command at the first `%`",
    ),
    trap("1 1 * * * server &", "ends with `&`"),
    trap("1 2 * * * worker & other", "left in the background"),
    trap(
        "59 23 L * * /usr/local/bin/close-month",
        "most crons reject `L`",
    ),
    trap(
        "5/15 * * * * /usr/local/bin/quarter",
        "most crons reject `5/15`",
    ),
    lost("0 25 * * * /usr/local/bin/never", "its schedule is refused"),
    lost(
        "0 0 31 2 * /usr/local/bin/never-2",
        "its schedule is refused",
    ),
    trap("* * * * * * /usr/local/bin/seconds", "sixth field"),
    lost("hello world", "neither a setting nor a job"),
    plain("0 12 13 * 5 echo \"a Friday or a 13th\" ${USER} $$ # not a comment"),
    plain("# A comment of the crontab."),
];

/// The traps again and again, each job with an argument of its own.
fn crontab() -> (String, usize) {
    let mut text = String::new();
    let mut jobs = 0;
    for number in 0..300 {
        let trap = &TRAPS[number % TRAPS.len()];
        let is_schedule = trap
            .line
            .starts_with(|c: char| c.is_ascii_digit() || "*@".contains(c));
        jobs += usize::from(trap.is_job && is_schedule);
        text += trap.line;
        text.push('\n');
    }
    (text, jobs)
}

/// The name and the occurrences of each job.
fn occurrences(next: &Output) -> Vec<(String, Value)> {
    let job = |coming: Value| (coming["job"].to_string(), coming["occurrences"].clone());
    next.json_lines().into_iter().map(job).collect()
}

const NEXT: [&str; 6] = [
    "next",
    "--json",
    "--count=20",
    "--from",
    "2028-02-20T00:00:00Z",
    "--",
];

#[test]
fn a_crontab_of_300_lines_with_every_trap_is_imported_and_checked() {
    let folder = Folder::new();
    let (text, jobs) = crontab();
    assert!(text.lines().count() == 300 && jobs > 150);
    folder.write("crontab", &text);
    let imported = folder
        .run(&["import", "crontab", "--output", "jobs.yaml"])
        .expect_code(0);
    assert_eq!(imported.stdout, "");
    for (index, trap) in TRAPS.iter().enumerate() {
        let place = format!("crontab:{}: ", index + 1);
        let remarks: Vec<&str> = (imported.stderr.lines())
            .filter(|line| line.contains(&place))
            .collect();
        match trap.remark {
            Some(remark) => assert!(
                remarks.iter().any(|line| line.contains(remark)),
                "{place}{} has no {remark:?}: {remarks:#?}",
                trap.line
            ),
            None => assert!(remarks.is_empty(), "{place}{}: {remarks:#?}", trap.line),
        }
    }
    let list = fs::read_to_string(folder.dir.path().join("jobs.yaml")).unwrap();
    for comment in [
        "# A comment of the crontab.",
        "# left out: @reboot /usr/local/bin/warm-caches",
        "# not read: hello world",
        "#   schedule: \"0 25 * * *\"",
    ] {
        assert!(list.contains(comment), "{comment} is missing in {list}");
    }
    let checked = folder.run(&["check", "--json", "jobs.yaml"]).expect_code(0);
    let [checked] = checked.json_lines().try_into().unwrap();
    assert_eq!(checked["jobs"].as_array().map(Vec::len), Some(jobs));
    // A second import does not replace the list.
    let again = folder.run(&["import", "crontab", "--output", "jobs.yaml"]);
    assert_eq!(again.code(), 78);
    assert_eq!(
        fs::read_to_string(folder.dir.path().join("jobs.yaml")).unwrap(),
        list
    );
}

#[test]
fn a_crontab_of_300_lines_as_it_is_has_the_jobs_of_its_import() {
    let folder = Folder::new();
    let (text, jobs) = crontab();
    folder.write("crontab", &text);
    // What cron would refuse is an error here, with its line.
    let refused = folder.run(&["check", "crontab"]).expect_code(78);
    assert!(
        refused
            .stderr
            .contains("crontab:33:3: error: not a valid cron"),
        "{refused:#?}"
    );
    let valid = |line: &&str| !line.contains("/never");
    let text: Vec<&str> = text.lines().filter(valid).collect();
    let text = text.join("\n") + "\n";
    folder.write("crontab", &text);
    let checked = folder.run(&["check", "--json", "crontab"]).expect_code(0);
    let [checked] = checked.json_lines().try_into().unwrap();
    assert_eq!(checked["jobs"].as_array().map(Vec::len), Some(jobs));
    let warnings = checked["warnings"].to_string();
    for trap in TRAPS.iter().filter(|trap| !trap.line.contains("/never")) {
        if let Some(remark) = trap.remark {
            assert!(
                warnings.contains(&remark.replace('"', "\\\"")),
                "{remark} is missing"
            );
        }
    }
    folder
        .run(&["import", "crontab", "-o", "jobs.yaml"])
        .expect_code(0);
    let as_it_is = folder
        .run(&[&NEXT[..], &["crontab"]].concat())
        .expect_code(0);
    let imported = folder
        .run(&[&NEXT[..], &["jobs.yaml"]].concat())
        .expect_code(0);
    assert_eq!(occurrences(&as_it_is), occurrences(&imported));
    assert_eq!(occurrences(&as_it_is).len(), jobs);
}

#[test]
fn directories_are_imported_file_by_file() {
    let folder = Folder::new();
    folder.write("cron.d/app", "MAILTO=x\n*/5 * * * * root /opt/app/tick\n");
    folder.write("cron.d/app.dpkg-old", "* * * * * root /opt/app/old\n");
    folder.write("cron.d/.placeholder", "");
    folder.write("cron.d/zone", "CRON_TZ=UTC\n0 1 * * * root /opt/zone\n");
    for (name, mode) in [("10backup", 0o755), ("readme.txt", 0o644), ("off", 0o644)] {
        let path = folder.write(&format!("cron.daily/{name}"), "#!/bin/sh\n");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let crontab = format!(
        "25 6 * * * root cd / && run-parts --report {}/cron.daily\n",
        folder.dir.path().display()
    );
    folder.write("crontab", &crontab);
    let daily = folder.dir.path().join("cron.daily").display().to_string();
    let args = [
        "import",
        "--format=system",
        "crontab",
        "cron.d",
        &daily,
        "--json",
    ];
    let [imported] = folder
        .run(&args)
        .expect_code(0)
        .json_lines()
        .try_into()
        .unwrap();
    let list = imported["list"].as_str().unwrap();
    folder.write("jobs.yaml", list);
    let next = folder.run(&["next", "--json", "jobs.yaml"]).expect_code(0);
    let jobs: Vec<String> = occurrences(&next).into_iter().map(|(job, _)| job).collect();
    assert_eq!(
        jobs,
        [
            "\"cron.daily\"",
            "\"tick\"",
            "\"zone\"",
            "\"cron.daily.10backup\""
        ]
    );
    assert_eq!(imported["jobs"], 4);
    let report = imported["report"].as_array().unwrap();
    let has = |kind: &str, path: &str, text: &str| {
        report.iter().any(|line| {
            line["kind"] == kind
                && line["path"].as_str().unwrap().ends_with(path)
                && line["text"].as_str().unwrap().contains(text)
        })
    };
    assert!(
        has(
            "needs_look",
            "cron.d/app.dpkg-old",
            "cron ignores this file"
        ),
        "{report:#?}"
    );
    assert!(
        has("needs_look", "cron.daily", "run-parts skips off"),
        "{report:#?}"
    );
    assert!(
        has("needs_look", "cron.daily", "run-parts skips readme.txt"),
        "{report:#?}"
    );
    assert!(
        has("needs_look", "cron.daily", "the job cron.daily runs all of"),
        "{report:#?}"
    );
    assert!(has("note", "cron.daily", "share the lock"), "{report:#?}");
    // Its jobs run in another directory than the one who imports.
    let relative = folder.run(&["import", "cron.daily"]).expect_code(0);
    let command = format!("command: {daily}/10backup\n");
    assert!(relative.stdout.contains(&command), "{}", relative.stdout);
    assert!(
        !list.contains("placeholder") && !list.contains("/opt/app/old"),
        "{list}"
    );
}

#[test]
fn import_reads_standard_input_and_says_what_it_cannot_read() {
    let folder = Folder::new();
    let shell = format!(
        "printf '@daily /bin/x\\n' | {} import - --user nobody",
        command::BINARY
    );
    let mut import = command::command("/bin/sh");
    import.args(["-c", &shell]);
    let imported = command::output(import).expect_code(0);
    assert!(imported.stdout.contains("user: nobody"), "{imported:#?}");
    assert!(
        imported.stderr.starts_with("1 job imported\n"),
        "{imported:#?}"
    );
    folder.write("latin1", "");
    fs::write(folder.dir.path().join("latin1"), b"# caf\xe9\n").unwrap();
    for path in ["/no/such/crontab", "latin1"] {
        let refused = folder.run(&["import", path]).expect_code(78);
        assert!(refused.stderr.contains(path), "{refused:#?}");
    }
    assert_eq!(folder.run(&["import"]).code(), 64);
}

#[test]
fn import_leaves_no_half_of_a_list_behind() {
    let folder = Folder::new();
    folder.write("tab", "@daily /bin/x\n");
    // Files may not have a single byte, as on a full disk.
    let shell = format!(
        "trap '' XFSZ; ulimit -f 0; exec {} import tab -o list.yaml",
        command::BINARY
    );
    let mut import = command::command("/bin/sh");
    import.args(["-c", &shell]).current_dir(folder.dir.path());
    // The message is lost too: what the test collects is a file.
    command::output(import).expect_code(74);
    assert!(!folder.dir.path().join("list.yaml").exists());
    let imported = folder.run(&["import", "tab", "-o", "list.yaml"]);
    assert_eq!(imported.code(), 0, "{imported:#?}");
}

#[test]
fn a_job_of_a_crontab_that_runs_as_it_is_has_the_surroundings_of_cron() {
    let folder = Folder::new();
    folder.write(
        "crontab",
        "A=' b '\n\
         0 0 1 1 * /bin/sh -c 'pwd; echo \"$PATH [$A] 100\\%\"; cat'%in%put\\%\n",
    );
    let run = folder.run(&["trigger", "--here", "-c", "crontab", "pwd", "--wait"]);
    assert_eq!(run.code(), 0, "{run:#?}");
    for line in [
        folder.dir.path().to_str().unwrap(),
        "/usr/bin:/bin [ b ] 100%",
        "in",
        "put%",
    ] {
        let logged = format!(" INFO {line} job=pwd ");
        assert!(run.stderr.contains(&logged), "{line}: {run:#?}");
    }
}

/// The daemon starts five seconds before a minute begins.
#[test]
fn a_daemon_runs_a_crontab_as_it_is() {
    let folder = Folder::new();
    let crontab = folder.write(
        "crontab",
        "# mine\n* * * * * echo a | cat; echo from-$((40 + 2))\n",
    );
    let millis = chrono::Utc::now().timestamp_millis();
    let to_minute = (115_000 - millis % 60_000) % 60_000;
    let mut daemon = Daemon::on("host", "")
        .list(&crontab)
        .clock_shifted_by(to_minute)
        .start();
    daemon.wait_log(&["from-42", "job=echo"]);
    assert!(daemon.lines_with(&["WARN", "exit code of a pipe"]) == 1);
}

#[test]
fn the_crontab_of_the_documentation_is_imported() {
    let folder = Folder::new();
    let page = fs::read_to_string(Path::new(ROOT).join("docs/from-crontab.md")).unwrap();
    let (_, crontab) = blocks(&page, "crontab").remove(0);
    let lines = crontab
        .lines()
        .filter(|line| line.contains('*') || line.starts_with('@'));
    let jobs = lines.count() - 1;
    folder.write("crontab", &crontab);
    folder
        .run(&["import", "crontab", "-o", "jobs.yaml", "--format=system"])
        .expect_code(0);
    let next = folder.run(&["next", "--json", "jobs.yaml"]).expect_code(0);
    assert_eq!(occurrences(&next).len(), jobs);
}

#[test]
fn what_is_no_crontab_is_refused_with_what_import_reads() {
    let folder = Folder::new();
    let refused = |name: &str| folder.run(&["import", name]).expect_code(78).stderr;
    let absent = refused("absent");
    assert!(
        absent.contains("name a crontab, /etc/cron.d, a directory of scripts, or `-`"),
        "{absent}"
    );
    assert!(!absent.contains("yaml"), "{absent}");
    let path = folder.write("binary", "");
    fs::write(path, b"\x7fELF\x02\x01\n\xff\xfe").unwrap();
    let binary = refused("binary");
    assert!(binary.contains("this is not a crontab: "), "{binary}");
    assert!(!binary.contains("UTF-8"), "{binary}");
    let list = "\
jobs:
  - name: a
    every: 1h
    command: 'true'
";
    folder.write("jobs.yaml", list);
    let yaml = refused("jobs.yaml");
    assert!(
        yaml.contains("jobs.yaml is a job list already: there is nothing to import"),
        "{yaml}"
    );
    assert_eq!(yaml.trim_end().lines().count(), 1, "{yaml}");
    folder.write("page.md", &format!("# A page\n\n```yaml\n{list}```\n"));
    let page = refused("page.md");
    assert!(page.contains("page.md is not a crontab"), "{page}");
    assert!(!page.contains("is a job list already"), "{page}");
}

#[test]
fn only_imported_jobs_are_counted_as_without_mailto() {
    let folder = Folder::new();
    folder.write(
        "crontab",
        "0 1 * * * true\n61 1 * * * true\n62 1 * * * true\n",
    );
    let report = folder.run(&["import", "crontab"]).expect_code(0).stderr;
    assert!(report.contains("1 job imported"), "{report}");
    assert!(report.contains("1 job has no MAILTO"), "{report}");
}
