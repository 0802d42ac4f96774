//! Which jobs are claimed ahead of their instants, and how early.

use std::sync::Arc;
use std::time::Duration;

use super::core::{ClaimContext, Policy};
use crate::config::Job;
use crate::schedule::Spread;
use crate::schedule::ticker::{ClaimsAhead, HEAD_STARTS};

/// The shortest `ttl` of a job that is claimed earlier in a crowd. A prepared process does not learn of renewals, so
/// the lease that it was prepared under must outlast its wait.
const LONG_ENOUGH: Duration = Duration::from_secs(5);

/// Returns how early this host claims a job, if it claims it ahead of its instants.
pub fn claims_ahead(job: &Arc<Job>, context: ClaimContext<'_>) -> Option<ClaimsAhead> {
    Policy::of(job, context)
        .claims_ahead()
        .then(|| ClaimsAhead {
            head_starts: Spread::new(context.host, &job.name, HEAD_STARTS),
            // A run that waits for its instant has its lock and one of the host's places. Nobody else may miss
            // either of them for most of a second.
            earlier_in_a_crowd: !job.lock.is_named
                && context.max_running.is_none()
                && job.lock.ttl >= LONG_ENOUGH,
        })
}
