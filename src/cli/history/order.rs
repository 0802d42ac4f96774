//! The order of the history: by the instant at which a run began or an occurrence was decided.

use crate::store::Record;
use crate::time::Timestamp;

/// When it ran, else when it was due: what the history is sorted by. Nothing ran after it was
/// recorded: if it seems so, the clock was ahead when it started.
pub(super) fn instant_of(record: &Record) -> Timestamp {
    let began = (record.until).or(record.started_at).or(record.scheduled_at);
    match (began, record.finished_at) {
        (Some(began), Some(finished)) => began.min(finished),
        (began, finished) => began.or(finished).unwrap_or(Timestamp::EPOCH),
    }
}

/// The records of one job, newest first, each with the instant that it is sorted by.
///
/// What was recorded before the ledger was set back may have instants of a clock that was wrong: it
/// counts as no later than that.
pub(super) fn dated(records: Vec<Record>) -> Vec<(Timestamp, Record)> {
    let mut corrected = None;
    let date = |record: Record| {
        let own = instant_of(&record);
        let at = corrected.map_or(own, |corrected| own.min(corrected));
        if record.is_correction() {
            corrected = Some(at);
        }
        (at, record)
    };
    records.into_iter().map(date).collect()
}

#[cfg(test)]
mod tests {
    use super::super::text::tests::record;
    use super::*;
    use crate::store::Outcome;

    #[test]
    fn what_was_recorded_before_the_ledger_was_set_back_comes_before_the_correction() {
        let ran = |seconds| Record {
            started_at: Some(Timestamp::from_secs(seconds)),
            finished_at: Some(Timestamp::from_secs(seconds + 1)),
            ..record("backup")
        };
        let interrupted = Record {
            finished_at: Some(Timestamp::from_secs(502)),
            ..ran(90_030)
        };
        let correction = Record {
            run_id: None,
            scheduled_at: None,
            started_at: None,
            finished_at: Some(Timestamp::from_secs(500)),
            outcome: Outcome::Unknown,
            ..record("backup")
        };
        // Newest first: what a crash left under the clock that was ahead, a run after the correction,
        // and two before it.
        let newest_first = vec![
            interrupted,
            ran(501),
            correction,
            ran(90_020),
            ran(90_010),
            ran(400),
        ];
        let at: Vec<_> = dated(newest_first)
            .iter()
            .map(|(at, _)| at.millis() / 1000)
            .collect();
        assert_eq!(at, [502, 501, 500, 500, 500, 400]);
    }
}
