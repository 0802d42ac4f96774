//! A claim, which counts only once enough replicas have acknowledged it.

use super::RedisStore;
use crate::store::redis::RESPONSE_TIMEOUT;
use crate::store::redis::codec::call::Call;
use crate::store::redis::codec::{claim, finish, unacknowledged};
use crate::store::redis::failure::RedisFailure;
use crate::store::redis::missing_replicas::give_back;
use crate::store::redis::route::ScriptReply;
use crate::store::{Claim, ClaimReply, StoreError};
use crate::time::BootInstant;

impl RedisStore {
    /// Makes a claim. If it was granted and too few replicas acknowledge that, it is returned.
    pub(super) async fn claim_with_replicas(
        &self,
        claim: &Claim,
    ) -> Result<ClaimReply, StoreError> {
        let all_failures = self.route.all_failures();
        let call = claim::call(self.prefix(), claim, self.longest(), all_failures);
        let script = &self.scripts.claim;
        let ScriptReply {
            value,
            arrived,
            origin,
        } = self.route.run(script, call, RESPONSE_TIMEOUT).await?;
        let clear = unacknowledged::clear_call(self.prefix(), claim, &value);
        let reply = claim::read(self.prefix(), value)?;
        if !matches!(reply, ClaimReply::Granted { .. }) {
            return Ok(reply);
        }
        if let Err(failure) = self.route.replicated(&origin, RESPONSE_TIMEOUT).await {
            return self.return_claim(claim, &origin.server(), failure).await;
        }
        self.missing_replicas.over(|| origin.server());
        self.note(clear).await;
        // A claim ahead of its instant need not wait again for the time that the reply and the replicas took.
        Ok(reply.after(BootInstant::now().since(arrived)))
    }

    /// Returns a granted claim to the ledger because replicas of the server are missing.
    async fn return_claim(
        &self,
        claim: &Claim,
        server: &str,
        failure: RedisFailure,
    ) -> Result<ClaimReply, StoreError> {
        let Some((finish, waits)) = give_back(claim, &failure) else {
            return Err(failure.into());
        };
        self.missing_replicas.note(server, claim, &failure);
        let note = unacknowledged::note_call(self.prefix(), claim, &failure);
        self.note(note).await;
        let all_failures = self.route.all_failures();
        let call = finish::call(self.prefix(), &finish, all_failures);
        self.run(&self.scripts.finish, call).await?;
        Ok(waits)
    }

    /// Sends the call that writes or removes the note about missing replicas. Its failure does not
    /// affect the claim.
    async fn note(&self, call: Option<Call>) {
        if let Some(call) = call
            && let Err(failure) = self.run(&self.scripts.unacknowledged, call).await
        {
            tracing::debug!("{}", failure.text());
        }
    }
}
