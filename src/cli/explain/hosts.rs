//! Explains, for each live host in the registry, whether it would claim an occurrence.

use serde::Serialize;

use super::facts::OccurrenceFacts;
use crate::store::{HostInfo, Standing};
use crate::time::Timestamp;

/// What a host did about an occurrence, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct HostDecision {
    pub(super) host: String,
    pub(super) decision: ClaimDecision,
    /// Why, if the word leaves that open.
    pub(super) reason: Option<String>,
    /// Whether its list differs from this one.
    pub(super) list_differs: bool,
}

/// The words are an interface (`explain --json`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClaimDecision {
    /// It ran the occurrence, or recorded the verdict.
    Won,
    /// It may run the job, and another host was first.
    Lost,
    /// It may run the job.
    MayRun,
    /// `hosts` does not match it.
    NotMatched,
    /// Its list does not have the job enabled.
    NotListed,
    /// It claims nothing of the job, or nothing at all.
    Waits,
    /// It is stopping, and claims nothing.
    Draining,
    /// It started after the occurrence was due.
    StartedLater,
}

impl ClaimDecision {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Won => "won",
            Self::Lost => "lost the race",
            Self::MayRun => "may run the job",
            Self::NotMatched => "is not named by `hosts`",
            Self::NotListed => "does not list the job, or has it disabled",
            Self::Waits => "claims nothing",
            Self::Draining => "is stopping",
            Self::StartedLater => "its daemon started later",
        }
    }

    /// Whether such a host can claim the job now.
    pub(super) fn can_run(self) -> bool {
        matches!(
            self,
            Self::Won | Self::Lost | Self::MayRun | Self::StartedLater
        )
    }
}

/// The decision of each live host about the occurrence `at`, which `winner` ran or decided.
pub(super) fn decisions(
    facts: &OccurrenceFacts,
    at: Timestamp,
    winner: Option<&str>,
) -> Vec<HostDecision> {
    let live = facts.hosts.iter().map(|report| &report.info);
    live.map(|info| {
        let (decision, reason) = decision(facts, (at, winner), info);
        HostDecision {
            host: info.host.to_string(),
            decision,
            reason,
            list_differs: !facts.config.0.is_empty() && info.config != facts.config,
        }
    })
    .collect()
}

fn decision(
    facts: &OccurrenceFacts,
    (at, winner): (Timestamp, Option<&str>),
    info: &HostInfo,
) -> (ClaimDecision, Option<String>) {
    let name = facts.job.name.as_str();
    if winner == Some(info.host.as_str()) {
        return (ClaimDecision::Won, None);
    }
    if !facts.job.policies.hosts.matches(&info.host) {
        let globs = facts.job.policies.hosts.0.join(", ");
        return (ClaimDecision::NotMatched, Some(format!("hosts: {globs}")));
    }
    let entry = facts.listing.entries.get(&info.host);
    match entry.map(|entry| entry.standing) {
        // Hosts register the jobs that are enabled.
        None if !facts.listing.entries.is_empty() || !facts.job.enabled => {
            return (ClaimDecision::NotListed, None);
        }
        Some(Standing::Withdrawn) => {
            let since = entry.map(|entry| format!("since {}", entry.at));
            return (ClaimDecision::NotListed, since);
        }
        None | Some(Standing::Uses | Standing::Waits) => {}
    }
    let held = info.held_back.iter().find(|held| held.job == name);
    let waits = held
        .map(|held| held.reason.clone())
        .or_else(|| info.waits.clone())
        .or_else(|| info.clock_wrong.clone())
        .or_else(|| info.lacks.as_ref().map(|lack| format!("it lacks {lack}")));
    let waits = waits.or_else(|| facts.not_granted(at).filter(|_| winner.is_none()));
    if let Some(reason) = waits {
        return (ClaimDecision::Waits, Some(reason));
    }
    if info.draining {
        return (ClaimDecision::Draining, None);
    }
    if info.started_at > at {
        let reason = format!("at {} by its clock", info.started_at);
        return (ClaimDecision::StartedLater, Some(reason));
    }
    match winner {
        Some(winner) => (ClaimDecision::Lost, Some(format!("{winner} claimed first"))),
        None => (ClaimDecision::MayRun, None),
    }
}
