//! How long the scripts of an occurrence hold the server, next to the shortest time that any
//! rejection takes.

use cronlatch::store::{self, Claim, ClaimReply, Finish, RunStatus, Store};

use crate::claim::granted_with;
use crate::crowd;
use crate::requests::occurrence;
use crate::say;
use crate::surroundings::{Redis, runtime};

const ROUNDS: i64 = 5_000;
/// What a script calls that finds a decided occurrence and does nothing else.
const FLOOR: &str = "redis.call('TIME') redis.call('HGET', KEYS[1], 'last') return 1";
const LEDGER: &str = "cronlatch:{bench}:job:bench";
/// The keys of the scripts below: the lock, its state, the ledger, the history, and the marker of the store.
const KEYS: [&str; 5] = [
    "cronlatch:{bench}:lock",
    "cronlatch:{bench}:state",
    LEDGER,
    "cronlatch:{bench}:runs:bench",
    "cronlatch:store",
];
/// The commands of a claim that wins, and of a finish, with the same fields and none of the rules. No script that
/// reads and writes the same fields can take less time.
const CLAIM_ALONE: &str = "
    redis.call('TIME')
    redis.call('HMGET', KEYS[3], 'last', 'status', 'waiting', 'moved', 'fingerprints')
    redis.call('HMGET', KEYS[3], 'beyond', 'unacknowledged', 'pauses')
    redis.call('HMGET', KEYS[2], 'fence', 'token', 'lease_end', 'finished')
    redis.call('GET', KEYS[1])
    redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 0)
    redis.call('HMGET', KEYS[5], 'format', 'run_id', 'lost_at', 'until', 'longest', 'replid')
    redis.call('INFO', 'server', 'replication')
    redis.call('HSET', KEYS[3], 'last', ARGV[1], 'status', 'open', 'run_id', ARGV[2], 'token', ARGV[3],
      'attempt', '1', 'kind', 'schedule', 'fence', ARGV[1], 'started_at', ARGV[1], 'host', 'bench',
      'scheduled_at', ARGV[1], 'terms', '1700000000000 0 0 0 0 0')
    redis.call('PEXPIRE', KEYS[3], '2592000000')
    redis.call('HSET', KEYS[2], 'token', ARGV[3], 'lease_end', ARGV[1], 'run_id', ARGV[2], 'fence', ARGV[1])
    redis.call('PEXPIRE', KEYS[2], '2592000000')
    redis.call('SET', KEYS[1], ARGV[3], 'PX', '30000')
    return 1";
const FINISH_ALONE: &str = "
    redis.call('TIME')
    redis.call('HMGET', KEYS[3], 'last', 'status', 'token', 'fingerprints', 'attempt', 'fence',
      'started_at', 'scheduled_at', 'run_id', 'kind', 'host', 'terms', 'waiting', 'moved', 'beyond',
      'pauses', 'summary')
    redis.call('HMGET', KEYS[2], 'token', 'fence', 'lease_end', 'finished')
    redis.call('GET', KEYS[1])
    redis.call('XADD', KEYS[4], 'MAXLEN', '=', '100', '*', unpack(ARGV, 6))
    redis.call('PEXPIRE', KEYS[4], '2592000000')
    redis.call('HSET', KEYS[3], 'status', 'idle', 'summary', ARGV[4])
    redis.call('PEXPIRE', KEYS[3], '2592000000')
    redis.call('HDEL', KEYS[2], 'token', 'lease_end', 'run_id')
    redis.call('HSET', KEYS[2], 'finished', ARGV[5])
    redis.call('PEXPIRE', KEYS[2], '2592000000')
    redis.call('DEL', KEYS[1])
    redis.call('PUBLISH', 'cronlatch:{bench}:released', ARGV[3])
    return 1";

pub(crate) fn measure() -> Result<(), String> {
    let redis = Redis::start()?;
    let url = redis.url();
    runtime()?.block_on(async {
        let settings = store::check_url(&url)?;
        let store = store::open(&settings).map_err(|e| e.to_string())?;
        let client = redis::Client::open(url).map_err(|e| e.to_string())?;
        let raw = client.get_multiplexed_async_connection().await;
        let mut server = Server(raw.map_err(|e| e.to_string())?);
        let mut took = Took::default();
        // A thousand rounds to warm up.
        for round in 0..ROUNDS + 1_000 {
            if round == 1_000 {
                took = Took::default();
            }
            let (claim, finish) = occurrence(round + 2_000)?;
            took.round(&*store, &mut server, (claim, finish)).await?;
        }
        let floor = server.floor().await?;
        let (claim_alone, finish_alone) = server.commands_alone().await?;
        let show = |what: &str, sum: f64, goal: f64| {
            #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
            let each = sum / ROUNDS as f64;
            say(&format!(
                "script: {what:40}{each:8.1} µs   the least      {floor:8.1} µs   {:.1} times (goal {goal} µs)",
                each / floor
            ));
        };
        show("claim granted", took.granted, 20.0);
        show("claim of a run", took.running, 6.0);
        show("claim decided", took.decided, 6.0);
        show("asked: running", took.asked_running, 6.0);
        show("asked: decided", took.asked_decided, 6.0);
        show("asked in vain", took.asked_in_vain, 6.0);
        show("finish", took.finish, 15.0);
        show("commands of a claim that wins, no rules", claim_alone, 20.0);
        show("commands of a finish, no rules", finish_alone, 15.0);
        Ok::<_, String>(())
    })?;
    crowd::measure()
}

/// Microseconds inside the server, of all rounds together.
#[derive(Default)]
struct Took {
    granted: f64,
    running: f64,
    decided: f64,
    /// The question before a claim: while the job runs, afterwards, and before anybody has claimed.
    asked_running: f64,
    asked_decided: f64,
    asked_in_vain: f64,
    finish: f64,
}

impl Took {
    /// One host wins; another one asks while the job runs, and a third when it has ended.
    async fn round(
        &mut self,
        store: &dyn Store,
        server: &mut Server,
        (claim, mut finish): (Claim, Finish),
    ) -> Result<(), String> {
        let failed = |e: store::StoreError| e.to_string();
        let other = || -> Result<Claim, String> {
            let (mut claim, by) = (claim.clone(), occurrence(0)?.0);
            (claim.token, claim.run_id) = (by.token, by.run_id);
            Ok(claim)
        };
        let (second, third) = (other()?, other()?);
        server.reset().await?;
        let known = store.already_claimed(&second).await.map_err(failed)?;
        self.asked_in_vain += server.spent().await?;
        expect(&known, known.is_none())?;
        let reply = store.claim(&claim).await.map_err(failed)?;
        self.granted += server.spent().await?;
        expect(&reply, granted_with(&reply, &mut finish))?;
        let reply = store.claim(&second).await.map_err(failed)?;
        self.running += server.spent().await?;
        let is_running = |status: &RunStatus| *status != RunStatus::Decided;
        expect(
            &reply,
            matches!(&reply, ClaimReply::AlreadyClaimed(status) if is_running(status)),
        )?;
        let known = store.already_claimed(&second).await.map_err(failed)?;
        self.asked_running += server.spent().await?;
        expect(&known, known.as_ref().is_some_and(is_running))?;
        store.finish(&finish).await.map_err(failed)?;
        self.finish += server.spent().await?;
        let reply = store.claim(&third).await.map_err(failed)?;
        self.decided += server.spent().await?;
        expect(
            &reply,
            reply == ClaimReply::AlreadyClaimed(RunStatus::Decided),
        )?;
        let known = store.already_claimed(&third).await.map_err(failed)?;
        self.asked_decided += server.spent().await?;
        expect(&known, known == Some(RunStatus::Decided))
    }
}

fn expect(reply: &impl std::fmt::Debug, as_wanted: bool) -> Result<(), String> {
    as_wanted
        .then_some(())
        .ok_or_else(|| format!("not the reply that is measured: {reply:?}"))
}

/// Asks the server how long its scripts took.
pub(crate) struct Server(pub(crate) redis::aio::MultiplexedConnection);

impl Server {
    pub(crate) async fn reset(&mut self) -> Result<(), String> {
        let mut command = redis::cmd("CONFIG");
        let done = command.arg("RESETSTAT").query_async(&mut self.0);
        done.await.map_err(|e| e.to_string())
    }

    /// The microseconds of all script calls since the last look.
    pub(crate) async fn spent(&mut self) -> Result<f64, String> {
        let stats: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut self.0)
            .await
            .map_err(|e| e.to_string())?;
        self.reset().await?;
        let of = |line: &str| {
            let fields = line.strip_prefix("cmdstat_eval")?;
            fields
                .split_once("usec=")?
                .1
                .split(',')
                .next()?
                .parse()
                .ok()
        };
        let all: Vec<f64> = stats.lines().filter_map(of).collect();
        Ok(all.iter().sum())
    }

    /// The seconds of processor time that the thread which runs commands has had so far.
    pub(crate) async fn processor(&mut self) -> Result<f64, String> {
        let stats: String = redis::cmd("INFO")
            .arg("cpu")
            .query_async(&mut self.0)
            .await
            .map_err(|e| e.to_string())?;
        let of = |line: &str| {
            let (name, seconds) = line.split_once(':')?;
            let is_main = name.starts_with("used_cpu_") && name.ends_with("_main_thread");
            seconds.trim().parse().ok().filter(|_: &f64| is_main)
        };
        Ok(stats.lines().filter_map(of).sum())
    }

    /// The same of the commands of claims and finishes, in turn, with the texts that the last round has left.
    async fn commands_alone(&mut self) -> Result<(f64, f64), String> {
        let failed = |e: redis::RedisError| e.to_string();
        let field = |key: &str, field: &str| redis::Cmd::hget(key, field);
        let summary: String = field(LEDGER, "summary")
            .query_async(&mut self.0)
            .await
            .map_err(failed)?;
        let finished: String = field(KEYS[1], "finished")
            .query_async(&mut self.0)
            .await
            .map_err(failed)?;
        let mut newest = redis::cmd("XREVRANGE");
        newest.arg(KEYS[3]).arg("+").arg("-").arg("COUNT").arg(1);
        let newest: Vec<(String, Vec<String>)> =
            newest.query_async(&mut self.0).await.map_err(failed)?;
        let record = newest.into_iter().next().ok_or("no record")?.1;
        let (claim, _) = occurrence(0)?;
        let number = "1700000000000";
        let texts = [number, claim.run_id.as_str(), claim.token.as_str()];
        let scripts = [CLAIM_ALONE, FINISH_ALONE].map(redis::Script::new);
        let mut sums = [0.0; 2];
        for round in 0..ROUNDS + 1_000 {
            for (script, sum) in scripts.iter().zip(&mut sums) {
                if round == 1_000 {
                    *sum = 0.0;
                }
                let mut call = script.prepare_invoke();
                call.key(&KEYS[..]).arg(&texts[..]);
                call.arg(&summary).arg(&finished).arg(&record);
                let done = call.invoke_async::<i64>(&mut self.0);
                done.await.map_err(failed)?;
                *sum += self.spent().await?;
            }
        }
        Ok((sums[0], sums[1]))
    }

    async fn floor(&mut self) -> Result<f64, String> {
        let script = redis::Script::new(FLOOR);
        let mut sum = 0.0;
        for round in 0..ROUNDS + 1_000 {
            if round == 1_000 {
                self.reset().await?;
                sum = 0.0;
            }
            let call = script.key(LEDGER);
            let done = call.invoke_async::<i64>(&mut self.0);
            done.await.map_err(|e| e.to_string())?;
            sum += self.spent().await?;
        }
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        Ok(sum / ROUNDS as f64)
    }
}
