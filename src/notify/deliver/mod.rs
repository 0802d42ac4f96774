//! How a message reaches a target: one try each, bounded in time.

mod failure;
pub(super) mod http;
mod mail;
mod process;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use super::notification::Notification;
use super::template::{self, Body};
use crate::config::{Channel, Command, HttpTarget, MailTarget};
pub(crate) use failure::{Again, SendFailure};
use http::{HttpClient, Request};

/// The environment of programs.
pub(crate) type SendEnvironment = Arc<BTreeMap<OsString, OsString>>;

/// The way to one target.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    channel: Channel,
    client: HttpClient,
    environment: SendEnvironment,
}

impl Delivery {
    /// The way to a target. Programs get this environment.
    pub(crate) fn new(channel: &Channel, client: HttpClient, environment: SendEnvironment) -> Self {
        Self {
            channel: channel.clone(),
            client,
            environment,
        }
    }

    /// Tries once.
    pub(crate) fn deliver(
        &self,
        message: &Notification,
        limit: Duration,
    ) -> Result<(), SendFailure> {
        match &self.channel {
            Channel::Http(target) => self.post(target, message, limit),
            Channel::Command(command) => {
                let mut program = program(command);
                program.env_clear().envs(self.environment.iter());
                process::run(program, template::json_text(message).as_bytes(), limit)
            }
            Channel::Mail(target) => self.mail(target, message, limit),
            Channel::Unset(_) => Err(SendFailure {
                why: self.channel.shown(),
                again: Again::Never,
            }),
        }
    }

    fn post(
        &self,
        target: &HttpTarget,
        message: &Notification,
        limit: Duration,
    ) -> Result<(), SendFailure> {
        let Body { text, headers } = template::body(&target.template, message);
        let is_own = |name: &str| {
            let mut own = target.headers.iter();
            own.any(|(own, _)| own.eq_ignore_ascii_case(name))
        };
        // The list's own headers win over those of the template.
        let from_template = headers.iter().filter(|(name, _)| !is_own(name));
        let from_template = from_template.map(|(name, value)| (*name, value.as_str()));
        let own = target.headers.iter();
        let own = own.map(|(name, value)| (name.as_str(), value.0.as_str()));
        self.client.send(
            &Request {
                url: target.url.secret(),
                headers: from_template.chain(own).collect(),
                body: Some(&text),
            },
            limit,
        )
    }

    fn mail(
        &self,
        target: &MailTarget,
        message: &Notification,
        limit: Duration,
    ) -> Result<(), SendFailure> {
        let mut program = std::process::Command::new(&target.sendmail);
        // `-i`: a line with a single dot does not end the mail.
        program.args(["-i", "--"]).args(&target.to);
        program.env_clear().envs(self.environment.iter());
        process::run(program, mail::text(target, message).as_bytes(), limit)
    }
}

fn program(command: &Command) -> std::process::Command {
    match command {
        Command::Argv(argv) => {
            let (program, args) = argv.split_first().map_or(("", &[][..]), |(p, a)| (p, a));
            let mut command = std::process::Command::new(program);
            command.args(args);
            command
        }
        Command::Shell { shell, script, .. } => {
            let mut command = std::process::Command::new(shell);
            command.arg("-c").arg(script);
            command
        }
    }
}
