//! The fields of an event in the text log.

use std::fmt::{self, Debug, Write as _};

use tracing::field::Field;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{self, Writer};

use super::plain::plain_event;

/// Writes fields as the library does, but with control characters as all text of cronlatch shows them: the
/// library has a form of its own for some of them, and lets the colours of a job pass.
pub(super) fn plain_fields() -> impl for<'a> FormatFields<'a> + 'static {
    format::debug_fn(write_field)
}

/// Writes the message, which comes first, or another field with a space before it.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let name = field.name();
    // Where in its source a library has logged, if it logs by way of the crate `log`.
    if name.starts_with("log.") {
        return Ok(());
    }
    match name.strip_prefix("r#").unwrap_or(name) {
        "message" => {}
        name if writer.has_ansi_escapes() => {
            write!(writer, " \x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?;
        }
        name => write!(writer, " {name}=")?,
    }
    write!(PlainWriter(writer), "{value:?}")
}

/// Passes text on as [`plain_event`] shows it.
struct PlainWriter<'a, W>(&'a mut W);

impl<W: fmt::Write> fmt::Write for PlainWriter<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(&plain_event(text))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(colours: bool) -> String {
        written(colours, || {
            tracing::info!(job = %"a", stream = "stdout", by = %"x\x1b[8m", "\x1b[1m\u{9b}\x07\rb");
        })
    }

    fn written(colours: bool, log: impl FnOnce()) -> String {
        let written = Written::default();
        let out = written.clone();
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(move || out.clone())
            .without_time()
            .with_level(false)
            .with_target(false)
            .with_ansi(colours)
            .fmt_fields(plain_fields());
        let subscriber = tracing_subscriber::registry().with(lines);
        tracing::subscriber::with_default(subscriber, log);
        let bytes = written.0.lock().expect("no panic").clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn control_characters_are_shown_in_the_one_way_of_all_text() {
        assert_eq!(
            logged(false),
            "\\u001b[1m\\u009b\\u0007\\u000db job=a stream=\"stdout\" by=x\\u001b[8m\n"
        );
    }

    #[test]
    fn where_a_library_has_logged_is_left_out() {
        let line = written(false, || {
            tracing::info!(log.target = "ring", r#type = 1, log.line = 7, "ready");
        });
        assert_eq!(line, "ready type=1\n");
    }

    #[test]
    fn on_a_terminal_only_the_log_itself_has_colours() {
        let line = logged(true);
        assert!(line.starts_with("\\u001b[1m"), "{line:?}");
        assert!(
            line.contains("\x1b[3mjob\x1b[0m\x1b[2m=\x1b[0ma "),
            "{line:?}"
        );
        assert!(line.contains("x\\u001b[8m"), "{line:?}");
    }
}
