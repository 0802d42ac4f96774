//! The thread that writes output files: it alone waits for the disk.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::SILENT_FOR;
use super::command::{RunEnd, WriterCommand};
use super::directory::Directory;
use super::entry::{OutputNote, OutputOrigin, most_added};
use super::run_files::{RunFiles, file_name};
use super::stored::Stored;
use crate::config::{KeepOutput, OutputPolicy};
use crate::observe::{RunFields, run_log};
use crate::store::Outcome;
use crate::time::Timestamp;

/// How often old files are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(600);
/// How long what was found of the free space is believed, and for how many bytes.
const ROOM_BELIEVED: Duration = Duration::from_secs(1);
const ROOM_STEP: u64 = 256 * 1024;

/// A run in progress that has no file yet.
#[derive(Debug)]
struct SilentRun {
    fields: RunFields,
    at: Timestamp,
    since: Instant,
}

/// A run in progress.
#[derive(Debug)]
struct RunInProgress {
    fields: RunFields,
    files: RunFiles,
    /// Whether its output is still stored.
    storing: Storing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Storing {
    Stores,
    Stopped,
}

/// Whether output could be stored the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiskHealth {
    Works,
    /// It could not, and this was logged.
    Fails,
}

/// The state of the thread.
#[derive(Debug)]
pub(super) struct OutputWriter {
    path: Option<PathBuf>,
    policy: OutputPolicy,
    inbox: mpsc::Receiver<WriterCommand>,
    /// The directory, and what is in it, once it could be opened.
    place: Option<(Directory, Stored)>,
    runs: HashMap<u64, RunInProgress>,
    /// The bytes of their files.
    bytes_in_progress: u64,
    /// Those without a file, the oldest first.
    silent: BTreeMap<u64, SilentRun>,
    disk: DiskHealth,
    room: u64,
    room_known_at: Option<Instant>,
    looked_at: Instant,
}

impl OutputWriter {
    pub(super) fn new(
        path: Option<PathBuf>,
        policy: OutputPolicy,
        inbox: mpsc::Receiver<WriterCommand>,
    ) -> Self {
        Self {
            path,
            policy,
            inbox,
            place: None,
            runs: HashMap::new(),
            bytes_in_progress: 0,
            silent: BTreeMap::new(),
            disk: DiskHealth::Works,
            room: 0,
            room_known_at: None,
            looked_at: Instant::now(),
        }
    }

    /// Starts the thread.
    pub(super) fn start(self) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("output".to_owned());
        thread.spawn(move || self.serve()).map(drop)
    }

    /// Serves requests until the last sender is dropped.
    fn serve(mut self) {
        if self.policy.keep != KeepOutput::None {
            self.look();
        }
        loop {
            let silent = self.silent.first_key_value();
            let wait = silent.map_or(LOOK_EVERY, |(_, run)| {
                SILENT_FOR.saturating_sub(run.since.elapsed())
            });
            match self.inbox.recv_timeout(wait) {
                Ok(command) => self.take(command),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            self.create_files(SILENT_FOR);
            if self.looked_at.elapsed() >= LOOK_EVERY {
                self.look();
            }
        }
    }

    fn take(&mut self, command: WriterCommand) {
        match command {
            WriterCommand::Begin { serial, fields } => {
                let run = SilentRun {
                    fields: *fields,
                    at: Timestamp::now(),
                    since: Instant::now(),
                };
                self.silent.insert(serial, run);
            }
            WriterCommand::Write {
                serial,
                at,
                origin,
                bytes,
                dropped,
                budget,
            } => {
                self.create_file(serial);
                self.dropped(serial, dropped);
                self.write(serial, (at, origin), &bytes);
                budget.release(bytes.len());
            }
            WriterCommand::Attempt { serial, attempt } => {
                self.create_file(serial);
                self.note(serial, &OutputNote::Attempt { attempt });
            }
            WriterCommand::End {
                serial,
                end,
                dropped,
            } => {
                if self.silent.contains_key(&serial) && dropped == 0 && !self.keeps(&end) {
                    self.silent.remove(&serial);
                    return;
                }
                self.create_file(serial);
                self.dropped(serial, dropped);
                self.end(serial, end);
            }
            WriterCommand::Forget { serial } => {
                self.create_file(serial);
                if let Some(run) = self.remove(serial) {
                    self.keep(run);
                }
            }
            WriterCommand::Policy(policy) => {
                self.policy = policy;
                self.look();
            }
            // The receiver may have given up.
            WriterCommand::Flush(done) => {
                self.create_files(Duration::ZERO);
                let _ = done.send(());
            }
        }
    }

    /// Creates the files of the runs that have had none for so long.
    fn create_files(&mut self, silent_for: Duration) {
        while let Some((serial, run)) = self.silent.first_key_value()
            && run.since.elapsed() >= silent_for
        {
            self.create_file(*serial);
        }
    }

    /// Creates the file of a run that has none yet.
    fn create_file(&mut self, serial: u64) {
        let Some(SilentRun { fields, at, .. }) = self.silent.remove(&serial) else {
            return;
        };
        let created = self.open_place().and_then(|(directory, _)| {
            let name = file_name(&fields.job, &fields.run);
            RunFiles::create(directory, name)
        });
        match created {
            Ok(files) => {
                let note = OutputNote::Begun {
                    job: fields.job.to_string(),
                    run_id: fields.run.to_string(),
                    host: fields.host.to_string(),
                    scheduled_at: fields.scheduled_at,
                };
                let run = RunInProgress {
                    fields,
                    files,
                    storing: Storing::Stores,
                };
                self.runs.insert(serial, run);
                self.stored(serial, 0, |run, _, _| run.files.note_of(at, &note));
            }
            Err(error) => {
                let reason = self.reason(&error);
                self.report(&fields, &reason);
            }
        }
    }

    /// The directory, and what is in it.
    fn open_place(&mut self) -> io::Result<&mut (Directory, Stored)> {
        if self.place.is_none() {
            let path = self.path.as_ref().ok_or_else(no_directory)?;
            let directory = Directory::open(path)?;
            let own = self.runs.values().map(|run| run.files.name()).collect();
            let stored = Stored::scan(&directory, &own)?;
            self.place = Some((directory, stored));
        }
        self.place.as_mut().ok_or_else(no_directory)
    }

    fn write(&mut self, serial: u64, from: (Timestamp, OutputOrigin), bytes: &[u8]) {
        let len = (bytes.len() + most_added(bytes)) as u64;
        self.stored(serial, len, |run, directory, limit| {
            run.files.write((directory, limit), from, bytes)
        });
    }

    fn dropped(&mut self, serial: u64, bytes: u64) {
        if bytes > 0 {
            self.note(serial, &OutputNote::Dropped { bytes });
        }
    }

    fn note(&mut self, serial: u64, note: &OutputNote) {
        self.stored(serial, 0, |run, _, _| run.files.note(note));
    }

    /// Writes to a run's files, if the limits allow it. From the first failure on nothing more of the
    /// run is stored.
    fn stored(
        &mut self,
        serial: u64,
        len: u64,
        write: impl FnOnce(&mut RunInProgress, &Directory, u64) -> io::Result<()>,
    ) {
        let storing = self.runs.get(&serial).map(|run| run.storing);
        if storing != Some(Storing::Stores) {
            return;
        }
        let full = self.make_room(len).err();
        let limit = self.policy.per_run;
        let (Some(run), Some((directory, _))) = (self.runs.get_mut(&serial), &self.place) else {
            return;
        };
        let before = run.files.bytes();
        let written = match full {
            Some(reason) => Err(reason),
            None => write(run, directory, limit).map_err(|error| error.to_string()),
        };
        self.bytes_in_progress = self.bytes_in_progress + run.files.bytes() - before;
        self.room = self.room.saturating_sub(len);
        match written {
            Ok(()) => {}
            Err(reason) => self.stop(serial, &reason),
        }
    }

    /// Makes room for so many bytes, within `total` and on the disk, or returns why there is none.
    fn make_room(&mut self, len: u64) -> Result<(), String> {
        let own = self.bytes_in_progress;
        let total = self.policy.total;
        let Some((directory, stored)) = &mut self.place else {
            return Ok(());
        };
        while own + stored.bytes() + len > total {
            if !stored.remove_oldest(directory) {
                return Err(format!(
                    "the output of runs in progress has reached {total} bytes (`output: total`)"
                ));
            }
        }
        let known = self
            .room_known_at
            .is_some_and(|at| at.elapsed() < ROOM_BELIEVED);
        if !known || self.room < len {
            let room = directory.room().map_err(|error| error.to_string())?;
            // Once the disk was full, it must have clearly more room before it is used again.
            let more = match self.disk {
                DiskHealth::Works => 0,
                DiskHealth::Fails => room.reserved,
            };
            if room.bytes < len.max(1) + more {
                self.room_known_at = None;
                return Err(format!(
                    "the disk of {} is almost full",
                    directory.path.display()
                ));
            }
            self.room = room.bytes.min(ROOM_STEP.max(len));
            self.room_known_at = Some(Instant::now());
        }
        Ok(())
    }

    fn stop(&mut self, serial: u64, reason: &str) {
        let Some(run) = self.runs.get_mut(&serial) else {
            return;
        };
        run.storing = Storing::Stopped;
        let fields = run.fields.clone();
        let note = OutputNote::Stopped {
            reason: reason.to_owned(),
        };
        let before = run.files.bytes();
        // Without room for this either, the log alone has it.
        let _ = run.files.note(&note);
        self.bytes_in_progress = self.bytes_in_progress + run.files.bytes() - before;
        self.report(&fields, reason);
    }

    /// Logs, once until it works again, that the output of runs is not stored.
    fn report(&mut self, fields: &RunFields, reason: &str) {
        match std::mem::replace(&mut self.disk, DiskHealth::Fails) {
            DiskHealth::Works => run_log!(
                warn,
                fields,
                "the output of this run is not stored any further: {reason}. The run continues. The \
                 same is not logged again for other runs until output can be stored again"
            ),
            DiskHealth::Fails => run_log!(
                debug,
                fields,
                "the output of this run is not stored any further: {reason}"
            ),
        }
    }

    /// The whole output of a run was stored.
    fn works(&mut self) {
        if std::mem::replace(&mut self.disk, DiskHealth::Works) == DiskHealth::Fails {
            tracing::info!("the output of runs can be stored again");
        }
    }

    fn reason(&self, error: &io::Error) -> String {
        match &self.path {
            Some(path) => format!("{}: {error}", path.display()),
            None => error.to_string(),
        }
    }

    /// Whether the output of a run that has ended in this way stays.
    fn keeps(&self, end: &RunEnd) -> bool {
        let RunEnd::Ended(outcome, _) = end else {
            return false;
        };
        match self.policy.keep {
            KeepOutput::All => true,
            KeepOutput::Failures => *outcome != Outcome::Succeeded,
            KeepOutput::None => false,
        }
    }

    fn remove(&mut self, serial: u64) -> Option<RunInProgress> {
        let run = self.runs.remove(&serial)?;
        self.bytes_in_progress -= run.files.bytes();
        Some(run)
    }

    fn end(&mut self, serial: u64, end: RunEnd) {
        let Some(mut run) = self.remove(serial) else {
            return;
        };
        let keeps = self.keeps(&end);
        let RunEnd::Ended(outcome, reason) = end else {
            return self.discard(run);
        };
        let note = OutputNote::Ended {
            outcome: outcome.word().to_owned(),
            reason,
            bytes: run.files.taken,
        };
        if let Err(error) = run.files.note(&note) {
            run_log!(
                debug,
                run.fields,
                "cannot write the end of its output: {error}"
            );
        }
        if run.storing == Storing::Stores && run.files.taken > 0 {
            self.works();
        }
        if keeps {
            self.keep(run);
        } else {
            self.discard(run);
        }
    }

    fn keep(&mut self, run: RunInProgress) {
        if run.storing == Storing::Stopped && run.files.taken == 0 {
            // The record of the run has more, and each file takes some of what a full disk has left.
            return self.discard(run);
        }
        if let Some((_, stored)) = &mut self.place {
            stored.add(run.files.names(), run.files.bytes());
        }
        // And with it the lock: the run is not in progress any more.
        drop(run);
    }

    fn discard(&mut self, run: RunInProgress) {
        let fields = run.fields;
        if let Some((directory, _)) = &self.place
            && let Err(error) = run.files.remove(directory)
        {
            run_log!(debug, fields, "cannot remove its output: {error}");
        }
    }

    /// Finds what is in the directory now, and removes what is too old.
    fn look(&mut self) {
        self.looked_at = Instant::now();
        self.place = None;
        let age = self.policy.kept_for;
        match self.open_place() {
            Ok((directory, stored)) => stored.expire(directory, Timestamp::now().minus(age)),
            // Reported when a run has output.
            Err(error) => tracing::debug!("cannot open the directory of output files: {error}"),
        }
    }
}

fn no_directory() -> io::Error {
    io::Error::other("there is no state directory (STATE_DIRECTORY, XDG_STATE_HOME or HOME)")
}
