//! How long a hundred hosts keep the server busy that claim a thousand jobs of the same minute.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cronlatch::store::{self, ClaimReply, Store};

use crate::claim::granted_with;
use crate::requests::occurrence_of;
use crate::say;
use crate::scripts::Server;
use crate::surroundings::{Redis, runtime};

const HOSTS: usize = 100;
const JOBS: usize = 1_000;
/// As many claims as a daemon sends at a time.
const IN_FLIGHT: usize = 64;
const GOAL: f64 = 0.8;
/// Brings a job to the state in which it stays: its history and the list of the tokens that ended are full.
const FILL: &str = "
    local record = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1][2]
    for _ = 2, 100 do redis.call('XADD', KEYS[1], '*', unpack(record)) end
    redis.call('HSET', KEYS[2], 'finished', string.rep('R0123456789abcdef\\n', 64))
    return 1";

/// The hosts claim in turn without asking, as for the first time, and as hosts do that have lost before.
pub(crate) fn measure() -> Result<(), String> {
    let redis = Redis::start()?;
    let url = redis.url();
    runtime()?.block_on(async {
        let settings = store::check_url(&url)?;
        let client = redis::Client::open(url).map_err(|e| e.to_string())?;
        let raw = client.get_multiplexed_async_connection().await;
        let mut raw = raw.map_err(|e| e.to_string())?;
        let fleet: Result<Vec<_>, _> = (0..HOSTS).map(|at| Host::new(&settings, at)).collect();
        let fleet = fleet?;
        minute(&fleet[..1], 0, false).await?;
        for job in 0..JOBS {
            let key = |what: &str| format!("cronlatch:{{job-{job}}}:{what}");
            let script = redis::Script::new(FILL);
            let mut call = script.key(key(&format!("runs:job-{job}")));
            let filled = call.key(key("state")).invoke_async::<i64>(&mut raw).await;
            filled.map_err(|e| e.to_string())?;
        }
        let mut server = Server(raw);
        minute(&fleet, 1, false).await?;
        for (n, asks) in [(2, true), (3, false), (4, true), (5, false)] {
            server.reset().await?;
            let before = server.processor().await?;
            minute(&fleet, n, asks).await?;
            let busy = server.spent().await? / 1e6;
            let all = server.processor().await? - before;
            let how = if asks { "asking first" } else { "not asking" };
            say(&format!(
                "script: {HOSTS} hosts, {JOBS} jobs, {how}: in scripts {busy:.2} s, \
                 processor time of Redis in all {all:.2} s (goal {GOAL} s)"
            ));
        }
        Ok(())
    })
}

/// A host, with a connection of its own.
struct Host {
    store: Arc<dyn Store>,
    /// Each host begins with another job.
    first: usize,
    /// Whether it has lost an occurrence of each job.
    lost: Vec<AtomicBool>,
}

impl Host {
    fn new(settings: &store::StoreSettings, at: usize) -> Result<Arc<Self>, String> {
        let store = store::open(settings).map_err(|e| e.to_string())?;
        Ok(Arc::new(Self {
            store,
            first: at * JOBS / HOSTS,
            lost: (0..JOBS).map(|_| AtomicBool::new(false)).collect(),
        }))
    }

    /// Claims the occurrence of one job, and ends its run if it wins. Returns whether it did.
    async fn fires(&self, job: usize, n: i64, asks: bool) -> Result<bool, String> {
        let failed = |e: store::StoreError| e.to_string();
        let (claim, mut finish) = occurrence_of(&format!("job-{job}"), n)?;
        let lost = &self.lost[job];
        if asks
            && lost.load(Ordering::Relaxed)
            && self
                .store
                .already_claimed(&claim)
                .await
                .map_err(failed)?
                .is_some()
        {
            return Ok(false);
        }
        let reply = self.store.claim(&claim).await.map_err(failed)?;
        let won = granted_with(&reply, &mut finish);
        lost.fetch_or(!won, Ordering::Relaxed);
        if won {
            self.store.finish(&finish).await.map_err(failed)?;
        } else if !matches!(reply, ClaimReply::AlreadyClaimed(_)) {
            return Err(format!("not the reply that is measured: {reply:?}"));
        }
        Ok(won)
    }
}

/// The `n`th minute: all hosts claim all jobs, and each job must run once.
async fn minute(fleet: &[Arc<Host>], n: i64, asks: bool) -> Result<(), String> {
    let mut claims = Vec::new();
    for host in fleet {
        let next = Arc::new(AtomicUsize::new(0));
        for _ in 0..IN_FLIGHT {
            let (host, next) = (Arc::clone(host), Arc::clone(&next));
            claims.push(tokio::spawn(async move {
                let mut won = 0;
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= JOBS {
                        return Ok::<_, String>(won);
                    }
                    let job = (host.first + job) % JOBS;
                    won += usize::from(host.fires(job, n, asks).await?);
                }
            }));
        }
    }
    let mut won = 0;
    for claim in claims {
        won += claim.await.map_err(|e| e.to_string())??;
    }
    if won == JOBS {
        Ok(())
    } else {
        Err(format!("{won} runs of {JOBS} jobs"))
    }
}
