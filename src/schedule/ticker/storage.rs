//! The library's storage traits, implemented over the board.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::RwLock;
use tokio_cron_scheduler::job::JobToRunAsync;
use tokio_cron_scheduler::job::job_data::{
    JobAndNextTick, JobStoredData, JobType, NonCronJob, job_stored_data,
};
use tokio_cron_scheduler::store::{DataStore, InitStore};
use tokio_cron_scheduler::{
    Context, JobCode, JobSchedulerError, MetaDataStorage, PinnedGetFuture, ToCode,
};
use uuid::Uuid;

use super::alarm::Alarm;
use super::board::{Board, ServeStep};
use crate::ground::tasks;

type StorageFuture<T> = Pin<Box<dyn Future<Output = Result<T, JobSchedulerError>> + Send>>;

fn answer<T: Send + 'static>(value: T) -> StorageFuture<T> {
    Box::pin(ready(Ok(value)))
}

/// The one job that the library knows: to serve whatever is due soon. The nil id is reserved.
pub(super) const SERVE_DUE: Uuid = Uuid::from_u128(1);

/// Tells the library when to call.
pub(super) struct Storage {
    board: Arc<Board>,
}

impl Storage {
    pub(super) fn new(board: Arc<Board>) -> Self {
        Self { board }
    }
}

impl InitStore for Storage {
    fn init(&mut self) -> StorageFuture<()> {
        answer(())
    }

    fn inited(&mut self) -> StorageFuture<bool> {
        answer(true)
    }
}

impl DataStore<JobStoredData> for Storage {
    /// A job that happens once: the library then computes no next tick of its own.
    fn get(&mut self, id: Uuid) -> StorageFuture<Option<JobStoredData>> {
        answer(Some(JobStoredData {
            id: Some(id.into()),
            last_updated: None,
            last_tick: None,
            next_tick: 0,
            job_type: JobType::OneShot.into(),
            count: 0,
            extra: Vec::new(),
            ran: false,
            stopped: false,
            job: Some(job_stored_data::Job::NonCronJob(NonCronJob {
                repeating: false,
                repeated_every: 0,
            })),
            time_offset_seconds: 0,
        }))
    }

    fn add_or_update(&mut self, _data: JobStoredData) -> StorageFuture<()> {
        Box::pin(ready(Err(JobSchedulerError::CantAdd)))
    }

    fn delete(&mut self, _id: Uuid) -> StorageFuture<()> {
        Box::pin(ready(Err(JobSchedulerError::CantRemove)))
    }
}

impl MetaDataStorage for Storage {
    fn list_next_ticks(&mut self) -> StorageFuture<Vec<JobAndNextTick>> {
        let call = JobAndNextTick {
            id: Some(SERVE_DUE.into()),
            job_type: JobType::OneShot.into(),
            // Long past, so that the library calls at once; 0 would delete the job.
            next_tick: 1,
            last_tick: None,
        };
        answer(
            self.board
                .is_due_soon()
                .then_some(call)
                .into_iter()
                .collect(),
        )
    }

    /// The board alone decides what comes next.
    fn set_next_and_last_tick(
        &mut self,
        _id: Uuid,
        _next_tick: Option<DateTime<Utc>>,
        _last_tick: Option<DateTime<Utc>>,
    ) -> StorageFuture<()> {
        answer(())
    }

    fn time_till_next_job(&mut self) -> StorageFuture<Option<Duration>> {
        answer(None)
    }
}

/// How long before an instant the alarm takes over: more than tokio's timers are late.
const LAST_STRETCH: Duration = Duration::from_millis(3);

/// What the library calls: it takes all jobs that are due soon, and serves each in a task of its own.
pub(super) struct Callback {
    code: Arc<RwLock<Box<JobToRunAsync>>>,
}

impl Callback {
    pub(super) fn new(board: &Arc<Board>, alarm: Alarm) -> Self {
        let board = Arc::clone(board);
        let alarm = Arc::new(alarm);
        let call: Box<JobToRunAsync> = Box::new(move |_id, _scheduler| {
            let (board, alarm) = (Arc::clone(&board), Arc::clone(&alarm));
            Box::pin(async move {
                for job in board.due_soon() {
                    if board.arm(job) {
                        tasks::spawn(serve(Arc::clone(&board), Arc::clone(&alarm), job));
                    }
                }
            })
        });
        Self {
            code: Arc::new(RwLock::new(call)),
        }
    }
}

/// Sleeps to the exact instants of an armed job until none is near.
async fn serve(board: Arc<Board>, alarm: Arc<Alarm>, job: usize) {
    while let ServeStep::Sleep(duration) = board.step(job) {
        match duration.checked_sub(LAST_STRETCH) {
            Some(most) if !most.is_zero() => tokio::time::sleep(most).await,
            _ => alarm.sleep(duration).await,
        }
    }
}

impl ToCode<Box<JobToRunAsync>> for Callback {
    fn init(&mut self, _context: &Context) -> StorageFuture<()> {
        answer(())
    }

    fn get(&mut self, _id: Uuid) -> PinnedGetFuture<Box<JobToRunAsync>> {
        answer(Some(Arc::clone(&self.code)))
    }
}

impl JobCode for Callback {}
