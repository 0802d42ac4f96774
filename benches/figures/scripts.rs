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
        let show = |what: &str, sum: f64, goal: f64| {
            #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
            let each = sum / ROUNDS as f64;
            say(&format!(
                "script: {what:16}{each:8.1} µs   the least      {floor:8.1} µs   {:.1} times (goal {goal} µs)",
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
