//! `explain` for people.

use super::explanation::Explanation;
use crate::cli::output;
use crate::cli::times::Times;
use crate::time::Timestamp;

pub(super) fn for_people(explanation: &Explanation, times: Times) -> String {
    let show = |at: Option<Timestamp>| match at {
        Some(at) => times.show(at),
        None => "none".to_owned(),
    };
    let mut text = format!(
        "{}, {}: {}\n",
        explanation.job,
        times.show(explanation.at),
        explanation.text
    );
    if let Some(run) = &explanation.run
        && let Some(id) = &run.run_id
    {
        text += &format!(
            "  run {id}, started {}, {}\n",
            show(run.started_at),
            match run.finished_at {
                Some(at) => format!("finished {}", times.show(at)),
                None => "not finished yet".to_owned(),
            }
        );
    }
    for detail in &explanation.details {
        text += &format!("  {detail}\n");
    }
    text += &format!(
        "  previous occurrence {}, next occurrence {}\n",
        show(explanation.previous_at),
        show(explanation.next_at),
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
