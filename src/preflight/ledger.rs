//! A ledger that is ahead of the store's clock: the clock was set back, or was wrong once.

use super::{Finding, ids};
use crate::config::show_roughly;
use crate::names::JobName;
use crate::store::protocol::{LEAD, LEDGER_AHEAD};
use crate::time::Timestamp;

/// What it means that the job's ledger is decided up to `last` while the store's clock shows `now`.
/// Returns `None` when that is as it should be.
pub(super) fn ahead(job: &JobName, last: Timestamp, now: Timestamp) -> Option<Finding> {
    if last <= now.plus(LEAD) {
        return None;
    }
    let by = last.since(now);
    let shown = show_roughly(by);
    let next = if by > LEDGER_AHEAD {
        "with its next occurrence the job continues from now, and the correction is recorded once"
            .to_owned()
    } else {
        format!("the job does not run until the store's clock has reached {last}")
    };
    Some(ids::LEDGER.warning(
        &format!("job {job}"),
        format!("its ledger is {shown} ahead of the store's clock: {next}"),
        format!(
            "if the store's clock is wrong, correct it; if it was wrong earlier, wait, or delete the \
             job's ledger and history: `cronlatch forget {job}`"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_ledger_ahead_names_the_job_by_how_much_and_what_happens_next() {
        let job = JobName::parse("backup").expect("a name");
        let now = Timestamp::from_secs(1_000_000);
        let found = |ahead: u64| super::ahead(&job, now.plus(Duration::from_secs(ahead)), now);
        assert_eq!(
            found(1),
            None,
            "a claim may be that much ahead of its instant"
        );
        let near = found(3600).expect("a finding");
        assert_eq!(near.subject, "job backup");
        assert!(near.text.contains("1h ahead"), "{}", near.text);
        assert!(
            near.text.contains("until the store's clock"),
            "{}",
            near.text
        );
        let far = found(4 * 3600).expect("a finding");
        assert!(far.text.contains("continues from now"), "{}", far.text);
    }
}
