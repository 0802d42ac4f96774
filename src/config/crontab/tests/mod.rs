//! Crontabs as lists: what is read, what is remarked, and when the jobs are due.

mod due;

use std::sync::Arc;

use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;

use super::{CrontabKind, Crontabs, ReadOptions, RemarkKind};
use crate::config::environment::Environment;
use crate::config::model::{Job, JobList};
use crate::config::program::Command;
use crate::config::source::Source;
use crate::config::{ConfigErrors, list};

fn environment() -> Environment {
    let mut environment = Environment::of(&[("HOME", "/home/me")]);
    environment.zone = Some("Europe/Berlin".to_owned());
    environment
}

fn options(kind: CrontabKind) -> ReadOptions {
    ReadOptions {
        kind: Some(kind),
        owner: None,
    }
}

fn import(path: &str, text: &str, options: &ReadOptions) -> Crontabs {
    let mut crontabs = Crontabs::in_environment(&environment());
    crontabs.add(Path::new(path), text, options);
    crontabs
}

/// The list that is read from a file of this name and text.
fn read_list(path: &str, text: &str) -> Result<JobList, ConfigErrors> {
    let path = Path::new(path);
    list::read(path, &[Source::new(path, text.to_owned())], &environment())
}

#[track_caller]
fn valid(path: &str, text: &str) -> JobList {
    match read_list(path, text) {
        Ok(list) => list,
        Err(errors) => panic!("{errors}\n{text}"),
    }
}

/// The list, and the remarks in the order of the lines.
fn shown(crontabs: &Crontabs) -> String {
    let mut text = crontabs.list().text;
    text += "---\n";
    for remark in &crontabs.remarks {
        let kind = match remark.kind {
            RemarkKind::NeedsLook => "look",
            RemarkKind::Note => "note",
        };
        let _ = writeln!(text, "{}: {kind}: {}", remark.line.line, remark.text);
    }
    text
}

/// All that a line of these crontabs and the lines above it mean is the same as a job that is
/// imported and as a job of a crontab that runs as it is.
#[track_caller]
fn assert_same(path: &str, text: &str, crontabs: &Crontabs) {
    let imported = valid("jobs.yaml", &crontabs.list().text);
    let as_it_is = valid(path, text);
    assert_eq!(
        format!("{:#?}", imported.jobs),
        format!("{:#?}", as_it_is.jobs)
    );
    assert_eq!(imported.fingerprint, as_it_is.fingerprint);
}

#[test]
fn a_users_crontab_becomes_a_list() {
    let text = "\
# m h dom mon dow command
SHELL=/bin/bash
PATH=/opt/bin:/usr/bin
MAILTO=ops@example.org
CRON_TZ=Europe/Vienna
ODD=$HOME/x

# The nightly backup.
30 2 * * *  /usr/local/bin/backup --all ${TARGET} $$ >> /var/log/backup.log 2>&1
*/5 * * * * flock -n /tmp/queue.lock php /srv/app/queue-work.php
#0 4 * * *  disabled
0 8 * * 1   mail -s \"week \\%V\" boss@example.org%Dear boss,%%all is \\% well.%
@reboot     /usr/local/bin/warm-caches
@daily      mysqldump app | gzip > /b/$(date +\\%F).gz
MAILTO=\"\"
0 0 L * *   /usr/local/bin/close-month >/dev/null
61 * * * *  never
what is this
* * * * * * with seconds
# the end
";
    let crontabs = import("crontab.txt", text, &ReadOptions::default());
    insta::assert_snapshot!(shown(&crontabs));
    assert_eq!(crontabs.job_count(), 6);
    let right: Vec<&str> = (text.lines())
        .filter(|line| !line.starts_with("61"))
        .collect();
    let right = right.join("\n") + "\n";
    let crontabs = import("crontab.txt", &right, &ReadOptions::default());
    assert_same("crontab.txt", &right, &crontabs);
}

#[test]
fn a_system_crontab_becomes_a_list_with_users() {
    let text = "\
SHELL=/bin/sh
PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin
17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly
25 6\t* * *\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }
*/10 * * * *\twww-data:adm\ttimeout 5m php /srv/cron.php
0 5 * * *\tnemo\t/bin/x
0 6 * * *\troot
TZ=UTC
*/10 * * * * root sleep $((RANDOM \\% 120)); /usr/local/bin/ping-monitor
0 1 * * * root tar cf /b/$(date +%F).tar /srv
0 7 * * * root worker & other
";
    let crontabs = import("/etc/crontab", text, &ReadOptions::default());
    insta::assert_snapshot!(shown(&crontabs));
    assert_same("/etc/crontab", text, &crontabs);
}

#[test]
fn jobs_get_their_input_whatever_the_shell() {
    let remarks = |text: &str| import("x", text, &options(CrontabKind::User)).remarks.len();
    // One is about the owner, and one about MAILTO.
    assert_eq!(remarks("0 1 * * * mail x%text\n"), 2);
    assert_eq!(remarks("SHELL=/usr/bin/fish\n0 1 * * * mail x%text\n"), 3);
    assert_eq!(remarks("0 1 * * * echo \"100%\"\n"), 3);
}

#[test]
fn the_form_of_a_crontab_is_found_from_its_lines() {
    let kind = |text: &str| {
        let crontabs = import("x", text, &ReadOptions::default());
        let list = crontabs.list().text;
        list.contains("user: ")
    };
    assert!(kind("0 5 * * * root /bin/x\n0 6 * * * nemo /bin/y\n"));
    assert!(!kind("0 5 * * * /bin/x root\n"));
    // `echo` is a program.
    assert!(!kind("0 5 * * * root x\n0 6 * * * echo x\n"));
    assert!(!kind("0 5 * * * Root x\n"));
    assert!(!kind("0 5 * * * root\n"));
}

#[test]
fn the_owner_is_the_one_given_or_the_name_of_the_file_in_the_spool() {
    let text = "0 5 * * * /bin/x\n";
    let given = ReadOptions {
        kind: Some(CrontabKind::User),
        owner: Some("backup".to_owned()),
    };
    let of = |path: &str, options: &ReadOptions| import(path, text, options).list().text;
    let user = |list: String| valid("l.yaml", &list).jobs.remove(0);
    let job = user(of("x", &given));
    assert_eq!(
        (job.process.user.as_deref(), job.process.working_dir.clone()),
        (Some("backup"), None)
    );
    let spool = "/var/spool/cron/crontabs/www-data";
    let job = user(of(spool, &ReadOptions::default()));
    assert_eq!(job.process.user.as_deref(), Some("www-data"));
    // The daemon's own, whose home the list finds when it is read.
    let job = user(of("x", &ReadOptions::default()));
    assert_eq!(job.process.user, None);
    assert_eq!(
        job.process.working_dir.as_deref(),
        Some(Path::new("/home/me"))
    );
    let home = import(
        "x",
        "HOME=/srv\n0 5 * * * x y\n",
        &options(CrontabKind::User),
    );
    let job = user(home.list().text);
    assert_eq!(job.process.working_dir.as_deref(), Some(Path::new("/srv")));
}

#[test]
fn jobs_and_locks_of_several_crontabs_have_names_of_their_own() {
    let mut crontabs = import(
        "a",
        "* * * * * flock -n /tmp/sync /bin/x\n* * * * * sync\n* * * * * /bin/x\n",
        &options(CrontabKind::User),
    );
    crontabs.add(
        Path::new("b"),
        "* * * * * /opt/x\n* * * * * flock /run/sync /bin/y\n* * * * * flock -w 9 /tmp/sync z\n",
        &options(CrontabKind::User),
    );
    let list = valid("l.yaml", &crontabs.list().text);
    let names: Vec<_> = (list.jobs.iter())
        .map(|job| format!("{} {}", job.name, job.lock.name))
        .collect();
    assert_eq!(
        names,
        [
            "x sync",
            "sync-2 sync-2",
            "x-2 x-2",
            "x-3 x-3",
            "y sync-3",
            "z sync"
        ]
    );
}

#[test]
fn warnings_about_the_list_lead_back_to_the_line_of_the_crontab() {
    let text = "# a\n0 5 * * * /bin/x\n\n# b\n0 6 * * * a | b\n0 7 * * * /bin/y\n";
    let crontabs = import("x", text, &options(CrontabKind::User));
    let list = crontabs.list();
    let pipe = list.text.lines().position(|line| line.contains('|'));
    let origin = list.origin(pipe.expect("a pipe") + 1);
    assert_eq!(origin.map(|line| line.line), Some(5));
    assert_eq!(list.origin(1), None);
}

#[test]
fn settings_that_a_list_cannot_have_are_left_out_with_a_remark() {
    let text = "\
SHELL=bash
CRON_TZ=CEST
MAILFROM=x
RANDOM_DELAY=30
USER=root
1X=y
CRONLATCH_JOB=x
TZ=Asia/Tokyo
0 5 * * * /bin/x
";
    let crontabs = import("x", text, &options(CrontabKind::User));
    insta::assert_snapshot!(shown(&crontabs));
    valid("l.yaml", &crontabs.list().text);
}

#[test]
fn whom_cron_mails_becomes_a_target_of_the_jobs_below() {
    let text = "\
0 1 * * * /bin/user
MAILTO=ops@example.org
0 2 * * * /bin/ops
MAILFROM=cron@example.org
MAILTO=\"ops@example.org, root\"
0 3 * * * /bin/two
MAILTO=ops@example.net
MAILFROM=no sender
0 4 * * * /bin/other
MAILTO=none@example.org,-oQ/tmp
0 5 * * * /bin/wrong
MAILTO=none
0 6 * * * /bin/none
MAILTO=\"\"
0 7 * * * /bin/nobody
MAILTO=ops@example.org
0 8 * * * /bin/again
";
    let crontabs = import("x", text, &options(CrontabKind::User));
    insta::assert_snapshot!(shown(&crontabs));
    assert_same("x", text, &crontabs);
    let targets = |path: &str, text: &str| {
        let list = valid(path, text);
        assert!(!list.warnings.iter().any(|w| w.contains("no job names")));
        let of = |job: &Arc<Job>| {
            let targets = job.alerts.targets.iter();
            let shown = targets.map(|name| {
                let target = list.notify.iter().find(|target| target.name == *name);
                target.map_or_else(String::new, |target| target.channel.shown())
            });
            shown.collect::<Vec<_>>().join("; ")
        };
        list.jobs.iter().map(of).collect::<Vec<_>>()
    };
    let expected = [
        "",
        "ops@example.org",
        "ops@example.org, root",
        "ops@example.net",
        "",
        "none",
        "",
        "ops@example.org",
    ];
    assert_eq!(targets("l.yaml", &crontabs.list().text), expected);
    assert_eq!(targets("x", text), expected);
}

#[test]
fn a_crontab_in_a_file_for_yaml_is_an_error_that_names_import() {
    let errors = read_list("jobs.yaml", "# x\n\n*/5 * * * * /bin/x\n").expect_err("refused");
    insta::assert_snapshot!(errors.to_string());
}

#[test]
fn errors_of_a_crontab_that_runs_as_it_is_show_its_line_and_column() {
    let text = "# x\n5  4 * * 8   /bin/x\n0 0 31 2 *\t/bin/y\n@weakly /bin/z\n";
    let errors = read_list("crontab", text).expect_err("refused");
    insta::assert_snapshot!(errors.to_string());
}

#[test]
fn carriage_returns_and_a_missing_line_end_are_remarked() {
    let text = "0 5 * * * /bin/x\r\n0 6 * * * /bin/y";
    let crontabs = import("x", text, &options(CrontabKind::User));
    assert_eq!(crontabs.job_count(), 2);
    let remarks: Vec<_> = crontabs.remarks.iter().map(|r| r.line.line).collect();
    assert_eq!(remarks, [0, 2, 0, 0]);
    assert!(!crontabs.list().text.contains('\r'));
}

/// Lines of crontabs with every sign that could upset a list.
fn line() -> impl Strategy<Value = String> {
    let sign = prop::sample::select(vec![
        "a",
        " ",
        "$",
        "${A}",
        "$$",
        "%",
        "\\%",
        "\\",
        "\"",
        "'",
        "#",
        ": ",
        "- ",
        "|",
        "&",
        ";",
        "\t",
        "é",
        "\u{2028}",
        "\u{85}",
        "\u{7f}",
        "\u{feff}",
        "\u{1}",
        "{",
        "}",
        "<<E",
        "*",
        "/bin/x",
        "=",
        "flock -n /x ",
        "flock ",
        "-c ",
        "~",
        "!",
        "[",
        ",",
        "null",
        "1",
    ]);
    let text = prop::collection::vec(sign, 0..12).prop_map(|signs| signs.concat());
    let start = prop::sample::select(vec![
        "* * * * * ",
        "5 4 * * sun ",
        "@daily ",
        "@reboot ",
        "99 * * * * ",
        "A=",
        "SHELL=",
        "HOME=",
        "CRON_TZ=",
        "MAILTO=",
        "MAILFROM=",
        "#",
        "",
    ]);
    (start, text).prop_map(|(start, text)| format!("{start}{text}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A list is made of any crontab, and its commands are those that cron would run.
    #[test]
    fn any_crontab_becomes_a_valid_list(
        lines in prop::collection::vec(line(), 0..8),
        system in any::<bool>(),
    ) {
        let kind = if system { CrontabKind::System } else { CrontabKind::User };
        let crontabs = import("x", &lines.join("\n"), &options(kind));
        let list = crontabs.list().text;
        let read = match read_list("l.yaml", &list) {
            Ok(read) => read,
            Err(errors) => return Err(TestCaseError::fail(format!("{errors}\n{list}"))),
        };
        prop_assert_eq!(read.jobs.len(), crontabs.job_count());
        for (job, from) in read.jobs.iter().zip(crontabs.valid_jobs()) {
            let Command::Shell { script, .. } = &*job.command else {
                return Err(TestCaseError::fail("a list of words"));
            };
            let Some(super::model::FieldValue::Text(command)) = from.field("command").cloned() else {
                return Err(TestCaseError::fail("no command"));
            };
            prop_assert_eq!(script, &command, "{}", list);
        }
    }
}
