//! A proposal as arguments of a script, and a node's answer as a view.

use std::time::Duration;

use redis::Value;

use super::{Ballot, Held, JobView, LockView, Said, View};
use crate::names::{RunId, Token};
use crate::store::protocol::{JobState, Open};
use crate::store::redis::claim::flag;
use crate::store::redis::failure::Failure;
use crate::store::redis::link::Call;
use crate::store::redis::reading;
use crate::store::redis::record::{self, word};
use crate::store::redis::reply::Items;
use crate::time::Timestamp;

pub(super) fn job_args(call: &mut Call, job: Option<&JobView>) {
    let Some(view) = job else {
        call.arg("0");
        for _ in 14..=27 {
            call.arg("");
        }
        return;
    };
    let job = &view.state;
    let horizon = view.horizon.map(|at| at.millis().to_string());
    call.arg("1")
        .arg(&job.last.millis())
        .arg(&fingerprints_text(job))
        .arg(&flag(view.doubt))
        .arg(&horizon.unwrap_or_default())
        .arg(&flag(job.open.is_some()));
    let Some(open) = &job.open else {
        for _ in 19..=27 {
            call.arg("");
        }
        return;
    };
    let scheduled_at = open.scheduled_at.map(|at| at.millis().to_string());
    call.arg(&scheduled_at.unwrap_or_default())
        .arg(&open.run_id)
        .arg(&open.token)
        .arg(&open.attempt)
        .arg(&word(open.kind))
        .arg(&open.fence)
        .arg(&open.started_at.millis())
        .arg(&open.host)
        .arg(&open.prev_last.millis());
}

fn fingerprints_text(job: &JobState) -> String {
    let mut lines = String::new();
    for (fingerprint, at) in &job.fingerprints {
        lines.push_str(&format!("{} {}\n", at.millis(), fingerprint.0));
    }
    lines
}

pub(super) fn read_view(answer: Value) -> Result<View, Failure> {
    let mut items = Items::of(answer)?;
    let said = match items.text()?.as_str() {
        "promised" => Said::Promised,
        "busy" => Said::Busy,
        "outbid" => Said::Outbid,
        "read" => Said::Read,
        other => return Err(Failure::corrupt(format!("a node answers {other:?}"))),
    };
    let promised = number(&mut items)?;
    let micros = number(&mut items)?;
    let server = items.text()?;
    let lost_at = optional(&mut items)?;
    let recovering = Duration::from_millis(number(&mut items)?);
    let longest = Duration::from_millis(number(&mut items)?);
    let (lock_known, job_known) = (items.text()? == "1", items.text()? == "1");
    let (kind, value) = (items.text()?, items.text()?);
    let remaining = u64::try_from(number::<i64>(&mut items)?)
        .ok()
        .map(Duration::from_millis);
    let held = match kind.as_str() {
        "value" => Held::By(value, remaining),
        "other" => Held::Other(remaining),
        _ => Held::No,
    };
    let fence = number(&mut items)?;
    let token = Some(items.text()?).filter(|token| !token.is_empty());
    let left = Duration::from_millis(number(&mut items)?);
    let run_id = Some(items.text()?).filter(|id| !id.is_empty());
    let finished = items.text()?;
    let lock = LockView {
        ballot: ballot(&mut items)?,
        fence,
        token: token.as_deref().map(Token::from_text),
        left,
        run_id: run_id.as_deref().map(RunId::from_text),
        finished,
    };
    Ok(View {
        said,
        promised,
        micros,
        server,
        lost_at,
        recovering,
        longest,
        remembers: lock_known && job_known,
        held,
        lock,
        job: (!items.is_empty()).then(|| job(&mut items)).transpose()?,
    })
}

fn job(items: &mut Items) -> Result<JobView, Failure> {
    let ballot = ballot(items)?;
    let last = instant(items)?;
    let fingerprints = reading::fingerprints(&items.text()?)?;
    let doubt = items.text()? == "1";
    let horizon = optional(items)?;
    let open = (!items.is_empty()).then(|| open(items)).transpose()?;
    Ok(JobView {
        ballot,
        doubt,
        horizon,
        state: JobState {
            last,
            open,
            fingerprints,
        },
    })
}

fn open(items: &mut Items) -> Result<Open, Failure> {
    Ok(Open {
        scheduled_at: optional(items)?,
        run_id: RunId::from_text(&items.text()?),
        token: Token::from_text(&items.text()?),
        attempt: number(items)?,
        kind: record::from_word(&items.text()?)?,
        fence: number(items)?,
        started_at: instant(items)?,
        host: items.text()?,
        prev_last: instant(items)?,
    })
}

fn ballot(items: &mut Items) -> Result<Ballot, Failure> {
    Ok(Ballot {
        number: number(items)?,
        id: number(items)?,
    })
}

fn number<T: std::str::FromStr>(items: &mut Items) -> Result<T, Failure> {
    let text = items.text()?;
    text.parse()
        .map_err(|_| Failure::corrupt(format!("a node answers {text:?} instead of a number")))
}

fn instant(items: &mut Items) -> Result<Timestamp, Failure> {
    number(items).map(Timestamp::from_millis)
}

fn optional(items: &mut Items) -> Result<Option<Timestamp>, Failure> {
    let text = items.text()?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse()
        .map(|millis| Some(Timestamp::from_millis(millis)))
        .map_err(|_| Failure::corrupt(format!("a node answers {text:?} instead of an instant")))
}
