//! What concerns servers and not jobs: the presence of daemons, the declaration that a store is new,
//! and the identity of a server process.

use std::sync::Arc;

use super::RedisStore;
use crate::names::{HostName, Prefix};
use crate::store::StoreError;
use crate::store::redis::codec::call::Call;
use crate::store::redis::codec::reply::{integer, text};
use crate::store::redis::conn::{barrier, presence};
use crate::store::redis::failure::RedisFailure;

impl RedisStore {
    /// Keeps a connection under this host's name to each server, and never returns.
    pub(super) async fn attend_as(&self, host: &HostName) {
        // Before the first request no Sentinel has named a master yet.
        while self.listener.endpoints().servers.is_empty() && self.route.servers().await.is_err() {
            tokio::time::sleep(presence::RETRY).await;
        }
        let publish = |command| {
            let route = Arc::clone(&self.route);
            async move {
                let mut failure = RedisFailure::unreachable("there is no server".to_owned());
                // In a Cluster a message that is published on one server is received on all.
                for link in route.servers().await? {
                    match link.send(&command).await {
                        Ok(value) => return Ok(value),
                        Err(error) => failure = error,
                    }
                }
                Err(failure)
            }
        };
        presence::attend(&self.listener, self.prefix(), host, publish).await;
    }

    /// Marks an empty store as new. Returns how many keys or markers it has, and changes nothing, if it
    /// is not empty.
    pub(super) async fn declare_new(&self) -> Result<Option<u64>, StoreError> {
        let mut count = 0;
        for link in self.route.servers().await? {
            count += link.count_keys().await?;
        }
        if count > 0 {
            return Ok(Some(count));
        }
        let call = |_: &Prefix, markers: &[String]| {
            let mut call = Call::default();
            for marker in markers {
                call.key(marker);
            }
            call
        };
        // Another host may have begun in between.
        let mut marked = 0;
        let markers = self.route.markers();
        for (_, reply) in self.run_each(|s| &s.init, &markers, call).await? {
            marked += u64::from(integer(&reply)? != 1);
        }
        Ok((marked > 0).then_some(marked))
    }

    /// Returns the `run_id` of the server process, which a restart changes.
    pub(in crate::store) async fn server(&self) -> Result<String, StoreError> {
        let mut info = ::redis::cmd("INFO");
        info.arg("server");
        let servers = self.route.servers().await?;
        let nobody = || StoreError::unreachable("there is no server");
        let link = servers.first().ok_or_else(nobody)?;
        let reply = text(link.send(&info).await?)?;
        Ok(barrier::run_id_in(&link.settings().shown(), &reply)?)
    }
}
