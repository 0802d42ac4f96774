//! What must hold once all is over.

use std::collections::{BTreeMap, BTreeSet};

use super::Fleet;
use crate::store::Outcome;

impl Fleet {
    /// Lets a minute pass after the last occurrence, in which everything comes to its end.
    pub(super) fn settle_down(&mut self) {
        self.run_until(self.last_due + 60_000);
    }

    #[track_caller]
    pub(super) fn assert_exclusion(&self) {
        let mut runs: Vec<_> = self
            .started
            .iter()
            .map(|s| (s.from, s.until.unwrap_or(i64::MAX)))
            .collect();
        runs.sort_unstable();
        for (one, next) in runs.iter().zip(runs.iter().skip(1)) {
            assert!(one.1 <= next.0, "two at once: {:#?}", self.started);
        }
    }

    #[track_caller]
    pub(super) fn assert_once(&self) {
        let mut seen = BTreeSet::new();
        for started in &self.started {
            assert!(
                seen.insert((started.at, started.attempt)),
                "twice: {started:?} in {:#?}",
                self.started
            );
            assert!(started.from >= started.at.millis(), "early: {started:?}");
        }
    }

    /// The verdicts, by second.
    #[track_caller]
    pub(super) fn verdicts(&self) -> BTreeMap<i64, Vec<Outcome>> {
        let mut verdicts: BTreeMap<i64, Vec<Outcome>> = BTreeMap::new();
        for record in &self.records {
            let from = record.scheduled_at.expect("an occurrence").millis() / 1000;
            let until = record.until.map_or(from, |until| until.millis() / 1000);
            for second in from..=until {
                verdicts.entry(second).or_default().push(record.outcome);
            }
        }
        verdicts
    }

    #[track_caller]
    pub(super) fn assert_no_silence(&self) {
        let verdicts = self.verdicts();
        let first = *verdicts.keys().next().expect("verdicts");
        let last = *verdicts.keys().last().expect("verdicts");
        for second in first..=last {
            assert!(
                verdicts.contains_key(&second),
                "{second}: {:#?}",
                self.records
            );
        }
        // The last few may lack a verdict: no later claim says what became of them.
        assert!(last >= self.last_due / 1000 - 3, "it stood still at {last}");
    }
}
