//! What runs write their output to: it is queued for the thread that writes, and never waits.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::command::{OutputBudget, RunEnd, WriterCommand};
use super::entry::OutputOrigin;
use super::writer::OutputWriter;
use crate::config::{KeepOutput, OutputPolicy};
use crate::guard::{OutputSink, Stream};
use crate::observe::{RunFields, run_log};
use crate::time::Timestamp;

/// Keeps the output of runs in files. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct OutputKeeper {
    inbox: mpsc::Sender<WriterCommand>,
    shared: Arc<KeeperState>,
}

#[derive(Debug)]
struct KeeperState {
    directory: Option<PathBuf>,
    /// Whether any output is kept.
    keeps: AtomicBool,
    serials: AtomicU64,
    /// How many bytes wait for the disk.
    waiting: Arc<AtomicUsize>,
}

/// What one run writes its output to. Dropped without an end, its file stays as that of a run that failed.
#[derive(Debug)]
pub(crate) struct RunOutput {
    /// `None` if no output is kept.
    inbox: Option<mpsc::Sender<WriterCommand>>,
    keeper: Arc<KeeperState>,
    fields: RunFields,
    /// The number by which the thread knows the run. Set once it has begun, because the thread creates files in the
    /// order of these numbers.
    serial: OnceLock<u64>,
    budget: Arc<OutputBudget>,
    /// What was dropped since the last chunk that had room, and in all.
    dropped: AtomicU64,
    dropped_in_all: AtomicU64,
}

impl OutputKeeper {
    /// Starts the thread that writes into `directory`; without one nothing is kept.
    pub(crate) fn start(directory: Option<PathBuf>, policy: OutputPolicy) -> io::Result<Self> {
        // A file beyond the limit of this process (RLIMIT_FSIZE) is then an error, not the end of the
        // process. Jobs do not inherit a handler.
        let limit = SignalKind::from_raw(libc::SIGXFSZ);
        if let Err(error) = signal(limit) {
            tracing::debug!("cannot handle SIGXFSZ: {error}");
        }
        let (keeper, writer) = Self::prepare(directory, policy);
        writer.start()?;
        Ok(keeper)
    }

    /// The keeper, and what writes for it once it is started.
    pub(super) fn prepare(
        directory: Option<PathBuf>,
        policy: OutputPolicy,
    ) -> (Self, OutputWriter) {
        let (inbox, commands) = mpsc::channel();
        let writer = OutputWriter::new(directory.clone(), policy, commands);
        let shared = Arc::new(KeeperState {
            directory,
            keeps: AtomicBool::new(policy.keep != KeepOutput::None),
            serials: AtomicU64::new(0),
            waiting: Arc::default(),
        });
        (Self { inbox, shared }, writer)
    }

    /// The directory in which output is kept, for other hosts; `None` if none is kept.
    pub(crate) fn directory(&self) -> Option<String> {
        let keeps = self.shared.keeps.load(Ordering::Relaxed);
        let directory = self.shared.directory.as_ref().filter(|_| keeps)?;
        Some(directory.display().to_string())
    }

    /// The policy of a new list. Runs in progress keep what they have.
    pub(crate) fn replace(&self, policy: OutputPolicy) {
        let keeps = policy.keep != KeepOutput::None;
        self.shared.keeps.store(keeps, Ordering::Relaxed);
        let _ = self.inbox.send(WriterCommand::Policy(policy));
    }

    /// The output of a run that was granted. The run begins with [`RunOutput::begin`], or with what is reported of it
    /// before.
    pub(crate) fn of_run(&self, fields: &RunFields) -> RunOutput {
        let keeps = self.shared.keeps.load(Ordering::Relaxed);
        RunOutput {
            inbox: keeps.then(|| self.inbox.clone()),
            keeper: Arc::clone(&self.shared),
            fields: fields.clone(),
            serial: OnceLock::new(),
            budget: Arc::new(OutputBudget::new(&self.shared.waiting)),
            dropped: AtomicU64::new(0),
            dropped_in_all: AtomicU64::new(0),
        }
    }

    /// Waits until all output that was passed on is written, at most for this long.
    pub(crate) async fn flush(&self, limit: Duration) {
        let (done, written) = oneshot::channel();
        let sent = self.inbox.send(WriterCommand::Flush(done));
        if sent.is_ok() && tokio::time::timeout(limit, written).await.is_err() {
            tracing::warn!(
                "the disk does not respond: the output of the last runs may be incomplete in \
                 their files"
            );
        }
    }
}

impl RunOutput {
    /// The command has begun: from here on the run counts as one in progress.
    pub(crate) fn begin(&self) {
        if let Some(inbox) = &self.inbox {
            self.serial(inbox);
        }
    }

    /// A further attempt starts.
    pub(crate) fn begin_attempt(&self, attempt: u32) {
        self.send(|serial| WriterCommand::Attempt { serial, attempt });
    }

    /// The run has ended. Logs how much of its output is missing in the file because the disk was slow.
    pub(crate) fn end(&self, end: RunEnd, fields: &RunFields) {
        if matches!(end, RunEnd::NotStarted) && self.serial.get().is_none() {
            return;
        }
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        self.send(|serial| WriterCommand::End {
            serial,
            end,
            dropped,
        });
        let missing = self.missing();
        if missing > 0 {
            run_log!(
                warn,
                fields,
                "the disk was slower than the command: {missing} bytes of its output are missing in \
                 the file of this run"
            );
        }
    }

    /// How many bytes were dropped because the disk was slow.
    pub(super) fn missing(&self) -> u64 {
        self.dropped_in_all.load(Ordering::Relaxed)
    }

    fn send(&self, command: impl FnOnce(u64) -> WriterCommand) {
        if let Some(inbox) = &self.inbox {
            // Without the thread nothing is kept, and the run goes on.
            let _ = inbox.send(command(self.serial(inbox)));
        }
    }

    /// The number of the run, which begins now if it has not begun.
    fn serial(&self, inbox: &mpsc::Sender<WriterCommand>) -> u64 {
        *self.serial.get_or_init(|| {
            let serial = self.keeper.serials.fetch_add(1, Ordering::Relaxed);
            let fields = Box::new(self.fields.clone());
            let _ = inbox.send(WriterCommand::Begin { serial, fields });
            serial
        })
    }
}

impl OutputSink for RunOutput {
    fn take(&self, stream: Stream, bytes: &[u8]) {
        if self.inbox.is_none() {
            return;
        }
        if !self.budget.reserve(bytes.len()) {
            let missing = bytes.len() as u64;
            self.dropped.fetch_add(missing, Ordering::Relaxed);
            self.dropped_in_all.fetch_add(missing, Ordering::Relaxed);
            return;
        }
        let origin = match stream {
            Stream::Out => OutputOrigin::Stdout,
            Stream::Err => OutputOrigin::Stderr,
        };
        self.send(|serial| WriterCommand::Write {
            serial,
            at: Timestamp::now(),
            origin,
            bytes: bytes.to_owned(),
            dropped: self.dropped.swap(0, Ordering::Relaxed),
            budget: Arc::clone(&self.budget),
        });
    }
}

impl Drop for RunOutput {
    fn drop(&mut self) {
        if self.serial.get().is_some() {
            self.send(|serial| WriterCommand::Forget { serial });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{HostName, JobName, RunId};

    fn fields() -> RunFields {
        RunFields {
            job: JobName::parse("job").expect("a name"),
            run: RunId::new(),
            scheduled_at: None,
            host: HostName::parse("host").expect("a name"),
        }
    }

    fn keeper() -> (OutputKeeper, mpsc::Receiver<WriterCommand>) {
        let (inbox, commands) = mpsc::channel();
        let shared = Arc::new(KeeperState {
            directory: None,
            keeps: AtomicBool::new(true),
            serials: AtomicU64::new(0),
            waiting: Arc::default(),
        });
        (OutputKeeper { inbox, shared }, commands)
    }

    #[test]
    fn runs_are_numbered_in_the_order_in_which_they_begin() {
        let (keeper, commands) = keeper();
        let [first, second] = [fields(), fields()];
        let granted = [keeper.of_run(&first), keeper.of_run(&second)];
        for output in granted.iter().rev() {
            output.begin();
            output.begin();
        }
        let begun: Vec<_> = (commands.try_iter())
            .map(|command| match command {
                WriterCommand::Begin { serial, fields } => (serial, fields.run),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(begun, [(0, second.run), (1, first.run)]);
    }

    #[test]
    fn the_thread_hears_nothing_of_a_run_that_never_begins() {
        let (keeper, commands) = keeper();
        let fields = fields();
        keeper.of_run(&fields).end(RunEnd::NotStarted, &fields);
        drop(keeper.of_run(&fields));
        assert_eq!(commands.try_iter().count(), 0);
    }
}
