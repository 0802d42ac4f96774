//! Notifications: which targets receive which events of a job, and how messages reach them.
//!
//! The daemon and `trigger` report facts and never wait for anything here. Nothing here changes
//! what runs.
//!
//! | file | story |
//! | --- | --- |
//! | `fact`, `notifier` | what the daemon reports, and the handle through which it does |
//! | `task` | the one task that turns facts into notices |
//! | `reading` | reads the histories that facts depend on |
//! | `decide` | pure: which events follow from a verdict and the job's history, for one target |
//! | `passing` | pure: verdicts that claims of this host recorded and their replies do not name |
//! | `overdue` | a job without success: which host sends, and when |
//! | `notice`, `notification` | an event, and a message: one event or a digest of many |
//! | `text`, `template` | a message, as sentences and as bodies of requests |
//! | `outbound` | the senders of all targets and monitoring services |
//! | `outbox`, `digest` | pure: what a target receives next, and when |
//! | `sender` | one thread a target: time-outs, three tries, a bounded end |
//! | `deliver` | over HTTP, to a program, by mail |
//! | `ping` | monitoring services that expect a request for each start and end |
//! | `sample` | what `notify-test` sends |
//!
//! **Once.** The host that recorded a verdict sends the notification; no other host knows of the
//! verdict at that moment. `after`, `repeat` and `recovered` depend on the job's history in the
//! store, so the result is the same on every host.

mod decide;
mod deliver;
mod digest;
mod fact;
mod notice;
mod notification;
mod notifier;
mod outbound;
mod outbox;
mod overdue;
mod passing;
mod ping;
mod reading;
mod sample;
mod sender;
mod task;
mod template;
mod text;

pub(crate) use fact::{NotifiedList, NotifierSetup, Role, RunBegan};
pub(crate) use notifier::{Notifier, TargetChange, recorded};
pub(crate) use outbound::threads;
pub(crate) use sample::send as send_sample;

/// How long one try to deliver a message may take.
pub(crate) const TRY: std::time::Duration = std::time::Duration::from_secs(10);

/// How long a daemon that ends waits for its messages.
pub(crate) const LAST_MESSAGES: std::time::Duration = std::time::Duration::from_secs(5);
