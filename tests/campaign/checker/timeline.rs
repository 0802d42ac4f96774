//! What happened around an instant, line by line, for a person.

use super::locks::{Sight, Sighting, Write};
use super::{Span, Story};

impl Story {
    /// The lines from 8 s before an instant to 4 s after it.
    pub(crate) fn timeline(&self, around: i64) -> String {
        let near = Span {
            from: around - 8_000,
            until: around + 4_000,
        };
        let mut lines: Vec<(i64, String)> = Vec::new();
        for fault in &self.faults {
            lines.push((fault.span.from, format!("fault   {} begins", fault.text)));
            lines.push((fault.span.until, format!("fault   {} is over", fault.text)));
        }
        for death in &self.deaths {
            lines.push((death.at, format!("died    {} ({})", death.host, death.pid)));
        }
        for run in &self.runs {
            let who = format!(
                "{} on {}, fence {}, {}",
                run.job, run.host, run.fence, run.run_id
            );
            lines.push((run.start, format!("began   {who}, due {:?}", run.scheduled)));
            let end = if run.ended { "ended " } else { "last sign of" };
            lines.push((run.last_sign, format!("{end}  {who}")));
        }
        for record in &self.records {
            let at = record.finished_at.or(record.scheduled_at);
            let at = at.map_or(around, cronlatch::time::Timestamp::millis);
            let text = format!(
                "record  {} due {:?} until {:?}: {:?} {:?} by {:?}",
                record.job,
                record.scheduled_at,
                record.until,
                record.outcome,
                record.reason,
                record.host
            );
            lines.push((at, text));
        }
        let seen = self.sightings.iter().filter(|seen| near.holds(seen.at));
        lines.extend(seen.filter_map(|seen| Some((seen.at, told(seen)?))));
        lines.sort();
        let near = lines.iter().filter(|(at, _)| near.holds(*at));
        let lines: Vec<_> = near
            .map(|(at, text)| format!("{:>8} ms  {text}", at - around))
            .collect();
        lines.join("\n")
    }
}

/// A write; looks are too many to tell.
fn told(seen: &Sighting) -> Option<String> {
    let Sight::Write { write, .. } = &seen.sight else {
        return None;
    };
    let what = match write {
        Write::Set { token, .. } => format!("is set to {token}"),
        Write::Extend { until } => format!("is extended by {} ms", until - seen.at),
        Write::Delete => "is deleted".to_owned(),
    };
    Some(format!("lock    {} on {} {what}", seen.lock, seen.server))
}
