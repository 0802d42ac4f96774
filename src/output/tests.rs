//! The keeper on a real directory, with the real thread.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::entry::{LineEnd, OutputEntry, OutputNote, OutputOrigin};
use super::{OutputKeeper, RunEnd, RunOutput, directory_in};
use crate::config::{KeepOutput, OutputPolicy};
use crate::guard::{OutputSink as _, Stream};
use crate::names::{HostName, JobName, RunId};
use crate::observe::RunFields;
use crate::store::Outcome;

const KIB: u64 = 1024;

fn policy(keep: KeepOutput) -> OutputPolicy {
    OutputPolicy {
        keep,
        per_run: 64 * KIB,
        ..OutputPolicy::default()
    }
}

fn fields() -> RunFields {
    RunFields {
        job: JobName::parse("..").expect("a name"),
        run: RunId::new(),
        scheduled_at: None,
        host: HostName::parse("a").expect("a name"),
    }
}

struct KeeperBench {
    keeper: OutputKeeper,
    state: tempfile::TempDir,
}

impl KeeperBench {
    fn new(policy: OutputPolicy) -> Self {
        let state = tempfile::tempdir().expect("a directory");
        Self {
            keeper: keeper(state.path(), policy),
            state,
        }
    }

    fn begin(&self) -> (RunFields, Arc<RunOutput>) {
        let fields = fields();
        let output = Arc::new(self.keeper.of_run(&fields));
        output.begin();
        (fields, output)
    }

    /// Waits for the thread.
    async fn settle(&self) {
        self.keeper.flush(Duration::from_secs(60)).await;
    }

    async fn run(&self, text: &[u8], outcome: Outcome) -> RunId {
        let (fields, output) = self.begin();
        for chunk in text.chunks(8 * 1024) {
            output.take(Stream::Out, chunk);
            // What has no room in the queue would be dropped.
            self.settle().await;
        }
        output.end(RunEnd::Ended(outcome, None), &fields);
        self.settle().await;
        fields.run
    }

    /// The names of the files, and their content, sorted.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        files(&directory_in(self.state.path()))
    }
}

fn keeper(state: &Path, policy: OutputPolicy) -> OutputKeeper {
    OutputKeeper::start(Some(directory_in(state)), policy).expect("a thread")
}

fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| {
            let name = entry.file_name().into_string().expect("a name");
            (name, fs::read(entry.path()).expect("a file"))
        })
        .collect();
    files.sort();
    files
}

/// What the command wrote, as a file has it.
fn restored(file: &[u8], origin: OutputOrigin) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in file.split(|byte| *byte == b'\n').filter(|l| !l.is_empty()) {
        let entry = OutputEntry::parse(line).expect("no line is damaged");
        if entry.origin == origin {
            bytes.extend_from_slice(entry.text);
            bytes.extend(matches!(entry.end, LineEnd::Whole).then_some(b'\n'));
        }
    }
    bytes
}

fn notes(file: &[u8]) -> Vec<OutputNote> {
    let lines = file.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| OutputEntry::parse(line)?.note())
        .collect()
}

#[tokio::test]
async fn both_streams_of_a_failure_can_be_restored_byte_for_byte() {
    let bench = KeeperBench::new(policy(KeepOutput::Failures));
    let (fields, output) = bench.begin();
    let odd = b"\x00\xff no end \r here\n\n\x1b[2J tail".as_slice();
    output.take(Stream::Out, odd);
    output.take(Stream::Err, b"to the other\nstream");
    output.take(Stream::Out, b"!\n");
    output.begin_attempt(2);
    let failed = RunEnd::Ended(Outcome::Failed, Some("why".to_owned()));
    output.end(failed, &fields);
    bench.settle().await;
    let [(name, file)] = &bench.files()[..] else {
        panic!("{:?}", bench.files());
    };
    assert_eq!(*name, format!("..@{}.log", fields.run));
    assert_eq!(restored(file, OutputOrigin::Stdout), [odd, b"!\n"].concat());
    assert_eq!(
        restored(file, OutputOrigin::Stderr),
        b"to the other\nstream"
    );
    let notes = notes(file);
    assert!(matches!(&notes[0], OutputNote::Begun { job, .. } if job == ".."));
    assert_eq!(notes[1], OutputNote::Attempt { attempt: 2 });
    let ended = OutputNote::Ended {
        outcome: "failed".to_owned(),
        reason: Some("why".to_owned()),
        bytes: odd.len() as u64 + 21,
    };
    assert_eq!(notes[2..], [ended]);
}

#[tokio::test]
async fn the_policy_decides_whose_output_stays() {
    for (keep, kept) in [
        (KeepOutput::Failures, [false, true]),
        (KeepOutput::All, [true, true]),
        (KeepOutput::None, [false, false]),
    ] {
        for (outcome, kept) in [Outcome::Succeeded, Outcome::TimedOut]
            .into_iter()
            .zip(kept)
        {
            let bench = KeeperBench::new(policy(keep));
            bench.run(b"x\n", outcome).await;
            assert_eq!(bench.files().len() == 1, kept, "{keep:?} {outcome:?}");
        }
    }
}

#[tokio::test]
async fn what_was_never_started_leaves_no_file_and_what_was_abandoned_leaves_one() {
    let bench = KeeperBench::new(policy(KeepOutput::Failures));
    let (fields, output) = bench.begin();
    output.end(RunEnd::NotStarted, &fields);
    bench.settle().await;
    assert!(bench.files().is_empty());
    drop(bench.begin());
    bench.settle().await;
    assert_eq!(bench.files().len(), 1);
}

#[tokio::test]
async fn of_a_run_that_floods_the_beginning_and_the_end_stay() {
    let bench = KeeperBench::new(policy(KeepOutput::Failures));
    let lines: Vec<String> = (0..20_000).map(|n| format!("line {n}\n")).collect();
    let whole = lines.concat();
    let run = bench.run(whole.as_bytes(), Outcome::Failed).await;
    let files = bench.files();
    let size: u64 = files.iter().map(|(_, file)| file.len() as u64).sum();
    assert!((32 * KIB..=64 * KIB + KIB).contains(&size), "{size} bytes");
    assert_eq!(files.len(), 3);
    assert_eq!(files[0].0, format!("..@{run}.log"));
    let begin = restored(&files[0].1, OutputOrigin::Stdout);
    assert!(whole.as_bytes().starts_with(&begin) && begin.len() > 4096);
    let mut later: Vec<_> = files[1..].iter().collect();
    later.sort_by_key(|(name, _)| name.rsplit('.').next().and_then(|n| n.parse::<u32>().ok()));
    let end = later
        .iter()
        .map(|(_, file)| restored(file, OutputOrigin::Stdout));
    let end: Vec<u8> = end.flatten().collect();
    assert!(whole.as_bytes().ends_with(&end));
    // A whole file of a quarter of the limit, and as much of the next one as there is: a time of a whole second is
    // shorter in the file, and moves where each begins.
    assert!(end.len() > 3 * 1024, "{} bytes", end.len());
    // How much is missing can be computed.
    let OutputNote::Continued { offset } = notes(&later[0].1)[0] else {
        panic!("{:?}", notes(&later[0].1));
    };
    assert_eq!(offset + end.len() as u64, whole.len() as u64);
}

#[tokio::test]
async fn the_oldest_files_make_room_within_the_total() {
    let bench = KeeperBench::new(OutputPolicy {
        total: 64 * KIB,
        ..policy(KeepOutput::Failures)
    });
    let text = vec![b'x'; 20 * 1024];
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(bench.run(&text, Outcome::Failed).await);
        let files = bench.files();
        let size: u64 = files.iter().map(|(_, file)| file.len() as u64).sum();
        assert!(size <= 64 * KIB, "{size} bytes");
    }
    let kept: Vec<String> = bench.files().into_iter().map(|(name, _)| name).collect();
    let newest = runs[2..].iter().map(|run| format!("..@{run}.log"));
    assert_eq!(kept, newest.collect::<Vec<_>>());
}

#[tokio::test]
async fn a_run_that_waits_for_its_instant_has_no_file() {
    let bench = KeeperBench::new(policy(KeepOutput::Failures));
    let output = bench.keeper.of_run(&fields());
    // Creates the files of all runs in progress.
    bench.settle().await;
    assert_eq!(bench.files(), []);
    output.begin();
    bench.settle().await;
    assert_eq!(bench.files().len(), 1);
}

#[tokio::test]
async fn output_that_arrives_before_the_report_of_the_start_is_kept() {
    let bench = KeeperBench::new(policy(KeepOutput::Failures));
    let output = bench.keeper.of_run(&fields());
    output.take(Stream::Out, b"early\n");
    output.begin();
    bench.settle().await;
    let [(_, file)] = &bench.files()[..] else {
        panic!("{:?}", bench.files());
    };
    assert_eq!(restored(file, OutputOrigin::Stdout), b"early\n");
}

#[tokio::test]
async fn runs_in_progress_never_take_more_than_the_total() {
    let bench = KeeperBench::new(OutputPolicy {
        total: 64 * KIB,
        ..policy(KeepOutput::Failures)
    });
    let runs: Vec<_> = (0..4).map(|_| bench.begin()).collect();
    for (_, output) in &runs {
        for _ in 0..4 {
            output.take(Stream::Out, &[b'x'; 8 * 1024]);
        }
    }
    bench.settle().await;
    let files = bench.files();
    let size: u64 = files.iter().map(|(_, file)| file.len() as u64).sum();
    assert!(size <= 65 * KIB, "{size} bytes");
    let stopped = |file: &[u8]| {
        let is = |note: &OutputNote| matches!(note, OutputNote::Stopped { reason } if reason.contains("total"));
        notes(file).iter().any(is)
    };
    assert!(files.iter().any(|(_, file)| stopped(file)));
    drop(runs);
}

#[tokio::test]
async fn files_expire_and_those_of_a_run_in_progress_elsewhere_do_not() {
    let bench = KeeperBench::new(policy(KeepOutput::Failures));
    let (_, in_progress) = bench.begin();
    let old = bench.run(b"old\n", Outcome::Failed).await;
    let new = bench.run(b"new\n", Outcome::Failed).await;
    let directory = directory_in(bench.state.path());
    let week = SystemTime::now() - Duration::from_secs(8 * 86_400);
    for (name, _) in bench.files() {
        if !name.contains(new.as_str()) {
            let file = fs::File::options().append(true).open(directory.join(name));
            file.expect("a file").set_modified(week).expect("allowed");
        }
    }
    // Another process that uses the same directory.
    let other = keeper(bench.state.path(), policy(KeepOutput::Failures));
    other.flush(Duration::from_secs(60)).await;
    let kept = bench.files();
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(kept.iter().all(|(name, _)| !name.contains(old.as_str())));
    drop(in_progress);
}

#[tokio::test]
async fn the_directory_is_private_and_a_link_is_refused() {
    let bench = KeeperBench::new(policy(KeepOutput::Failures));
    let directory = directory_in(bench.state.path());
    bench.run(b"x\n", Outcome::Failed).await;
    let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join(&bench.files()[0].0)), 0o600);
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("allowed");
    bench.keeper.replace(policy(KeepOutput::All));
    bench.settle().await;
    assert_eq!(mode(&directory), 0o700, "it was opened for others");

    let elsewhere = tempfile::tempdir().expect("a directory");
    fs::remove_dir_all(&directory).expect("allowed");
    std::os::unix::fs::symlink(elsewhere.path(), &directory).expect("allowed");
    bench.keeper.replace(policy(KeepOutput::All));
    bench.run(b"x\n", Outcome::Failed).await;
    assert!(files(elsewhere.path()).is_empty());
}

#[tokio::test]
async fn a_disk_that_hangs_delays_no_command_and_what_is_lost_is_counted() {
    const MIB: u64 = 1 << 20;
    let state = tempfile::tempdir().expect("a directory");
    let directory = directory_in(state.path());
    let policy = OutputPolicy::default();
    let (keeper, writer) = OutputKeeper::prepare(Some(directory), policy);
    let bench = KeeperBench { keeper, state };
    let (fields, output) = bench.begin();
    // Nobody writes yet, as while the disk hangs.
    for _ in 0..4 * MIB / 8192 {
        output.take(Stream::Out, &[b'x'; 8192]);
    }
    assert_eq!(output.missing(), 3 * MIB);
    // All runs together have 16 MiB.
    let others: Vec<_> = (0..20).map(|_| bench.begin().1).collect();
    for other in &others {
        other.take(Stream::Out, &vec![b'x'; 1 << 20]);
    }
    let missing: u64 = others.iter().map(|other| other.missing()).sum();
    assert_eq!(missing, 5 * MIB);
    // The disk works again.
    writer.start().expect("a thread");
    bench.settle().await;
    output.take(Stream::Out, b"after\n");
    output.end(RunEnd::Ended(Outcome::Failed, None), &fields);
    bench.settle().await;
    let file = bench.files().into_iter();
    let (_, file) = file
        .into_iter()
        .find(|(name, _)| name.contains(fields.run.as_str()))
        .expect("a file");
    let notes = notes(&file);
    assert_eq!(notes[1], OutputNote::Dropped { bytes: 3 * MIB });
    assert!(
        matches!(notes[2], OutputNote::Ended { bytes, .. } if bytes == MIB + 6),
        "{notes:?}"
    );
}

#[tokio::test]
async fn a_short_run_that_writes_nothing_and_succeeds_never_has_a_file() {
    let state = tempfile::tempdir().expect("a directory");
    let directory = directory_in(state.path());
    fs::create_dir(&directory).expect("the state directory");
    let permissions = fs::Permissions::from_mode(0o700);
    fs::set_permissions(&directory, permissions).expect("it is ours");
    // A file that comes and goes changes the time of its directory.
    let times = fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
    let opened = fs::File::open(&directory).expect("it is there");
    opened.set_times(times).expect("it is ours");
    let policy = policy(KeepOutput::Failures);
    let (keeper, writer) = OutputKeeper::prepare(Some(directory.clone()), policy);
    let fields = fields();
    let output = keeper.of_run(&fields);
    output.begin();
    output.end(RunEnd::Ended(Outcome::Succeeded, None), &fields);
    drop(output);
    writer.start().expect("a thread");
    keeper.flush(Duration::from_secs(60)).await;
    let metadata = fs::metadata(&directory).expect("it is there");
    let modified = metadata.modified().expect("as on every Linux");
    assert_eq!(modified, SystemTime::UNIX_EPOCH);
}

#[tokio::test]
async fn a_run_in_progress_has_a_file_before_it_has_written_anything() {
    let bench = KeeperBench::new(policy(KeepOutput::Failures));
    let (fields, output) = bench.begin();
    let name = format!("..@{}.log", fields.run);
    let created = async {
        while bench.files().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(60), created);
    in_time.await.expect("it is created soon");
    bench.settle().await;
    let [(created, file)] = &bench.files()[..] else {
        panic!("{:?}", bench.files());
    };
    assert_eq!(*created, name);
    assert!(matches!(notes(file)[..], [OutputNote::Begun { .. }]));
    output.end(RunEnd::Ended(Outcome::Succeeded, None), &fields);
}
