//! A crontab, line by line: each job with the settings and comments above it.

use std::collections::BTreeMap;
use std::path::Path;

use super::line::{self, CrontabLine, LinePart};
use super::model::{
    CrontabJob, CrontabKind, Crontabs, FieldValue, Fields, LineRef, ReadOptions, RemarkKind,
};
use super::settings::Settings;
use super::{command, flock, input, mail, naming};
use crate::config::environment::Environment;
use crate::config::values;
use crate::schedule::Schedule;

/// Reads the last of `crontabs.paths`.
pub(super) fn read_all(crontabs: &mut Crontabs, text: &str, options: &ReadOptions) {
    let path = crontabs.paths.last().cloned().unwrap_or_default();
    let kind = options
        .kind
        .unwrap_or_else(|| kind_of(&path, text, &crontabs.environment));
    let mut reader = CrontabReader {
        kind,
        owner: options.owner.clone().or_else(|| owner_of(&path)),
        settings: Settings::default(),
        comments: std::mem::take(&mut crontabs.trailing),
        first_job: crontabs.jobs.len(),
        silenced: 0,
        mailed_to_user: 0,
        crontabs,
    };
    reader.remark_line_ends(text);
    for (number, line) in (1..).zip(text.lines()) {
        reader.line(number, line);
    }
    reader.finish();
}

struct CrontabReader<'a> {
    kind: CrontabKind,
    owner: Option<String>,
    settings: Settings,
    /// The comments since the last job.
    comments: Vec<String>,
    /// The index of this file's first job.
    first_job: usize,
    /// How many jobs discard their output.
    silenced: usize,
    /// How many jobs have no `MAILTO`, so that cron mails their output to their user.
    mailed_to_user: usize,
    crontabs: &'a mut Crontabs,
}

/// The owner of a crontab in cron's own directory: the name of the file.
fn owner_of(path: &Path) -> Option<String> {
    let directory = path.parent()?;
    let is_spool = ["/var/spool/cron/crontabs", "/var/spool/cron"]
        .iter()
        .any(|spool| directory == Path::new(spool));
    let name = path.file_name()?.to_str()?;
    is_spool.then(|| name.to_owned())
}

/// The form of a crontab: by its path, else by the word after each schedule. If some of them are
/// users and none is anything else, it is a system crontab.
fn kind_of(path: &Path, text: &str, environment: &Environment) -> CrontabKind {
    if path == Path::new("/etc/crontab") || path.parent() == Some(Path::new("/etc/cron.d")) {
        return CrontabKind::System;
    }
    let mut users = 0;
    for line in text.lines() {
        let CrontabLine::Job { rest, .. } = line::read(line) else {
            continue;
        };
        let mut words = rest.text.split([' ', '\t']).filter(|word| !word.is_empty());
        let (Some(first), Some(_)) = (words.next(), words.next()) else {
            return CrontabKind::User;
        };
        let is_program = environment.has_program(first);
        match environment.has_user(user_name(first)) {
            // `mail` and `sync` may be either.
            true => users += usize::from(!is_program),
            false if is_program || !looks_like_a_user(first) => return CrontabKind::User,
            false => {}
        }
    }
    if users > 0 {
        CrontabKind::System
    } else {
        CrontabKind::User
    }
}

fn looks_like_a_user(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && word
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.:".contains(c))
}

/// The user of BSD's `user:group` and `user/class`.
fn user_name(word: &str) -> &str {
    word.split([':', '/']).next().unwrap_or(word)
}

impl CrontabReader<'_> {
    fn remark_line_ends(&mut self, text: &str) {
        if text.contains("\r\n") {
            self.look(
                0,
                "its lines end as on Windows: cron passes the carriage returns to the commands; \
                 they are left out",
            );
        }
        if !text.is_empty() && !text.ends_with('\n') {
            self.look(
                text.lines().count(),
                "the last line has no line end, so cron ignores it or the whole crontab; it is \
                 read here",
            );
        }
    }

    fn look(&mut self, line: usize, text: impl Into<String>) {
        self.crontabs.remark(line, RemarkKind::NeedsLook, text);
    }

    fn note(&mut self, line: usize, text: impl Into<String>) {
        self.crontabs.remark(line, RemarkKind::Note, text);
    }

    fn line(&mut self, number: usize, line: &str) {
        match line::read(line) {
            CrontabLine::Blank => {}
            CrontabLine::Comment(text) => self.comments.push(text.trim_end().to_owned()),
            _ if line.contains('\0') => self.look(number, "a line with a NUL is left out"),
            CrontabLine::Setting { name, value } => self.setting(number, &name, &value),
            CrontabLine::Job { schedule, rest } => self.job(number, schedule, rest),
            CrontabLine::Other(text) => {
                self.not_read(
                    number,
                    text,
                    "neither a setting nor a job, so cron rejects the whole crontab",
                );
            }
        }
    }

    /// Keeps a line that cannot be read as a comment.
    fn not_read(&mut self, number: usize, line: &str, why: &str) {
        self.comments.push(format!(" not read: {line}"));
        self.look(number, format!("{why}; the line is kept as a comment"));
    }

    fn setting(&mut self, number: usize, name: &str, value: &str) {
        let report = self.settings.apply(number, name, value);
        self.comments.extend(report.comment);
        for (kind, text) in report.remarks {
            self.crontabs.remark(number, kind, text);
        }
    }

    fn job(&mut self, number: usize, schedule: LinePart<'_>, rest: LinePart<'_>) {
        let (user, rest) = match self.user(number, rest) {
            Ok(found) => found,
            Err(why) => {
                let line = format!("{} {}", schedule.text, rest.text);
                return self.not_read(number, &line, why);
            }
        };
        let (command, input) = input::split(rest.text);
        if command.trim().is_empty() {
            let line = format!("{} {}", schedule.text, rest.text);
            return self.not_read(number, &line, "there is no command");
        }
        if schedule.text.eq_ignore_ascii_case("@reboot") {
            return self.reboot(number, &command);
        }
        let (lock, command) = self.lock(number, &command);
        self.remark_command(number, &command, input.as_deref());
        let name = naming::name(&command, number);
        let text = schedule_text(schedule.text);
        let refused = Schedule::cron(&text, chrono_tz::Tz::UTC)
            .err()
            .map(|error| error.to_string());
        match (&refused, beyond_cron(&text)) {
            (Some(why), _) => self.look(
                number,
                format!("its schedule is refused, and the job is kept as a comment: {why}"),
            ),
            (None, Some(extension)) => self.look(
                number,
                format!(
                    "most crons reject {extension}, and with it the whole crontab; it is read here"
                ),
            ),
            (None, None) => {}
        }
        let script = input::as_script(&command, input.as_deref());
        let mut fields = vec![
            ("schedule", FieldValue::Text(text)),
            ("command", FieldValue::Text(script)),
        ];
        fields.extend(self.settings.fields(user, self.crontabs.zone()));
        fields.extend(lock);
        fields.extend(self.notify());
        if refused.is_none() {
            self.mailed_to_user += usize::from(self.settings.mails_to_user());
            self.silenced += usize::from(command.contains("/dev/null"));
        }
        let job = CrontabJob {
            line: LineRef {
                file: self.crontabs.paths.len() - 1,
                line: number,
            },
            columns: (schedule.column, rest.column),
            zone_line: self.settings.zone_line(),
            comments: std::mem::take(&mut self.comments),
            name: naming::unique(&name, self.crontabs),
            fields,
            refused,
        };
        self.crontabs.jobs.push(job);
    }

    /// The target of the job's notifications, if `MAILTO` names one.
    fn notify(&mut self) -> Option<(&'static str, FieldValue)> {
        let target = mail::target(self.settings.mailbox()?, self.crontabs);
        Some(("notify", FieldValue::List(vec![target])))
    }

    /// Splits the user off a line. The error is why there is none.
    fn user<'t>(
        &mut self,
        number: usize,
        rest: LinePart<'t>,
    ) -> Result<(Option<String>, LinePart<'t>), &'static str> {
        let end = rest.text.find([' ', '\t']).unwrap_or(rest.text.len());
        let (word, command) = rest.text.split_at(end);
        let name = user_name(word);
        let environment = &self.crontabs.environment;
        if self.kind == CrontabKind::User {
            let next = command.split_whitespace().next().unwrap_or("");
            let is_user = environment.has_user(name) && !environment.has_program(name);
            if is_user && environment.has_program(next) {
                self.look(
                    number,
                    format!(
                        "`{name}` is a user of this machine, and is read as the program to run: \
                         `--format system` reads a user there"
                    ),
                );
            }
            return Ok((self.owner.clone(), rest));
        }
        let command = command.trim_start();
        if command.is_empty() {
            return Err("there is no command after the user");
        }
        if !values::is_account(name) {
            return Err("the word after the schedule is not a user");
        }
        let skipped = rest.text.len() - command.len();
        let column = rest.column + rest.text[..skipped].chars().count();
        let part = LinePart {
            text: command,
            column,
        };
        Ok((Some(name.to_owned()), part))
    }

    fn reboot(&mut self, number: usize, command: &str) {
        let name = naming::name(command, number);
        self.comments.push(format!(" left out: @reboot {command}"));
        self.look(
            number,
            format!(
                "@reboot is left out, because hosts share no such time: write a systemd unit with \
                 `ExecStart=/bin/sh -c '…'` and `WantedBy=multi-user.target`; if one host of a \
                 fleet is enough, `ExecStart=cronlatch exec --lock {name} -- /bin/sh -c '…'`"
            ),
        );
    }

    /// The fields of a job's lock, and its command without the `flock` that becomes the lock.
    fn lock(&mut self, number: usize, command: &str) -> (Fields, String) {
        let mut lock = BTreeMap::from([("scope".to_owned(), "host".to_owned())]);
        let Some(taken) = flock::read(command) else {
            if command.contains("flock") {
                self.look(
                    number,
                    "`flock` stays in the command: its lock holds on this host alone, and a run \
                     that does not get the lock counts as a run",
                );
            }
            return (vec![("lock", FieldValue::Map(lock))], command.to_owned());
        };
        let name = naming::lock(&taken.file, self.crontabs);
        let became = format!(
            "`flock {}` became `lock: {{ name: {name} }}` with `on_overlap: {}`",
            taken.file, taken.on_overlap
        );
        match (taken.on_overlap, &taken.patience) {
            ("skip", _) => self.note(number, became),
            (_, Some(_)) => self.note(
                number,
                format!("{became}: only the newest of several occurrences waits"),
            ),
            (_, None) => self.look(
                number,
                format!(
                    "{became}: only the newest of several occurrences waits, and for no longer \
                     than `start_deadline` (5m)"
                ),
            ),
        }
        self.crontabs.locks.insert(taken.file, name.clone());
        lock.insert("name".to_owned(), name);
        let mut fields = vec![
            ("lock", FieldValue::Map(lock)),
            ("on_overlap", FieldValue::text(taken.on_overlap)),
        ];
        let deadline = taken.patience.map(FieldValue::Text);
        fields.extend(deadline.map(|deadline| ("start_deadline", deadline)));
        (fields, taken.command)
    }

    fn remark_command(&mut self, number: usize, command: &str, input: Option<&str>) {
        let shell = self.settings.shell.as_deref().unwrap_or("/bin/sh");
        let mut remarks = command::remarks(command, shell);
        if input.is_some() {
            remarks.extend(command::input_remarks(command, shell));
        }
        for (kind, text) in remarks {
            self.crontabs.remark(number, kind, text);
        }
    }

    fn finish(mut self) {
        let has_jobs = self.crontabs.jobs.len() > self.first_job;
        if has_jobs && self.kind == CrontabKind::System {
            self.note(
                0,
                "read as a system crontab, whose sixth field is the user: its jobs need a daemon \
                 that runs as root (`--format user` reads no users)",
            );
        } else if has_jobs && self.owner.is_none() {
            self.look(
                0,
                "read as the crontab of one user: its jobs run as the user of the daemon; `--user \
                 NAME` names another one",
            );
        }
        if self.mailed_to_user > 0 {
            let jobs = match self.mailed_to_user {
                1 => "1 job has".to_owned(),
                n => format!("{n} jobs have"),
            };
            self.note(
                0,
                format!(
                    "{jobs} no MAILTO: cron mails the output to the user of the job; here nobody is \
                     notified without `notify:`"
                ),
            );
        }
        let jobs = match self.silenced {
            0 => None,
            1 => Some("1 job discards its output".to_owned()),
            n => Some(format!("{n} jobs discard their output")),
        };
        if let Some(jobs) = jobs {
            self.note(
                0,
                format!(
                    "{jobs} (/dev/null): without that, `cronlatch history --output` shows the last \
                     lines"
                ),
            );
        }
        self.crontabs.trailing = self.comments;
    }
}

/// The schedule without what only some crons know.
fn schedule_text(text: &str) -> String {
    let text = text.strip_prefix('-').unwrap_or(text);
    match text.to_ascii_lowercase().as_str() {
        "@every_minute" => "* * * * *".to_owned(),
        _ => text.to_owned(),
    }
}

/// The first sign in a valid schedule that cron itself would not take.
fn beyond_cron(text: &str) -> Option<String> {
    if text.starts_with('@') {
        return None;
    }
    let items = text.split_whitespace().flat_map(|field| field.split(','));
    let is_beyond = |item: &&str| {
        let step_alone = item
            .split_once('/')
            .is_some_and(|(base, _)| base != "*" && !base.contains('-'));
        let is_last = item.trim_end_matches(['L', 'l']).len() < item.len()
            && item.trim_end_matches(['L', 'l']).parse::<u8>().is_ok();
        step_alone || is_last || item.eq_ignore_ascii_case("L") || item.contains(['#', '?'])
    };
    items
        .into_iter()
        .find(is_beyond)
        .map(|item| format!("`{item}`"))
}
