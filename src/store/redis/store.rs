//! The store over any [`Route`]: each operation calls a script and reads its reply. It is the only
//! implementation of [`Store`](crate::store::Store) on Redis, except for the majority of several nodes.

mod claims;
mod histories;
mod operations;
mod renewals;
mod servers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::Value;
use tokio::sync::OnceCell;

use super::RESPONSE_TIMEOUT;
use super::codec::call::Call;
use super::codec::forget;
use super::conn::link::Link;
use super::conn::pubsub::Listener;
use super::failure::RedisFailure;
use super::missing_replicas::MissingReplicas;
use super::route::{ClusterRoute, Route, ServerRoute};
use super::script::{FORMAT, Script, Scripts};
use crate::names::Prefix;
use crate::store::{
    ClusterSettings, Forget, Forgotten, RedisSettings, SentinelSettings, StoreError,
};

/// One of the scripts.
type Which = fn(&Scripts) -> &Script;

/// The store on Redis.
#[derive(Debug)]
pub(in crate::store) struct RedisStore {
    route: Arc<dyn Route>,
    scripts: Arc<Scripts>,
    listener: Arc<Listener>,
    /// The longest TTL of the registered job list, in milliseconds.
    longest: AtomicU64,
    missing_replicas: MissingReplicas,
    /// Set once the marker of the store has been read and has the format of this version, or none.
    format: OnceCell<()>,
}

/// Each connects at its first operation.
impl RedisStore {
    /// The store on one server.
    pub(in crate::store) fn single(settings: &RedisSettings) -> Self {
        Self::over(ServerRoute::to(settings), Arc::new(Scripts::new()))
    }

    /// The store on the server at the other end of this link.
    pub(super) fn by(link: Arc<Link>) -> Self {
        Self::over(ServerRoute::by(link), Arc::new(Scripts::new()))
    }

    /// The store on the master that the Sentinels name.
    pub(in crate::store) fn sentinel(settings: &SentinelSettings) -> Self {
        Self::over(ServerRoute::to_master(settings), Arc::new(Scripts::new()))
    }

    /// The store on a Cluster.
    pub(in crate::store) fn cluster(settings: &ClusterSettings) -> Result<Self, StoreError> {
        let scripts = Arc::new(Scripts::new());
        let route = ClusterRoute::to(settings, Arc::clone(&scripts))?;
        Ok(Self::over(route, scripts))
    }

    fn over(route: impl Route + 'static, scripts: Arc<Scripts>) -> Self {
        let route = Arc::new(route);
        Self {
            listener: Listener::new(Arc::clone(&route) as _),
            route,
            scripts,
            longest: AtomicU64::new(0),
            missing_replicas: MissingReplicas::default(),
            format: OnceCell::new(),
        }
    }

    pub(super) fn prefix(&self) -> &Prefix {
        self.route.prefix()
    }

    /// Fails if the store was written by a version that keeps other things in the keys. Claims and
    /// renewals check that each time, and what only reads does it here, once.
    async fn check_format(&self) -> Result<(), RedisFailure> {
        let check = async || {
            let marker = self.route.format_marker();
            let mut command = redis::cmd("HGET");
            command.arg(&marker).arg("format");
            match self.route.read(&marker, &command).await {
                Ok(Value::BulkString(format)) if format != FORMAT.as_bytes() => {
                    let format = String::from_utf8_lossy(&format).into_owned();
                    Err(RedisFailure::corrupt(format!(
                        "the store has format {format}, written by another version; this cronlatch \
                         ({}) uses {FORMAT}: use the version that the other hosts have",
                        env!("CARGO_PKG_VERSION")
                    )))
                }
                // Another part of a Cluster may be usable.
                Err(failure) if failure.is_outage() && self.route.all_failures().is_some() => {
                    Err(failure)
                }
                // The request itself meets what is wrong.
                Ok(_) | Err(_) => Ok(()),
            }
        };
        self.format.get_or_try_init(check).await.copied()
    }

    /// Runs a script and returns its reply.
    async fn run(&self, script: &Script, call: Call) -> Result<Value, RedisFailure> {
        self.check_format().await?;
        let reply = self.route.run(script, call, RESPONSE_TIMEOUT).await?;
        Ok(reply.value)
    }

    /// Runs a script for many entries, in as many calls as the route needs. Returns each reply with the
    /// entries of its call.
    async fn run_each<'a, I>(
        &self,
        which: Which,
        entries: &'a [I],
        call: impl Fn(&Prefix, &[I]) -> Call,
    ) -> Result<Vec<(&'a [I], Value)>, RedisFailure> {
        self.check_format().await?;
        let batching = self.route.batching();
        let calls = entries.chunks(batching.size()).map(|batch| {
            let (route, scripts) = (Arc::clone(&self.route), Arc::clone(&self.scripts));
            let call = call(self.prefix(), batch);
            async move {
                let reply = route.run(which(&scripts), call, RESPONSE_TIMEOUT).await?;
                Ok(reply.value)
            }
        });
        let replies = batching.make(calls.collect::<Vec<_>>()).await?;
        Ok(entries.chunks(batching.size()).zip(replies).collect())
    }

    /// The longest TTL of the registered job list; zero without a list.
    fn longest(&self) -> Duration {
        Duration::from_millis(self.longest.load(Ordering::Relaxed))
    }

    /// Returns whether a job may be forgotten, and deletes nothing.
    pub(in crate::store) async fn may_forget(
        &self,
        request: &Forget,
    ) -> Result<Forgotten, StoreError> {
        self.forget_in(request, forget::ForgetStep::Look).await
    }

    async fn forget_in(
        &self,
        request: &Forget,
        step: forget::ForgetStep,
    ) -> Result<Forgotten, StoreError> {
        let all_failures = self.route.all_failures();
        let call = forget::call(self.prefix(), request, step, all_failures);
        let reply = self.run(&self.scripts.forget, call).await?;
        Ok(forget::read(reply)?)
    }
}
