//! The output of a run of another host, through the HTTP server of its daemon.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use ureq::Agent;

use super::show::{Printer, StreamName};
use crate::cli::Failure;
use crate::cli::output::{self, StdoutReader};
use crate::output::{LineEnd, OutputEntry, OutputItem, OutputNote, OutputOrigin};
use crate::time::Timestamp;

/// How long a reply may take.
const LIMIT: Duration = Duration::from_secs(60);
/// The most bytes of a reply. Output of more bytes is an error, because the host sends it in one piece.
const REPLY_MAX: u64 = 256 << 20;
/// How often the output of a run in progress is asked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The server of another host.
pub(super) struct RemoteLogs {
    agent: Agent,
    address: String,
    token: String,
}

/// The output of a run after an offset.
struct OutputReply {
    /// Lines of JSON: what the command wrote after the offset, and all notes.
    text: String,
    /// How many bytes the command has written so far, including bytes that were dropped.
    offset: u64,
    is_complete: bool,
}

/// What could be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Printed {
    Output,
    /// What was written while the run was followed: the host removed the file when the run ended.
    Beginning,
    /// Nothing: the host has no file of the run, or has removed it.
    NotKept,
}

/// A line of `logs --json`.
#[derive(Debug, Deserialize)]
struct JsonLine {
    time: Timestamp,
    stream: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    complete: bool,
}

impl RemoteLogs {
    pub(super) fn at(address: &str, token_file: &Path) -> Result<Self, Failure> {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(LIMIT))
            .user_agent(concat!("cronlatch/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Ok(Self {
            agent,
            address: address.to_owned(),
            token: token_in(token_file)?,
        })
    }

    /// Prints the output of a run, until the run has ended if it is to be followed.
    pub(super) fn print(
        &self,
        run: &str,
        (printer, only): (&mut Printer, Option<StreamName>),
        follow: bool,
    ) -> Result<Printed, Failure> {
        let (mut from, mut notes) = (0, 0);
        let mut if_not_kept = Printed::NotKept;
        loop {
            let Some(reply) = self.fetch(run, only, from)? else {
                return Ok(if_not_kept);
            };
            if_not_kept = Printed::Beginning;
            let printed = show(&reply.text, notes, |item| printer.item(item)).and_then(|seen| {
                notes = notes.max(seen);
                printer.flush()
            });
            if output::delivered(printed)? == StdoutReader::Gone || reply.is_complete || !follow {
                return Ok(Printed::Output);
            }
            from = reply.offset;
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Returns what the command wrote after its first `from` bytes, and all notes; `None` if the host has no
    /// file of the run.
    fn fetch(
        &self,
        run: &str,
        only: Option<StreamName>,
        from: u64,
    ) -> Result<Option<OutputReply>, Failure> {
        let stream = only.map_or_else(String::new, |only| format!("&stream={}", only.word()));
        let url = format!("{}/api/v1/logs?run={run}&from={from}{stream}", self.address);
        let failed = |why: String| {
            Failure::Unavailable(format!(
                "cannot read the output of run {run} from {}: {why}",
                self.address
            ))
        };
        let asked = self.agent.get(&url);
        let asked = asked.header("authorization", format!("Bearer {}", self.token));
        let mut reply = asked.call().map_err(|error| failed(error.to_string()))?;
        let header = |name: &str| {
            let value = reply.headers().get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        let status = reply.status().as_u16();
        let offset = header("cronlatch-offset").and_then(|offset| offset.parse().ok());
        let is_complete = header("cronlatch-progress").as_deref() != Some("in-progress");
        let body = reply.body_mut().with_config().limit(REPLY_MAX);
        let text = body
            .read_to_string()
            .map_err(|error| failed(error.to_string()))?;
        if status == 404 {
            return Ok(None);
        }
        if status != 200 {
            let error: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            let message = error["error"]["message"].as_str();
            return Err(failed(format!(
                "{} ({status})",
                message.unwrap_or("no reason")
            )));
        }
        Ok(Some(OutputReply {
            text,
            offset: offset.unwrap_or(from),
            is_complete,
        }))
    }
}

/// Prints the lines of a reply. Every reply repeats all notes of the run, because notes have no offset: the
/// first `seen` notes are skipped. Returns how many notes the reply has.
fn show(
    text: &str,
    seen: usize,
    mut print: impl FnMut(&OutputItem<'_>) -> std::io::Result<()>,
) -> std::io::Result<usize> {
    let mut notes = 0;
    for line in text.lines() {
        let Ok(parsed) = serde_json::from_str::<JsonLine>(line) else {
            // The daemon may be newer, and send lines that this program does not know.
            continue;
        };
        let (origin, bytes) = match parsed.stream.as_str() {
            "stdout" => (OutputOrigin::Stdout, parsed.text.into_bytes()),
            "stderr" => (OutputOrigin::Stderr, parsed.text.into_bytes()),
            _ => {
                notes += 1;
                let Ok(note) = serde_json::from_str::<OutputNote>(line) else {
                    continue;
                };
                (OutputOrigin::Note, serde_json::to_vec(&note)?)
            }
        };
        if origin == OutputOrigin::Note && notes <= seen {
            continue;
        }
        let is_whole = origin == OutputOrigin::Note || parsed.complete;
        print(&OutputItem::Entry(OutputEntry {
            at: parsed.time,
            origin,
            end: if is_whole {
                LineEnd::Whole
            } else {
                LineEnd::Part
            },
            text: &bytes,
        }))?;
    }
    Ok(notes)
}

/// Returns the token of the first line of a file: its last word. The file may be the `token_file` of a server,
/// with lines `RIGHT NAME TOKEN`, or have only a token.
fn token_in(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Config(format!("cannot read {}: {error}", path.display())))?;
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let token = lines.next().and_then(|line| line.split_whitespace().last());
    token
        .map(str::to_owned)
        .ok_or_else(|| Failure::Config(format!("{} has no token", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_output_that_is_followed_each_note_is_printed_once() {
        let time = "1970-01-01T00:01:00Z";
        let note = |attempt: u32| {
            format!(r#"{{"time":"{time}","stream":"note","event":"attempt","attempt":{attempt}}}"#)
        };
        let line = format!(r#"{{"time":"{time}","stream":"stdout","text":"a","complete":true}}"#);
        let text = [note(1), line, note(2)].join("\n");
        let printed = |seen: usize| {
            let mut texts = Vec::new();
            let notes = show(&text, seen, |item| {
                let OutputItem::Entry(entry) = item else {
                    panic!("not an entry")
                };
                texts.push(String::from_utf8_lossy(entry.text).into_owned());
                Ok(())
            });
            assert_eq!(notes.unwrap(), 2, "seen: {seen}");
            texts
        };
        let [first, second] = [1, 2].map(|n| format!(r#"{{"event":"attempt","attempt":{n}}}"#));
        assert_eq!(printed(0), [&first, "a", &second]);
        assert_eq!(printed(1), ["a", &second]);
        assert_eq!(printed(2), ["a"]);
    }
}
