//! The runs that are under way, by name: a daemon that gives up on some of them names them.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::names::RunId;
use crate::observe::RunFields;

/// The tasks that drive runs.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// Each returns its run once the finisher has its verdict.
    tasks: JoinSet<RunId>,
    fields: HashMap<RunId, (RunFields, Duration)>,
}

impl Runs {
    /// Drives a run to its end; `grace` is its `kill_grace`.
    pub(super) fn spawn(
        &mut self,
        fields: &RunFields,
        grace: Duration,
        drive: impl Future<Output = ()> + Send + 'static,
    ) {
        self.fields
            .insert(fields.run.clone(), (fields.clone(), grace));
        let run = fields.run.clone();
        self.tasks.spawn(async move {
            drive.await;
            run
        });
    }

    /// Forgets the runs that have ended.
    pub(super) fn forget_ended(&mut self) {
        while let Some(ended) = self.tasks.try_join_next() {
            if let Ok(run) = ended {
                self.fields.remove(&run);
            }
        }
    }

    /// Waits until all have ended.
    pub(super) async fn join_all(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            if let Ok(run) = ended {
                self.fields.remove(&run);
            }
        }
    }

    /// The runs that have no verdict yet.
    pub(super) fn under_way(&self) -> impl ExactSizeIterator<Item = &RunFields> {
        self.fields.values().map(|(fields, _)| fields)
    }

    /// The longest time that a run that is under way has once it is to end (`kill_grace`).
    pub(super) fn longest_grace(&self) -> Option<Duration> {
        self.fields.values().map(|(_, grace)| *grace).max()
    }
}
