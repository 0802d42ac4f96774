//! Time zone data: the program has its own, the host another, and both grow old.

use std::sync::Arc;

use super::{Finding, ids};
use crate::config::{self, Job};

/// Where systems keep the name of their release of the data.
const RELEASE: &str = "/usr/share/zoneinfo/tzdata.zi";

pub(super) fn look(jobs: &[Arc<Job>]) -> Vec<Finding> {
    let ours = chrono_tz::IANA_TZDB_VERSION;
    let release = release();
    let mut found = vec![judge_release(ours, release.as_deref())];
    let zones = jobs.iter().map(|job| job.schedule.zone().name());
    found.extend(judge_zone(config::machine_time_zone().as_deref(), zones));
    found
}

/// `# version 2025b` is the first line.
fn release() -> Option<String> {
    use std::io::{BufRead as _, BufReader};
    let file = std::fs::File::open(RELEASE).ok()?;
    let mut line = String::new();
    BufReader::new(file).read_line(&mut line).ok()?;
    line.trim().strip_prefix("# version ").map(str::to_owned)
}

fn judge_release(ours: &str, theirs: Option<&str>) -> Finding {
    match theirs {
        // Years and letters sort as texts.
        Some(theirs) if theirs > ours => ids::ZONE.hint(
            "this host",
            format!(
                "schedules use time zone data {ours}, and this host has {theirs}: jobs in zones \
                 whose rules differ start at other times than this host's clock suggests"
            ),
            "upgrade cronlatch on all hosts",
        ),
        Some(theirs) => ids::ZONE.ok(
            "this host",
            format!("time zone data {ours}, this host has {theirs}"),
        ),
        None => ids::ZONE.ok("this host", format!("time zone data {ours}")),
    }
}

fn judge_zone<'a>(
    machine: Option<&str>,
    mut zones: impl Iterator<Item = &'a str>,
) -> Option<Finding> {
    let Some(machine) = machine else {
        return Some(ids::ZONE.hint(
            "this host",
            "its time zone has no name that cronlatch knows: commands may print other times than the \
             schedules use",
            "timedatectl set-timezone, with a name of the IANA data",
        ));
    };
    let plain = |zone: &str| zone.trim_start_matches("Etc/").to_owned();
    let other = zones.find(|zone| plain(zone) != plain(machine))?;
    Some(ids::ZONE.ok(
        "this host",
        format!(
            "its time zone is {machine}, and some schedules use {other}: correct if that is intended"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Severity::{Hint, Ok};

    #[test]
    fn newer_data_on_the_host_and_a_zone_without_a_name_are_told() {
        assert_eq!(judge_release("2025b", Some("2025c")).severity, Hint);
        assert_eq!(judge_release("2025b", Some("2024a")).severity, Ok);
        assert_eq!(judge_release("2025b", None).severity, Ok);
        let severity =
            |machine| judge_zone(machine, ["UTC"].into_iter()).map(|finding| finding.severity);
        assert_eq!(severity(None), Some(Hint));
        assert_eq!(severity(Some("UTC")), None);
        assert_eq!(severity(Some("Etc/UTC")), None);
        assert_eq!(severity(Some("Europe/Berlin")), Some(Ok));
    }
}
