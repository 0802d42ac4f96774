//! `explain` for people.

use super::explanation::Explanation;
use crate::cli::clock::Times;
use crate::cli::output;

pub(super) fn for_people(explanation: &Explanation, times: Times) -> String {
    let show = |at| times.show(at);
    let mut text = format!(
        "{}, {}: {}\n",
        explanation.job,
        show(explanation.at),
        explanation.text
    );
    if let Some(run) = &explanation.run
        && let Some(id) = &run.run_id
    {
        let started = run.started_at.map_or_else(|| "-".to_owned(), show);
        let finished = run.finished_at.map_or_else(|| "-".to_owned(), show);
        text += &format!("  run {id}, started {started}, finished {finished}\n");
    }
    for detail in &explanation.details {
        text += &format!("  {detail}\n");
    }
    let none = || "none".to_owned();
    text += &format!(
        "  previous occurrence {}, next occurrence {}\n",
        explanation.previous_at.map_or_else(none, show),
        explanation.next_at.map_or_else(none, show),
    );
    if !explanation.hosts.is_empty() {
        text.push('\n');
        let rows = explanation.hosts.iter().map(|host| {
            [
                host.host.clone(),
                host.decision.text().to_owned(),
                host.reason.clone().unwrap_or_default(),
                if host.list_differs {
                    "its list differs".to_owned()
                } else {
                    String::new()
                },
            ]
        });
        text += &output::table(["HOST", "DECISION", "WHY", ""], rows);
    }
    text
}
