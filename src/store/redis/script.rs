//! The scripts: each is the text of one operation behind the parts that it shares with others.
//! Servers know them by their digests.

use redis::Cmd;

use super::codec::call::Call;

const CLOCK: &str = include_str!("scripts/clock.lua");
const TOKEN: &str = include_str!("scripts/token.lua");
const KEEPING: &str = include_str!("scripts/keeping.lua");
const BASE: &str = include_str!("scripts/base.lua");
const LOCK: &str = include_str!("scripts/lock.lua");
const JOB: &str = include_str!("scripts/job.lua");
const HISTORY: &str = include_str!("scripts/history.lua");
const SUMMARY: &str = include_str!("scripts/summary.lua");

/// The format of the keys, which the scripts write into the marker of the store.
pub(super) const FORMAT: &str = "1";

/// A Lua script and its digest. Its text is put together when a server needs it: servers usually know it, and all
/// texts would take half a megabyte.
pub(super) struct Script {
    parts: Vec<&'static str>,
    digest: String,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Script").field(&self.digest).finish()
    }
}

/// Whether a script may run under `maxmemory`.
#[derive(Clone, Copy)]
enum Flags {
    /// Rejected when memory is full, because it needs more.
    Ordinary,
    /// Runs when memory is full. Otherwise all leases would expire at once, and none could be released.
    AllowOom,
    /// Writes nothing.
    ReadOnly,
}

impl Script {
    fn new(flags: Flags, parts: &[&'static str], operation: &'static str) -> Self {
        let shebang = match flags {
            Flags::Ordinary => "#!lua",
            Flags::AllowOom => "#!lua flags=allow-oom",
            Flags::ReadOnly => "#!lua flags=no-writes",
        };
        Self::of(&[&[shebang, CLOCK, TOKEN, KEEPING, BASE], parts, &[operation]].concat())
    }

    fn of(parts: &[&'static str]) -> Self {
        let parts = parts.to_vec();
        let digest = redis::Script::new(&text_of(&parts)).get_hash().to_owned();
        Self { parts, digest }
    }

    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    pub(super) fn by_digest(&self, call: &Call) -> Cmd {
        command("EVALSHA", &self.digest, call)
    }

    pub(super) fn in_full(&self, call: &Call) -> Cmd {
        command("EVAL", &text_of(&self.parts), call)
    }
}

/// The text of a script that has these parts, without comments and indentation, a third of it, which a slow connection
/// would carry while claims wait. Each line stays where it is, so that an error names the line of the source.
fn text_of(parts: &[&str]) -> String {
    let text = parts.join("\n");
    let lines = text.lines().map(str::trim_start);
    let lines = lines.map(|line| if line.starts_with("--") { "" } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

fn command(name: &str, script: &str, call: &Call) -> Cmd {
    let args = call.args();
    let words = 3 + call.keys().len() + args.len();
    let mut command = Cmd::with_capacity(words, name.len() + script.len() + 20 + call.size());
    command.arg(name).arg(script).arg(call.keys().len());
    for key in call.keys() {
        command.arg(key);
    }
    for arg in args {
        command.arg(arg);
    }
    command
}

/// All scripts of the store.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) claim: Script,
    pub(super) already_claimed: Script,
    pub(super) renew: Script,
    pub(super) reassert: Script,
    pub(super) finish: Script,
    pub(super) settle: Script,
    pub(super) pause: Script,
    pub(super) attempt: Script,
    pub(super) register: Script,
    pub(super) announce: Script,
    pub(super) init: Script,
    pub(super) condition: Script,
    pub(super) now: Script,
    /// Writes nothing, and is rejected when the server takes no writes.
    pub(super) writable: Script,
    pub(super) jobs: Script,
    pub(super) hosts: Script,
    pub(super) begin: Script,
    pub(super) listings: Script,
    pub(super) enlist: Script,
    pub(super) listed: Script,
    pub(super) listed_jobs: Script,
    /// The same, for reading only.
    pub(super) read_listed_jobs: Script,
    pub(super) forget: Script,
    pub(super) unlist: Script,
    pub(super) keep: Script,
    pub(super) manual: Script,
    pub(super) requests: Script,
    /// The same, for listing only.
    pub(super) list_requests: Script,
    pub(super) output: Script,
    pub(super) ledger: Script,
    pub(super) replace: Script,
    pub(super) returned: Script,
    pub(super) unacknowledged: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        use Flags::{AllowOom, Ordinary, ReadOnly};
        let all = &[LOCK, JOB, HISTORY, SUMMARY];
        Self {
            claim: Script::of(&[
                "#!lua",
                CLOCK,
                TOKEN,
                include_str!("scripts/settled.lua"),
                KEEPING,
                include_str!("scripts/granted.lua"),
                BASE,
                LOCK,
                JOB,
                HISTORY,
                SUMMARY,
                include_str!("scripts/claim.lua"),
            ]),
            // Needs none of the common parts.
            already_claimed: Script::of(&["#!lua", include_str!("scripts/already_claimed.lua")]),
            renew: Script::new(AllowOom, &[], include_str!("scripts/renew.lua")),
            reassert: Script::new(AllowOom, all, include_str!("scripts/reassert.lua")),
            finish: Script::of(&[
                "#!lua flags=allow-oom",
                CLOCK,
                TOKEN,
                KEEPING,
                include_str!("scripts/ended.lua"),
                BASE,
                LOCK,
                JOB,
                HISTORY,
                SUMMARY,
                include_str!("scripts/finish.lua"),
            ]),
            settle: Script::new(Ordinary, all, include_str!("scripts/settle.lua")),
            pause: Script::new(AllowOom, &[LOCK, JOB], include_str!("scripts/pause.lua")),
            attempt: Script::new(AllowOom, &[JOB], include_str!("scripts/attempt.lua")),
            register: Script::new(Ordinary, &[LOCK, JOB], include_str!("scripts/register.lua")),
            announce: Script::new(Ordinary, &[], include_str!("scripts/announce.lua")),
            init: Script::new(Ordinary, &[], include_str!("scripts/init.lua")),
            condition: Script::new(ReadOnly, &[], include_str!("scripts/condition.lua")),
            now: Script::new(ReadOnly, &[], include_str!("scripts/now.lua")),
            writable: Script::new(Ordinary, &[], include_str!("scripts/now.lua")),
            jobs: Script::new(ReadOnly, &[LOCK, JOB], include_str!("scripts/jobs.lua")),
            hosts: Script::new(ReadOnly, &[], include_str!("scripts/hosts.lua")),
            begin: Script::new(Ordinary, &[LOCK, JOB], include_str!("scripts/begin.lua")),
            listings: Script::new(ReadOnly, &[], include_str!("scripts/listings.lua")),
            enlist: Script::new(Ordinary, &[], include_str!("scripts/enlist.lua")),
            listed: Script::new(Ordinary, &[], include_str!("scripts/listed.lua")),
            listed_jobs: Script::new(Ordinary, &[], include_str!("scripts/listed_jobs.lua")),
            read_listed_jobs: Script::new(ReadOnly, &[], include_str!("scripts/listed_jobs.lua")),
            ledger: Script::new(ReadOnly, &[LOCK, JOB], include_str!("scripts/ledger.lua")),
            replace: Script::new(Ordinary, &[LOCK, JOB], include_str!("scripts/replace.lua")),
            forget: Script::new(AllowOom, &[LOCK], include_str!("scripts/forget.lua")),
            unlist: Script::new(AllowOom, &[], include_str!("scripts/unlist.lua")),
            keep: Script::new(AllowOom, &[], include_str!("scripts/keep.lua")),
            // A script with `no-writes` may not publish.
            returned: Script::new(AllowOom, &[], include_str!("scripts/returned.lua")),
            // A run must be killed also when memory is full.
            requests: Script::new(AllowOom, &[], include_str!("scripts/requests.lua")),
            list_requests: Script::new(ReadOnly, &[], include_str!("scripts/requests.lua")),
            output: Script::new(Ordinary, &[], include_str!("scripts/output.lua")),
            manual: Script::new(Ordinary, &[], include_str!("scripts/manual.lua")),
            unacknowledged: Script::new(AllowOom, all, include_str!("scripts/unacknowledged.lua")),
        }
    }
}

/// The scripts of one node among several.
#[derive(Debug)]
pub(super) struct NodeScripts {
    pub(super) prepare: Script,
    pub(super) accept: Script,
    pub(super) withdraw: Script,
    pub(super) extend: Script,
    pub(super) declare: Script,
    pub(super) standing: Script,
    pub(super) backfill: Script,
}

impl NodeScripts {
    pub(super) fn new() -> Self {
        // A finish is a proposal too, so none of them may fail when memory is full.
        let node = include_str!("scripts/node.lua");
        let script =
            |operation: &'static str| Script::new(Flags::AllowOom, &[HISTORY, node], operation);
        Self {
            prepare: script(include_str!("scripts/prepare.lua")),
            accept: script(include_str!("scripts/accept.lua")),
            withdraw: script(include_str!("scripts/withdraw.lua")),
            extend: script(include_str!("scripts/extend.lua")),
            declare: script(include_str!("scripts/declare.lua")),
            standing: Script::new(Flags::ReadOnly, &[], include_str!("scripts/standing.lua")),
            // Its records can wait until there is memory.
            backfill: Script::new(
                Flags::Ordinary,
                &[HISTORY],
                include_str!("scripts/backfill.lua"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_write_the_format_that_readers_accept() {
        assert!(TOKEN.contains(&format!("local FORMAT = {FORMAT}\n")));
    }
}
