//! Sends scripts and commands over a link. A script is sent by its digest, and in full if the server
//! does not know it.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisError, Value};

use super::{Link, LinkReply};
use crate::store::redis::RESPONSE_TIMEOUT;
use crate::store::redis::codec::call::Call;
use crate::store::redis::codec::keys;
use crate::store::redis::codec::reply::{Items, text};
use crate::store::redis::conn::exchange::NoReply;
use crate::store::redis::conn::timed::{TimedConnection, TimedReply};
use crate::store::redis::failure::RedisFailure;
use crate::store::redis::script::Script;

/// How many connections a request tries before it fails, if each is given up before it was sent.
const CONNECTIONS: usize = 2;

impl Link {
    /// Runs a script and returns its reply.
    pub(in crate::store::redis) async fn run(
        self: &Arc<Self>,
        script: &Script,
        call: &Call,
        limit: Duration,
    ) -> Result<Value, RedisFailure> {
        self.run_by(script, call, limit)
            .await
            .map(|reply| reply.value)
    }

    /// As the function above, and also returns the connection of the reply.
    pub(in crate::store::redis) async fn run_by(
        self: &Arc<Self>,
        script: &Script,
        call: &Call,
        limit: Duration,
    ) -> Result<LinkReply, RedisFailure> {
        let sent_before = self.known_scripts.so_far(script.digest());
        let reply = match self.ask(script.by_digest(call), limit).await {
            // After a restart or SCRIPT FLUSH.
            Err(failure) if failure.is_unknown_script() => {
                self.teach(script, call, limit, sent_before).await
            }
            reply => reply,
        };
        match reply {
            Err(failure) => {
                let keys: Vec<_> = call.keys().collect();
                Err(self.with_cause(failure, &keys).await)
            }
            reply => reply,
        }
    }

    /// Runs a script that the server did not know: the first of several callers sends its text
    /// with `EVAL`, which makes the script known, and the others run it by digest afterwards.
    async fn teach(
        self: &Arc<Self>,
        script: &Script,
        call: &Call,
        limit: Duration,
        sent_before: Option<u64>,
    ) -> Result<LinkReply, RedisFailure> {
        let mut sent = self.known_scripts.turn(script.digest()).await;
        if sent_before != Some(*sent) {
            drop(sent);
            match self.ask(script.by_digest(call), limit).await {
                // The server has lost the script again in the meantime.
                Err(failure) if failure.is_unknown_script() => {}
                reply => return reply,
            }
            return self.ask(script.in_full(call), limit).await;
        }
        let reply = self.ask(script.in_full(call), limit).await;
        // Also after a failure: the waiting tasks then all try it themselves.
        *sent += 1;
        reply
    }

    /// Sends one command and returns its reply and the connection of the reply.
    async fn ask(
        self: &Arc<Self>,
        command: Cmd,
        limit: Duration,
    ) -> Result<LinkReply, RedisFailure> {
        let command = Arc::new(command);
        self.exchange(limit, move |connection| {
            let command = Arc::clone(&command);
            async move { connection.send(&command).await }
        })
        .await
    }

    /// Sends a request on the connection. If that is given up before the request was sent, the
    /// request goes to the next one.
    async fn exchange<F>(
        self: &Arc<Self>,
        limit: Duration,
        request: impl Fn(TimedConnection) -> F,
    ) -> Result<LinkReply, RedisFailure>
    where
        F: Future<Output = Result<TimedReply, RedisError>> + Send + 'static,
    {
        for _ in 0..CONNECTIONS {
            let live = self.connection(limit).await?;
            let asked = request(live.connection.clone());
            let reply = match live.exchange.ask(limit, asked).await {
                Err(NoReply::NotSent) => continue,
                Err(NoReply::Silence(limit)) => Err(self.silent(limit)),
                Err(NoReply::Error(error)) => Err(RedisFailure::of(&self.shown, &error)),
                Ok(reply) => Ok(reply),
            };
            let TimedReply { value, arrived } = self.judge(live.generation, reply)?;
            return Ok(LinkReply {
                value,
                arrived,
                connection: self.handle(live),
            });
        }
        Err(self.no_connection(limit))
    }

    /// Finds out which key caused a failure, if any.
    ///
    /// A server that denies a script access to its keys does not name the key. Therefore each key is
    /// tried with a script that does nothing. If the marker of the store is denied, or no key is, the
    /// failure affects every job.
    async fn with_cause(self: &Arc<Self>, failure: RedisFailure, keys: &[&str]) -> RedisFailure {
        if !failure.may_deny_a_key() {
            return failure.located(keys);
        }
        let mut denied = None;
        for key in keys {
            let mut probe = redis::cmd("EVAL");
            probe.arg("return 1").arg(1).arg(key);
            let reply = self.ask(probe, RESPONSE_TIMEOUT).await;
            if reply.is_err_and(|failure| failure.may_deny_a_key()) {
                if keys::is_marker(&self.settings.prefix, key) {
                    return failure;
                }
                denied.get_or_insert(key);
            }
        }
        match denied {
            Some(key) => failure.denied(key),
            None => failure,
        }
    }

    /// Sends one command that reads this key.
    pub(in crate::store::redis) async fn send_on(
        self: &Arc<Self>,
        command: &Cmd,
        key: &str,
    ) -> Result<Value, RedisFailure> {
        match self.ask(command.clone(), RESPONSE_TIMEOUT).await {
            Ok(reply) => Ok(reply.value),
            Err(failure) => {
                let failure = self.with_cause(failure, &[key]).await;
                Err(failure.attributed_to(key))
            }
        }
    }

    /// Sends one command.
    pub(in crate::store::redis) async fn send(
        self: &Arc<Self>,
        command: &Cmd,
    ) -> Result<Value, RedisFailure> {
        let sent = self.send_by(command, RESPONSE_TIMEOUT).await;
        sent.map(|reply| reply.value)
    }

    /// As the function above, and also returns the connection of the reply.
    pub(in crate::store::redis) async fn send_by(
        self: &Arc<Self>,
        command: &Cmd,
        limit: Duration,
    ) -> Result<LinkReply, RedisFailure> {
        self.ask(command.clone(), limit).await
    }

    /// As [`Self::send_by`], directly after `ASKING` on the same connection.
    pub(in crate::store::redis) async fn send_asking(
        self: &Arc<Self>,
        command: Cmd,
        limit: Duration,
    ) -> Result<LinkReply, RedisFailure> {
        let mut commands = redis::pipe();
        commands.cmd("ASKING").ignore().add_command(command);
        self.exchange(limit, move |connection| {
            let commands = commands.clone();
            async move { connection.send_all(&commands).await }
        })
        .await
    }

    /// Counts the keys of the server that begin with our prefix.
    pub(in crate::store::redis) async fn count_keys(self: &Arc<Self>) -> Result<u64, RedisFailure> {
        let mut cursor = "0".to_owned();
        let mut count = 0_u64;
        loop {
            let mut command = redis::cmd("SCAN");
            command
                .arg(&cursor)
                .arg("MATCH")
                .arg(format!("{}:*", self.settings.prefix))
                .arg("COUNT")
                .arg(1000);
            let mut reply = Items::of(self.send(&command).await?)?;
            cursor = text(reply.next()?)?;
            let mut found = Items::of(reply.next()?)?;
            while !found.is_empty() {
                found.next()?;
                count += 1;
            }
            if cursor == "0" {
                return Ok(count);
            }
        }
    }

    /// Logs the beginning and the end of an outage, and gives up a connection that cannot be used any more.
    fn judge(
        &self,
        generation: u64,
        reply: Result<TimedReply, RedisFailure>,
    ) -> Result<TimedReply, RedisFailure> {
        match reply {
            Ok(reply) => {
                self.log_end_of_outage();
                Ok(reply)
            }
            Err(mut failure) => {
                // The Sentinels may name another master by now.
                if self.source.is_some() && failure.is_demotion() {
                    failure = failure.of_replaced();
                }
                if failure.wants_rebuild() {
                    self.give_up(generation);
                }
                if failure.is_outage() && failure.redirect().is_none() {
                    self.log_outage(&failure);
                }
                Err(failure)
            }
        }
    }

    fn silent(&self, limit: Duration) -> RedisFailure {
        RedisFailure::unreachable(format!(
            "{} is silent: no reply to any request for {limit:?}",
            self.shown
        ))
    }
}
