//! The Sentinels of a store: whether they are there, agree, and could replace a dead master.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::cluster::failover;
use super::{Finding, ids};
use crate::config::Job;
use crate::ground::tasks::SpawnBoxed as _;
use crate::store::redis::{Inspector, NoAnswer};
use crate::store::{RedisSettings, SentinelSettings, StoreError};

/// What one Sentinel reports about the master.
#[derive(Debug, Default)]
struct Words {
    shown: String,
    fields: HashMap<String, String>,
}

impl Words {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.field(name).parse().ok()
    }

    fn master(&self) -> String {
        format!("{}:{}", self.field("ip"), self.field("port"))
    }
}

/// Queries every Sentinel concurrently, and checks the replies.
pub(super) async fn look(settings: &SentinelSettings, jobs: &[Arc<Job>]) -> Vec<Finding> {
    let mut asked = tokio::task::JoinSet::new();
    for sentinel in &settings.sentinels {
        let (sentinel, master) = (sentinel.clone(), settings.master.clone());
        asked.spawn_boxed(async move { (sentinel.shown(), ask(&sentinel, &master).await) });
    }
    let (mut all, mut found) = (Vec::new(), Vec::new());
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok((_, Ok(words))) => all.push(words),
            Ok((shown, Err(error))) => found.push(away(&shown, &error)),
            Err(error) => tracing::error!(
                "a check of a Sentinel failed, which is a bug: please report it with this log: {error}"
            ),
        }
    }
    found.extend(judge(&all, settings, jobs));
    found
}

async fn ask(sentinel: &RedisSettings, master: &str) -> Result<Words, StoreError> {
    let mut server = Inspector::connect(sentinel).await?;
    let refused = |what: &str| StoreError::refused(format!("{}: {what}", sentinel.shown()));
    if !server.is_sentinel().await? {
        return Err(refused("this is not a Sentinel"));
    }
    let words = match server.texts(&["SENTINEL", "MASTER", master]).await {
        Ok(words) => words,
        Err(NoAnswer::Denied) => {
            return Err(refused(
                "the user may not ask for the master (docs/stores.md has the rights)",
            ));
        }
        Err(NoAnswer::Failed(error)) => return Err(error),
    };
    let fields = words
        .chunks_exact(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()));
    Ok(Words {
        shown: sentinel.shown(),
        fields: fields.collect(),
    })
}

fn away(shown: &str, error: &StoreError) -> Finding {
    ids::SENTINELS.warning(
        shown,
        format!(
            "{error}: the others must do without it, and a majority of the listed Sentinels must \
             reply"
        ),
        "check the Sentinel and the network, and in the list its address, the master's name, the \
         password and TLS",
    )
}

fn judge(all: &[Words], settings: &SentinelSettings, jobs: &[Arc<Job>]) -> Vec<Finding> {
    let named = settings.sentinels.len();
    let mut found = Vec::new();
    for text in crate::store::StoreSettings::Sentinel(settings.clone()).warnings() {
        found.push(ids::SENTINELS.warning(&settings.master, text, "use three Sentinels or more"));
    }
    for words in all {
        let problems = weigh(words, all, named);
        if problems.is_empty() {
            let quorum = words.field("quorum");
            let text = format!("names {}, quorum {quorum} of {named}", words.master());
            found.push(ids::SENTINELS.ok(&words.shown, text));
        }
        found.extend(problems);
    }
    // The Sentinel that takes longest to notice that the master is gone decides.
    let after = |words: &Words| words.number("down-after-milliseconds");
    if let Some(millis) = all.iter().filter_map(after).max() {
        let after = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        found.push(failover(
            &settings.master,
            "down-after-milliseconds",
            after,
            jobs,
        ));
    }
    found
}

fn weigh(words: &Words, all: &[Words], named: usize) -> Vec<Finding> {
    let mut found = Vec::new();
    let agree = all.iter().filter(|other| other.master() == words.master());
    if agree.count() * 2 <= all.len() && all.len() > 1 {
        found.push(ids::SENTINELS.warning(
            &words.shown,
            format!(
                "it reports {} as the master, and most Sentinels report another",
                words.master()
            ),
            "check whether it was cut off; `SENTINEL RESET` makes it search again",
        ));
    }
    if words.field("flags").contains("_down") {
        found.push(ids::SENTINELS.warning(
            &words.shown,
            format!("it reports that the master {} is down", words.master()),
            "check that server, and the network between the two",
        ));
    }
    let known = words.number("num-other-sentinels").map(|others| others + 1);
    if let (Some(known), Some(quorum)) = (known, words.number("quorum"))
        && quorum > known
    {
        found.push(ids::SENTINELS.danger(
            &words.shown,
            format!(
                "its quorum is {quorum}, and it knows {known} Sentinels: a dead master is never \
                 replaced"
            ),
            "`SENTINEL SET` the quorum to a majority of them, or bring the others back",
        ));
    }
    if let Some(known) = known.filter(|known| *known != named) {
        found.push(ids::SENTINELS.warning(
            &words.shown,
            format!(
                "it knows {known} Sentinels, and the list names {named}: a majority of one is not a \
                 majority of the other, so hosts may follow a master that was replaced"
            ),
            "name all of them in the list, and no others",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Severity::{self, Danger, Ok, Warning};
    use crate::store::{StoreSettings, check_url};

    fn words(port: &str, others: &str, quorum: &str, flags: &str) -> Words {
        let fields = [
            ("ip", "h"),
            ("port", port),
            ("num-other-sentinels", others),
            ("quorum", quorum),
            ("flags", flags),
            ("down-after-milliseconds", "5000"),
        ];
        Words {
            shown: "redis://s".to_owned(),
            fields: fields.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        }
    }

    fn judged(all: &[Words]) -> Vec<Severity> {
        let Result::Ok(StoreSettings::Sentinel(settings)) = check_url("redis+sentinel://a,b,c/m")
        else {
            panic!("a URL");
        };
        let found = judge(all, &settings, &[]);
        let of_sentinels = found.iter().filter(|f| f.id == ids::SENTINELS.0);
        of_sentinels.map(|f| f.severity).collect()
    }

    #[test]
    fn sentinels_that_disagree_or_can_never_agree_are_told() {
        let good = || words("1", "2", "2", "master");
        assert_eq!(judged(&[good(), good(), good()]), [Ok, Ok, Ok]);
        let other = words("2", "2", "2", "master");
        assert_eq!(judged(&[good(), good(), other]), [Ok, Ok, Warning]);
        assert_eq!(judged(&[words("1", "4", "3", "master")]), [Warning]);
        assert_eq!(judged(&[words("1", "2", "4", "master")]), [Danger]);
        assert_eq!(judged(&[words("1", "2", "2", "s_down,master")]), [Warning]);
    }
}
