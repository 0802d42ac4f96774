//! A message as a mail.

use crate::config::MailTarget;
use crate::notify::notification::{Content, Notification};
use crate::notify::text;
use crate::time::Timestamp;

/// No line of a mail is longer, in bytes. Source: RFC 5322, section 2.1.1.
const LINE_MAX: usize = 900;

/// The mail as `sendmail` reads it.
pub(super) fn text(target: &MailTarget, message: &Notification) -> String {
    let mut lines = vec![
        format!("To: {}", target.to.join(", ")),
        format!("Subject: {}", text::subject(message)),
        format!("Date: {}", Timestamp::now().to_utc().to_rfc2822()),
        "MIME-Version: 1.0".to_owned(),
        "Content-Type: text/plain; charset=utf-8".to_owned(),
        "Content-Transfer-Encoding: 8bit".to_owned(),
        // Source: RFC 3834. Vacation programs do not reply.
        "Auto-Submitted: auto-generated".to_owned(),
    ];
    if let Some(from) = &target.from {
        lines.insert(0, format!("From: {from}"));
    }
    if let Content::One(notice) = &message.content {
        lines.push(format!("X-Cronlatch-Job: {}", notice.job));
        lines.push(format!("X-Cronlatch-Event: {}", notice.event.word()));
    }
    lines.push(String::new());
    let headline = text::headline(message);
    lines.extend(short_lines(&headline));
    if let Content::One(notice) = &message.content {
        if let Some(run) = &notice.run_id {
            lines.push(format!("run {}", run.as_str()));
        }
        if let Some(output) = text::output(message) {
            lines.push(String::new());
            lines.push("The last lines of output:".to_owned());
            lines.push(String::new());
            // A mail may have a `\r` only at the end of a line (RFC 5322, 2.3).
            lines.extend(output.split(['\n', '\r']).flat_map(short_lines));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// A line in pieces that a mail may have.
fn short_lines(line: &str) -> impl Iterator<Item = String> {
    let mut rest = line;
    let mut pieces = Vec::new();
    loop {
        let cuts = (0..=rest.len().min(LINE_MAX)).rev();
        let cut = cuts
            .into_iter()
            .find(|at| rest.is_char_boundary(*at))
            .unwrap_or_default();
        let (piece, tail) = rest.split_at(cut);
        pieces.push(piece.to_owned());
        rest = tail;
        if rest.is_empty() {
            return pieces.into_iter();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_characters() {
        let pieces: Vec<String> = short_lines(&"ä".repeat(1000)).collect();
        assert!(pieces.iter().all(|piece| piece.len() <= LINE_MAX));
        assert_eq!(pieces.concat(), "ä".repeat(1000));
        assert_eq!(short_lines("").collect::<Vec<_>>(), [""]);
    }
}
