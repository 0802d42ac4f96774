//! `history` for people.

use std::time::Duration;

use super::order::instant_of;
use crate::cli::output;
use crate::cli::times::Times;
use crate::store::{Outcome, Record, RunUsage};

pub(super) fn for_people(records: &[Record], times: Times, with_output: bool) -> String {
    if records.is_empty() {
        return "nothing recorded yet\n".to_owned();
    }
    let header = [
        "DUE", "JOB", "VERDICT", "STARTED", "TOOK", "CPU", "MEMORY", "HOST", "EXIT", "TRIES",
        "RUN", "WHY",
    ];
    let mut text = output::table(header, records.iter().map(|record| row(record, times)));
    let tails = records
        .iter()
        .filter_map(|r| Some((r, r.output_tail.as_deref()?)));
    for (record, tail) in tails.filter(|(_, tail)| with_output && !tail.is_empty()) {
        let instant = times.show(instant_of(record));
        text += &format!("\n{instant}  {}  {}\n", record.job, record.outcome.word());
        for line in tail.lines() {
            text += &format!("  {line}\n");
        }
    }
    text
}

fn row(record: &Record, times: Times) -> [String; 12] {
    let dash = || "-".to_owned();
    let due = match (record.scheduled_at, record.until, record.count) {
        (Some(from), Some(until), Some(count)) => {
            format!("{} .. {} ({count})", times.show(from), times.show(until))
        }
        (Some(at), ..) => times.show(at),
        (None, ..) if record.is_correction() => dash(),
        (None, ..) => "by hand".to_owned(),
    };
    let took = match (record.started_at, record.finished_at) {
        (Some(from), Some(to)) => output::short(to.since(from)),
        _ => dash(),
    };
    [
        due,
        record.job.to_string(),
        record.outcome.word().to_owned(),
        record.started_at.map_or_else(dash, |at| times.show(at)),
        took,
        record.usage.map_or_else(dash, |usage| cpu(&usage)),
        record.usage.map_or_else(dash, |usage| memory(&usage)),
        record.host.as_ref().map_or_else(dash, ToString::to_string),
        exit(record).unwrap_or_else(dash),
        match record.attempts {
            0 => dash(),
            attempts => attempts.to_string(),
        },
        record
            .run_id
            .as_ref()
            .map_or_else(dash, ToString::to_string),
        why(record),
    ]
}

/// The exit code, or the signal by its name.
pub(in crate::cli) fn exit(record: &Record) -> Option<String> {
    let named = |number| {
        nix::sys::signal::Signal::try_from(number)
            .map_or_else(|_| format!("signal {number}"), |signal| signal.to_string())
    };
    record
        .signal
        .map(named)
        .or_else(|| record.exit_code.map(|code| code.to_string()))
}

/// The CPU time of a run.
pub(in crate::cli) fn cpu(usage: &RunUsage) -> String {
    output::short(Duration::from_millis(usage.cpu_ms))
}

/// The peak memory of a run, rounded up: `12 MiB`, `1.5 GiB`.
pub(in crate::cli) fn memory(usage: &RunUsage) -> String {
    const MIB: u64 = 1 << 20;
    let mib = usage.peak_memory_bytes.div_ceil(MIB);
    if mib < 1024 {
        return format!("{mib} MiB");
    }
    let tenths = (mib * 10).div_ceil(1024);
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

fn why(record: &Record) -> String {
    let reason = record.reason.as_deref().unwrap_or_default();
    // Who triggered or killed a run is in its reason already.
    let by = record.by.as_ref().filter(|by| !reason.contains(&***by));
    let by = by.map(|by| match record.outcome {
        Outcome::Interrupted => format!("recorded by {by}"),
        _ => format!("held by {by}"),
    });
    let parts = [record.reason.clone(), by];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::names::{HostName, JobName, RunId};
    use crate::store::{Kind, Outcome};
    use crate::time::Timestamp;

    pub(in crate::cli::history) fn record(job: &str) -> Record {
        Record {
            job: JobName::parse(job).unwrap(),
            run_id: Some(RunId::from_text("01a200cc-51c1-772e-90ed-bdf0bfb054e1")),
            kind: Kind::Schedule,
            scheduled_at: Some(Timestamp::from_secs(60)),
            until: None,
            count: None,
            started_at: Some(Timestamp::from_millis(60_002)),
            finished_at: Some(Timestamp::from_millis(61_502)),
            host: HostName::parse("web1").ok(),
            outcome: Outcome::Failed,
            reason: None,
            by: None,
            exit_code: Some(3),
            signal: None,
            attempts: 2,
            fence: Some(7),
            output_tail: Some("no space left\n".to_owned()),
            usage: Some(RunUsage {
                cpu_ms: 1_250,
                peak_memory_bytes: 12 << 20,
            }),
        }
    }

    #[test]
    fn memory_is_rounded_up() {
        let shown = |peak_memory_bytes| {
            memory(&RunUsage {
                cpu_ms: 0,
                peak_memory_bytes,
            })
        };
        let bytes = [0, 1, 8 << 20, (1 << 30) - 1, 1 << 30, (3 << 30) / 2 + 1];
        let texts = ["0 MiB", "1 MiB", "8 MiB", "1.0 GiB", "1.0 GiB", "1.6 GiB"];
        assert_eq!(bytes.map(shown), texts);
    }

    #[test]
    fn the_table_shows_runs_ranges_and_output() {
        let missed = Record {
            run_id: None,
            until: Some(Timestamp::from_secs(300)),
            count: Some(5),
            started_at: None,
            finished_at: Some(Timestamp::from_secs(400)),
            outcome: Outcome::Missed,
            reason: Some("no host was up".to_owned()),
            exit_code: None,
            attempts: 0,
            output_tail: None,
            usage: None,
            ..record("backup")
        };
        let killed = Record {
            signal: Some(9),
            scheduled_at: None,
            kind: Kind::Manual,
            outcome: Outcome::LeaseLost,
            by: Some("web2".to_owned()),
            ..record("mail")
        };
        insta::assert_snapshot!(for_people(
            &[missed, record("backup"), killed],
            Times::Utc,
            true
        ));
    }

    #[test]
    fn a_correction_of_the_ledger_has_no_occurrence() {
        let correction = Record {
            run_id: None,
            scheduled_at: None,
            outcome: Outcome::Unknown,
            ..record("backup")
        };
        assert_eq!(row(&correction, Times::Utc)[0], "-");
    }
}
