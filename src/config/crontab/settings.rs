//! `NAME=value` lines: what holds for the jobs below them.

use std::collections::BTreeMap;

use super::model::{FieldValue, Fields, Mailbox, RemarkKind};
use crate::config::notify::is_address;
use crate::config::zone;

/// Cron's own search path.
const DEFAULT_PATH: &str = "/usr/bin:/bin";

/// The settings that hold at a line.
#[derive(Debug, Default, Clone)]
pub(super) struct Settings {
    env: BTreeMap<String, String>,
    /// The time zone and its line.
    zone: Option<(String, usize)>,
    pub(super) shell: Option<String>,
    mail_to: MailTo,
    mail_from: Option<String>,
}

/// To whom cron mails the output of the jobs below a line.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
enum MailTo {
    /// There is no `MAILTO`: to the user of the job.
    #[default]
    User,
    /// `MAILTO` is empty.
    Nobody,
    /// `MAILTO` cannot be read.
    Unknown,
    Addresses(Vec<String>),
}

/// A remark about a setting, and a comment that keeps the setting where it has no counterpart.
#[derive(Debug, Default)]
pub(super) struct SettingReport {
    pub(super) remarks: Vec<(RemarkKind, String)>,
    pub(super) comment: Option<String>,
}

impl SettingReport {
    fn look(mut self, text: impl Into<String>) -> Self {
        self.remarks.push((RemarkKind::NeedsLook, text.into()));
        self
    }

    fn note(mut self, text: impl Into<String>) -> Self {
        self.remarks.push((RemarkKind::Note, text.into()));
        self
    }

    fn comment(mut self, text: String) -> Self {
        self.comment = Some(text);
        self
    }
}

impl Settings {
    /// Applies the setting of a line to the jobs below it.
    pub(super) fn apply(&mut self, number: usize, name: &str, value: &str) -> SettingReport {
        let mut report = SettingReport::default();
        if value.contains('$') {
            report = report.look(format!(
                "cron replaces no variables in settings: {name} is literally `{value}`, and stays so"
            ));
        }
        match name {
            "CRON_TZ" => self.zone(number, value, report),
            "MAILTO" => self.mail_to(value, report),
            "MAILFROM" => self.mail_from(value, report),
            "SHELL" => self.shell(value, report),
            "CONTENT_TYPE" | "CONTENT_TRANSFER_ENCODING" => report
                .look(format!("{name} has no counterpart here"))
                .comment(format!(" {name}={value}")),
            "RANDOM_DELAY" | "START_HOURS_RANGE" => report
                .look(format!(
                    "{name} has no counterpart here: `jitter: 10m` delays a job by a fixed time \
                     below that"
                ))
                .comment(format!(" {name}={value}")),
            "LOGNAME" | "USER" => report.look(format!(
                "{name} is left out: cron does not let a crontab set it either"
            )),
            _ if name.starts_with("CRONLATCH_") => report.look(format!(
                "{name} is left out: variables that begin with `CRONLATCH_` are reserved"
            )),
            _ if !is_variable(name) => report.look(format!(
                "`{name}` is left out: a variable has letters, digits and `_` in its name"
            )),
            _ => {
                if name == "TZ" {
                    report = report.look(
                        "TZ is the time zone of the commands alone; cron reads schedules in the \
                         zone of the machine (or CRON_TZ), and so does this list",
                    );
                }
                self.env.insert(name.to_owned(), value.to_owned());
                report
            }
        }
    }

    fn zone(&mut self, number: usize, value: &str, report: SettingReport) -> SettingReport {
        if let Err(help) = zone::parse(value) {
            return report
                .look(format!(
                    "`{value}` is not a time zone, and is left out: {help}"
                ))
                .comment(format!(" CRON_TZ={value}"));
        }
        self.zone = Some((value.to_owned(), number));
        match zone::doubtful(value) {
            Some(doubt) => report.look(doubt),
            None => report,
        }
    }

    fn shell(&mut self, value: &str, report: SettingReport) -> SettingReport {
        if !value.starts_with('/') {
            return report
                .look(format!(
                    "SHELL=`{value}` is left out: a shell needs its whole path, for cron, too"
                ))
                .comment(format!(" SHELL={value}"));
        }
        self.shell = Some(value.to_owned());
        // Like every setting, it is also a variable of the commands.
        self.env.insert("SHELL".to_owned(), value.to_owned());
        report
    }

    fn mail_to(&mut self, value: &str, report: SettingReport) -> SettingReport {
        let words = value
            .split([',', ' ', '\t'])
            .filter(|word| !word.is_empty());
        let addresses: Vec<String> = words.map(str::to_owned).collect();
        if addresses.is_empty() {
            self.mail_to = MailTo::Nobody;
            return report.note("an empty MAILTO: nobody is notified of the jobs below");
        }
        if let Some(wrong) = addresses.iter().find(|word| !is_address(word)) {
            self.mail_to = MailTo::Unknown;
            return report
                .look(format!(
                    "MAILTO={value}: `{wrong}` is not a mail address, and nobody is notified of the \
                     jobs below"
                ))
                .comment(format!(" MAILTO={value}"));
        }
        self.mail_to = MailTo::Addresses(addresses);
        report.look(format!(
            "MAILTO={value} became a target of `notify`: cron mails all output of every run; the \
             target receives runs that failed, were lost or missed, with the last lines of their \
             output, and the first success after them (`on:` selects the events)"
        ))
    }

    fn mail_from(&mut self, value: &str, report: SettingReport) -> SettingReport {
        if is_address(value) {
            self.mail_from = Some(value.to_owned());
            return report;
        }
        self.mail_from = None;
        report
            .look(format!(
                "MAILFROM={value} is left out: it is not a mail address"
            ))
            .comment(format!(" MAILFROM={value}"))
    }

    /// Where cron mails the output of the jobs below, if `MAILTO` names somebody.
    pub(super) fn mailbox(&self) -> Option<Mailbox> {
        match &self.mail_to {
            MailTo::Addresses(to) => Some(Mailbox {
                to: to.clone(),
                from: self.mail_from.clone(),
            }),
            _ => None,
        }
    }

    /// Whether cron mails the output of the jobs below to their user, because no `MAILTO` names
    /// anybody.
    pub(super) fn mails_to_user(&self) -> bool {
        self.mail_to == MailTo::User
    }

    /// The line of the time zone, if a setting names one.
    pub(super) fn zone_line(&self) -> Option<usize> {
        self.zone.as_ref().map(|(_, line)| *line)
    }

    /// The fields that these settings give to a job of this user, if it has one.
    pub(super) fn fields(&self, user: Option<String>, machine_zone: String) -> Fields {
        let mut env = self.env.clone();
        env.entry("PATH".to_owned())
            .or_insert_with(|| DEFAULT_PATH.to_owned());
        let home = env.get("HOME").filter(|home| home.starts_with('/'));
        // With a user the home directory is the default.
        let working_dir = user.is_none().then(|| match home {
            Some(home) => FieldValue::text(home),
            None => FieldValue::Expanded("${HOME:-/}"),
        });
        let own_zone = self.zone.as_ref().map(|(zone, _)| zone.clone());
        let zone = own_zone.unwrap_or(machine_zone);
        let mut fields = vec![
            ("env", FieldValue::Map(env)),
            ("timezone", FieldValue::Text(zone)),
        ];
        fields.extend(self.shell.as_ref().map(|s| ("shell", FieldValue::text(s))));
        fields.extend(user.map(|user| ("user", FieldValue::Text(user))));
        fields.extend(working_dir.map(|directory| ("working_dir", directory)));
        fields
    }
}

/// Whether a job list takes a variable of this name.
fn is_variable(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_graphic() && b != b'=')
        && !name.starts_with(|c: char| c.is_ascii_digit())
}
