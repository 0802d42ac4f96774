//! Logging through tracing-subscriber: to the journal by its native protocol if standard error is connected
//! to it, else to standard error.

use std::fmt;
use std::io::IsTerminal as _;

use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::fields::plain_fields;
use super::filter::Filter;
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
    pub(super) fn filter(self) -> LevelFilter {
        match self {
            Self::Off => LevelFilter::OFF,
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }
}

impl LogArgs {
    /// Sends the log to the journal or to standard error, as these options and the service manager say.
    /// Once per process; a later call changes nothing.
    pub fn start(&self) {
        let rust_log = std::env::var_os("RUST_LOG").unwrap_or_default();
        let Filter { targets, faults } = Filter::new(self.log_level, &rust_log.to_string_lossy());
        if !faults.is_empty() {
            // By a filter of its own: `RUST_LOG` may hide warnings otherwise.
            let level = self.log_level.map_or(LevelFilter::WARN, LogLevel::filter);
            let log = self.to_destination(Targets::new().with_default(level));
            tracing::dispatcher::with_default(&log, || {
                for fault in faults {
                    tracing::warn!("{fault}");
                }
            });
        }
        // A test, or a program that uses the library, may have set a subscriber before.
        drop(self.to_destination(targets).try_init());
    }

    /// A log of what the filter lets through.
    fn to_destination(&self, filter: Targets) -> Dispatch {
        let registry = tracing_subscriber::registry().with(filter);
        if self.log_format == LogFormat::Text
            && is_journal()
            && is_socket()
            && let Ok(journal) = Journal::open()
        {
            return registry.with(journal).into();
        }
        let colours = self.log_format == LogFormat::Text && !is_journal() && wants_colour();
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(move || Stderr { colours })
            .with_target(false);
        match self.log_format {
            LogFormat::Json => {
                let lines = lines.json().flatten_event(true);
                let lines = lines.with_current_span(false).with_span_list(false);
                registry.with(lines).into()
            }
            LogFormat::Text if is_journal() => {
                let lines = lines.with_ansi(false).event_format(ForJournal::new());
                registry.with(lines.fmt_fields(plain_fields())).into()
            }
            LogFormat::Text => {
                let lines = lines.with_ansi(colours).fmt_fields(plain_fields());
                registry.with(lines).into()
            }
        }
    }
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
