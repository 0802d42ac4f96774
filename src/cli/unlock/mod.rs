//! `cronlatch unlock`: releases a lock whose holder is gone.

mod holder;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use serde::Serialize;

use super::exec::lock_key;
use super::pause::parse_reason;
use super::request::note;
use super::requester::requester;
use super::unknown_job::unknown_lock;
use super::{Failure, Target, output};
use crate::config::JobList;
use crate::names::{HostName, LockName, Token};
use crate::observe::plain_line;
use crate::store::protocol::OTHER_TYPE;
use crate::store::{Finish, FinishReply, Intervention, Outcome, Record, Store};
use holder::{Holder, Sign, UsedLock, holder_of, look_for_life};

/// Options of `unlock`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "cronlatch unlock [OPTIONS] <NAME|--key <KEY>>",
    after_help = "Exit codes: 0 when the lock was released or is free; 64 when neither the list nor \
                  the store has a lock of this name, or a question is needed and there is no \
                  terminal; 69 when the store does not reply; 75 when nothing was \
                  released."
)]
pub(super) struct Args {
    /// The lock: its name, or a job of the list that uses it
    #[arg(value_name = "NAME", required_unless_present = "key")]
    name: Option<LockName>,
    /// The Redis key of a lock that applications take with SET key token NX PX
    #[arg(long, value_name = "KEY", conflicts_with = "name", value_parser = lock_key)]
    key: Option<String>,
    /// Release the lock even if its holder is alive. The run is killed once its host notices, within
    /// a third of its ttl; until then another run may start
    #[arg(long)]
    force: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Why, for `status` and the history
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// `unlock --json`.
#[derive(Debug, Serialize)]
struct UnlockReport<'a> {
    lock: &'a str,
    released: bool,
    /// The value of the lock, a token of cronlatch without its random part; `null` if it is free.
    holder: Option<String>,
    /// The job whose run had the lock, as far as the list names it.
    job: Option<&'a str>,
    run_id: Option<&'a str>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let host = args.target.host()?;
    let list = args.target.list_if_any()?;
    let settings = args.target.settings(list.as_ref())?;
    args.target.warn_about_store(&settings);
    let used = match (&args.key, &args.name) {
        (Some(key), _) => UsedLock::raw(key, list.as_ref(), &host),
        (None, Some(name)) => UsedLock::named(name, list.as_ref(), &host)?,
        (None, None) => return Err(Failure::Usage("name a lock, or use --key".to_owned())),
    };
    let held = output::ask(async {
        let store = args.target.open_existing(list.as_ref(), &settings)?;
        let Some(holder) = holder_of(&*store, &used).await? else {
            return Ok(None);
        };
        refuse_other_type(&used, &holder)?;
        if !args.force {
            refuse_while_alive(&*store, &used, &holder).await?;
        }
        if !args.yes {
            confirm(&used, &holder)?;
        }
        release(&*store, &used, &holder, args.why(&host)).await?;
        let why = (requester(&host), args.reason.clone().unwrap_or_default());
        let what = (Intervention::Unlock, used.lock.name.clone());
        note(&*store, what, why).await;
        Ok(Some(holder))
    })?;
    let shown = settings.shown();
    if held.is_none() {
        args.doubt(list.as_ref(), &used, &shown)?;
        args.target.warn_if_guessed(list.as_ref(), &settings);
    }
    output::print(&if args.json {
        output::json_lines([report(&used, held.as_ref())])?
    } else {
        for_people(&used, held.as_ref(), &shown)
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// A lock that nobody holds may be a mistyped name, or one of another store: fails if the list
    /// does not have the name.
    fn doubt(&self, list: Option<&JobList>, used: &UsedLock, store: &str) -> Result<(), Failure> {
        match (list, &self.name) {
            (Some(list), Some(name)) if !used.is_listed => Err(unknown_lock(name, list, store)),
            _ => Ok(()),
        }
    }

    /// Who releases the lock, and why.
    fn why(&self, host: &HostName) -> Release {
        let who = requester(host);
        let reason = match &self.reason {
            Some(reason) => format!("its lock was released by {who}: {reason}"),
            None => format!("its lock was released by {who}"),
        };
        Release { who, reason }
    }
}

/// Who intervenes, and what the record says about it.
#[derive(Debug)]
struct Release {
    who: String,
    reason: String,
}

/// Fails if the key is none that a lock can be.
fn refuse_other_type(used: &UsedLock, holder: &Holder) -> Result<(), Failure> {
    if holder.value != OTHER_TYPE {
        return Ok(());
    }
    Err(Failure::NotAcquired(format!(
        "lock {}: another program has written its key, as a value of a type that no lock has; \
         nothing was released\nhelp: find out which program uses this key, then delete the key \
         with redis-cli",
        used.lock.name
    )))
}

/// Fails while there is a sign of life of the holder.
async fn refuse_while_alive(
    store: &dyn Store,
    used: &UsedLock,
    holder: &Holder,
) -> Result<(), Failure> {
    let why = match look_for_life(store, used, holder).await? {
        Sign::None => return Ok(()),
        Sign::Alive(why) => why,
        Sign::Gone => {
            return Err(Failure::NotAcquired(format!(
                "lock {}: {} has just released it, or lost it; this command released nothing\n\
                 help: run the command again to see who holds it now",
                used.lock.name, holder.by
            )));
        }
    };
    let by_kill = match &holder.run {
        Some((job, _)) => format!(" with `cronlatch kill {job}`"),
        None => format!(" on {}", holder.by),
    };
    Err(Failure::NotAcquired(format!(
        "lock {} is held by {}, and {why}; nothing was released\nhelp: wait until the run has \
         ended, or end it{by_kill}. --force releases the lock now: the run is killed once its \
         host notices, and until then another one may start",
        used.lock.name,
        holder.shown()
    )))
}

/// Asks on the terminal. Fails without a terminal, and unless the reply is yes.
fn confirm(used: &UsedLock, holder: &Holder) -> Result<(), Failure> {
    let name = &used.lock.name;
    let question = format!("lock {name} is held by {}", holder.shown());
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::Usage(format!(
            "{question}\nhelp: there is no terminal to ask on; add --yes to release the lock"
        )));
    }
    let mut stderr = anstream::stderr().lock();
    let mut reply = String::new();
    write!(stderr, "{}\nRelease it? [y/N] ", plain_line(&question))
        .and_then(|()| stderr.flush())
        .map_err(|error| Failure::Output(format!("cannot write to the terminal: {error}")))?;
    let read = stdin.read_line(&mut reply);
    read.map_err(|error| Failure::Internal(format!("cannot read the reply: {error}")))?;
    match reply.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::NotAcquired("nothing was released".to_owned())),
    }
}

/// Closes the holder's run, with a record, and releases the lock by its value: a host that has taken
/// it meanwhile keeps it.
async fn release(
    store: &dyn Store,
    used: &UsedLock,
    holder: &Holder,
    why: Release,
) -> Result<(), Failure> {
    let token = Token::from_text(&holder.value);
    let finish = match &holder.run {
        Some((job, open)) => Finish {
            job: Some(job.clone()),
            record: Some(Record {
                job: job.clone(),
                run_id: Some(open.run_id.clone()),
                kind: open.kind,
                scheduled_at: open.scheduled_at,
                until: None,
                count: None,
                started_at: Some(open.started_at),
                finished_at: Some(store.now().await?),
                host: HostName::parse(&open.host).ok(),
                outcome: Outcome::Interrupted,
                reason: Some(why.reason),
                by: Some(why.who),
                exit_code: None,
                signal: None,
                attempts: open.attempt,
                fence: Some(open.fence),
                output_tail: None,
                usage: None,
            }),
            keep: used.keep,
            ..Finish::of_lock(used.lock.clone(), token)
        },
        None => Finish::of_lock(used.lock.clone(), token),
    };
    match store.finish(&finish).await? {
        FinishReply::Released | FinishReply::Moved { .. } => Ok(()),
        FinishReply::Lost => Err(Failure::NotAcquired(format!(
            "lock {}: {} has just released it, or lost it; this command released nothing\nhelp: \
             run the command again to see who holds it now",
            used.lock.name, holder.by
        ))),
    }
}

fn report<'a>(used: &'a UsedLock, held: Option<&'a Holder>) -> UnlockReport<'a> {
    let run = held.and_then(|holder| holder.run.as_ref());
    UnlockReport {
        lock: &used.lock.name,
        released: held.is_some(),
        holder: held.map(|holder| Token::from_text(&holder.value).redacted()),
        job: run.map(|(job, _)| job.as_str()),
        run_id: run.map(|(_, open)| open.run_id.as_str()),
    }
}

fn for_people(used: &UsedLock, held: Option<&Holder>, store: &str) -> String {
    let name = &used.lock.name;
    let Some(holder) = held else {
        return format!("lock {name} is free in {store}\n");
    };
    let record = match &holder.run {
        Some((job, open)) => format!(
            "; run {} of job {job} is recorded as interrupted",
            open.run_id
        ),
        None => String::new(),
    };
    format!(
        "lock {name} is released; it was held by {}{record}\n",
        holder.by
    )
}
