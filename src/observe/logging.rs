//! Logging through tracing-subscriber: to the journal by its native protocol if standard error is connected
//! to it, else to standard error.

use std::fmt;
use std::io::{IsTerminal as _, Write as _};

use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::journal::{Journal, priority};
use super::stderr::Stderr;

/// How to log.
#[derive(Debug, Clone, clap::Args)]
pub struct LogArgs {
    /// Format of the log
    #[arg(
        long,
        global = true,
        value_name = "FORM",
        default_value = "text",
        hide_short_help = true,
        help_heading = "Log"
    )]
    pub log_format: LogFormat,
    /// Minimum log level; `RUST_LOG` takes finer filters [default: info]
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        hide_short_help = true,
        help_heading = "Log"
    )]
    pub log_level: Option<LogLevel>,
}

/// Format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Readable text.
    Text,
    /// One JSON object per line.
    Json,
}

/// The minimum level to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Problems that need action.
    Error,
    /// Problems that may need action.
    Warn,
    /// The start and the end of each run.
    Info,
    /// Decisions and their reasons.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// What is never logged: the URLs and headers of notifications, which the library logs when it is
/// asked for details, are secrets.
const HIDDEN: &str = ",ureq=warn,ureq_proto=warn";

impl LogArgs {
    /// Sends the log to the journal or to standard error, as these options and the service manager say.
    /// Once per process; a later call changes nothing.
    pub fn start(&self) {
        if self.log_format == LogFormat::Text
            && is_journal()
            && is_socket()
            && let Ok(journal) = Journal::open()
        {
            let registry = tracing_subscriber::registry().with(self.filter());
            // As below.
            drop(registry.with(journal).try_init());
            return;
        }
        let colours = self.log_format == LogFormat::Text && !is_journal() && wants_colour();
        let registry = tracing_subscriber::registry().with(self.filter());
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(move || Stderr { colours })
            .with_target(false);
        let started = match self.log_format {
            LogFormat::Json => {
                let lines = lines.json().flatten_event(true);
                let lines = lines.with_current_span(false).with_span_list(false);
                registry.with(lines).try_init()
            }
            LogFormat::Text if is_journal() => {
                let lines = lines.with_ansi(false).event_format(ForJournal::new());
                registry.with(lines).try_init()
            }
            LogFormat::Text => registry.with(lines.with_ansi(colours)).try_init(),
        };
        // A test, or a program that uses the library, may have set a subscriber before.
        drop(started);
    }

    /// Our own lines from the wanted level on, those of libraries from `warn` on. Unless a level was asked for
    /// explicitly, `RUST_LOG` comes after and wins for the targets that it names: a level without a target is
    /// for libraries.
    fn filter(&self) -> Targets {
        let level = self.log_level.unwrap_or(LogLevel::Info).as_str();
        let least = if self.log_level == Some(LogLevel::Off) {
            "off"
        } else {
            "warn"
        };
        let ours = format!("{least},cronlatch={level}");
        let rust_log = std::env::var("RUST_LOG").unwrap_or_default();
        let wanted = match (self.log_level, rust_log.as_str()) {
            (_, "") => ours.clone(),
            (None, said) => format!("{ours},{said}"),
            (Some(_), said) => format!("{said},{ours}"),
        };
        let wanted = format!("{wanted}{HIDDEN}");
        targets(&wanted).unwrap_or_else(|error| {
            // Without a panic if nobody reads it.
            let mut stderr = anstream::stderr().lock();
            let _ = writeln!(stderr, "ignoring RUST_LOG, which is not valid: {error}");
            targets(&ours).unwrap_or_default()
        })
    }
}

/// The filter of directives such as `info`, `cronlatch::engine=debug` or `redis`, separated by commas; of two
/// for the same target the later one wins. Spans cannot be named, because the program has none. That
/// needs no regular expressions, which are half a megabyte of code.
fn targets(text: &str) -> Result<Targets, ParseError> {
    let directives = text.split(',').map(str::trim).filter(|d| !d.is_empty());
    let full = directives.map(|directive| match directive.strip_suffix('=') {
        Some(target) => format!("{target}=trace"),
        None => directive.to_owned(),
    });
    full.collect::<Vec<_>>().join(",").parse()
}

fn wants_colour() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Whether standard error goes directly to the journal. systemd names the device and inode of the
/// stream that it connected, so a redirected one is recognised (systemd.exec(5), `JOURNAL_STREAM`).
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    nix::sys::stat::fstat(std::io::stderr())
        .is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Whether standard error is a socket, as the stream that journald serves.
fn is_socket() -> bool {
    nix::sys::stat::fstat(std::io::stderr())
        .is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFSOCK)
}

/// Lines for the journal where its native protocol cannot be used. The journal has its own timestamps: the level as `<N>` in front, as
/// sd-daemon(3) has it, then the message.
struct ForJournal(Format<Full, ()>);

impl ForJournal {
    fn new() -> Self {
        Self(
            tracing_subscriber::fmt::format()
                .without_time()
                .with_level(false)
                .with_target(false),
        )
    }
}

impl<S, N> FormatEvent<S, N> for ForJournal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_names_targets_and_levels_and_the_later_one_wins() {
        let filter =
            targets("warn,cronlatch=info, CRONLATCH::engine=Debug,,redis,cronlatch=error,")
                .unwrap();
        assert!(filter.would_enable("tokio", &Level::WARN));
        assert!(!filter.would_enable("tokio", &Level::INFO));
        assert!(filter.would_enable("cronlatch::store", &Level::ERROR));
        assert!(!filter.would_enable("cronlatch::store", &Level::WARN));
        assert!(filter.would_enable("CRONLATCH::engine::core", &Level::DEBUG));
        assert!(filter.would_enable("redis::aio", &Level::TRACE));
    }

    #[test]
    fn a_level_is_a_number_or_nothing_as_well() {
        let filter = targets("2,cronlatch=4,ureq=").unwrap();
        assert!(filter.would_enable("tokio", &Level::WARN));
        assert!(!filter.would_enable("tokio", &Level::INFO));
        assert!(filter.would_enable("cronlatch", &Level::DEBUG));
        assert!(!filter.would_enable("cronlatch", &Level::TRACE));
        assert!(filter.would_enable("ureq", &Level::TRACE));
        assert!(targets("").is_ok());
        for wrong in [
            "cronlatch=loud",
            "cronlatch=debug=info",
            "cronlatch[{job=debug",
        ] {
            assert!(targets(wrong).is_err(), "{wrong}");
        }
    }
}
