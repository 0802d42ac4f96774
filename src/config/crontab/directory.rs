//! `/etc/cron.hourly`, `cron.daily`, `cron.weekly` and `cron.monthly`: scripts for run-parts(8).

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::model::{CrontabJob, Crontabs, FieldValue, LineRef, RemarkKind};
use super::naming;
use crate::ground::sorting::SortShort as _;

/// When Debian's /etc/crontab runs them.
const SCHEDULES: [(&str, &str); 4] = [
    ("hourly", "17 * * * *"),
    ("daily", "25 6 * * *"),
    ("weekly", "47 6 * * 7"),
    ("monthly", "52 6 1 * *"),
];
/// The search path in Debian's /etc/crontab.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin";

/// The schedule of a directory of scripts, by its name.
pub(super) fn schedule(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let (_, period) = name.rsplit_once('.')?;
    let (_, schedule) = SCHEDULES.iter().find(|(known, _)| *known == period)?;
    Some(schedule)
}

/// Reads the scripts of the last of `crontabs.paths`, in the order in which run-parts runs them.
pub(super) fn read(crontabs: &mut Crontabs, path: &Path) -> std::io::Result<()> {
    let schedule = schedule(path).unwrap_or("25 6 * * *");
    let folder = path.file_name().and_then(|name| name.to_str());
    let folder = folder.unwrap_or("cron").to_owned();
    let mut files: Vec<_> = std::fs::read_dir(path)?.collect::<Result<_, _>>()?;
    files.sort_short_by_key(std::fs::DirEntry::file_name);
    let lock = naming::unique(&folder, crontabs);
    let mut scripts = 0;
    for file in files {
        let name = file.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || file.path().is_dir() {
            continue;
        }
        if let Some(why) = why_skipped(&name, &file.path()) {
            crontabs.remark(
                0,
                RemarkKind::NeedsLook,
                format!("run-parts skips {name}, so it is left out: {why}"),
            );
            continue;
        }
        scripts += 1;
        let script = CronScript {
            // The job runs in another directory than the one who imports.
            path: &std::path::absolute(file.path())?,
            name: format!("{folder}.{name}"),
            schedule,
            lock: &lock,
        };
        let job = script.job(crontabs);
        crontabs.jobs.push(job);
    }
    if scripts > 0 {
        crontabs
            .locks
            .insert(path.display().to_string(), lock.clone());
        crontabs.remark(
            0,
            RemarkKind::Note,
            format!(
                "its scripts share the lock `{lock}`, so that they run one after another, in any \
                 order; run-parts runs them in the order of their names"
            ),
        );
        remark_run_parts(crontabs, path);
    }
    Ok(())
}

fn why_skipped(name: &str, path: &Path) -> Option<&'static str> {
    let is_name = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if !is_name {
        return Some("its name has characters other than letters, digits, `_` and `-`");
    }
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.permissions().mode() & 0o111 != 0 => None,
        Ok(_) => Some("it is not executable"),
        Err(_) => Some("it cannot be read"),
    }
}

/// A crontab may run the whole directory already.
fn remark_run_parts(crontabs: &mut Crontabs, path: &Path) {
    let folder = path.display().to_string();
    let runs_it = |job: &&CrontabJob| {
        job.fields.iter().any(|(name, value)| {
            matches!(value, FieldValue::Text(text) if *name == "command"
                && text.contains("run-parts")
                && text.split_whitespace().any(|word| word.trim_matches(['"', '\'', ')', '}', ';']) == folder))
        })
    };
    let found = crontabs
        .jobs
        .iter()
        .find(runs_it)
        .map(|job| job.name.clone());
    if let Some(job) = found {
        crontabs.remark(
            0,
            RemarkKind::NeedsLook,
            format!(
                "the job {job} runs all of {folder} already: remove it, or the jobs of the scripts"
            ),
        );
    }
}

/// A script that becomes a job.
struct CronScript<'a> {
    path: &'a Path,
    name: String,
    schedule: &'static str,
    lock: &'a str,
}

impl CronScript<'_> {
    fn job(&self, crontabs: &Crontabs) -> CrontabJob {
        let map = |pairs: &[(&str, &str)]| {
            let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            FieldValue::Map(pairs.iter().map(own).collect())
        };
        CrontabJob {
            line: LineRef {
                file: crontabs.paths.len() - 1,
                line: 0,
            },
            columns: (1, 1),
            zone_line: None,
            comments: Vec::new(),
            name: naming::unique(&self.name, crontabs),
            fields: vec![
                ("schedule", FieldValue::text(self.schedule)),
                (
                    "command",
                    FieldValue::Text(quoted(&self.path.display().to_string())),
                ),
                ("env", map(&[("PATH", PATH)])),
                ("timezone", FieldValue::Text(crontabs.zone())),
                ("user", FieldValue::text("root")),
                ("working_dir", FieldValue::text("/")),
                ("lock", map(&[("scope", "host"), ("name", self.lock)])),
                // One after another, as run-parts runs them. Each waits for all the others.
                ("on_overlap", FieldValue::text("wait")),
                ("start_deadline", FieldValue::text("12h")),
                // What anacron would do.
                ("catch_up_window", FieldValue::text("12h")),
            ],
            refused: None,
        }
    }
}

/// A path as a word for the shell.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@".contains(c);
    if path.chars().all(is_plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', "'\\''"))
    }
}
