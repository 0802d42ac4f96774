use super::*;
use crate::checker::{Sight, Write};
use crate::support::{RedisServer, wait_until};

fn locks() -> Vec<Watched> {
    vec![Watched {
        lock: "one",
        key: "one:lock".to_owned(),
        state: "one:state".to_owned(),
    }]
}

fn has(watch: &Watch, which: impl Fn(&Sight) -> bool) -> bool {
    let seen = watch.seen.lock().unwrap();
    seen.iter().any(|seen| which(&seen.sight))
}

fn looked_at(watch: &Watch, token: &str) -> bool {
    has(
        watch,
        |sight| matches!(sight, Sight::Look { key: Some(held), .. } if held.token == token),
    )
}

#[test]
fn a_watch_sees_who_writes_a_lock_and_what_it_holds_across_a_restart() {
    let mut server = RedisServer::start();
    let mut watch = Watch::default();
    watch.redis("server", server.socket(), 0, &locks());
    wait_until("a look", || {
        has(&watch, |sight| matches!(sight, Sight::Look { .. }))
    });
    let take = "return redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000)";
    server.command(&["EVAL", take, "1", "one:lock", "the token"]);
    wait_until("the look after it", || looked_at(&watch, "the token"));
    server.command(&[
        "HSET",
        "one:state",
        "token",
        "t",
        "lease_end",
        "99999999999999",
    ]);
    wait_until("what is kept beside it", || {
        has(
            &watch,
            |sight| matches!(sight, Sight::Look { beside: Some(held), .. } if held.token == "t"),
        )
    });
    server.command(&["DEL", "one:lock"]);
    wait_until("the end of it", || {
        has(&watch, |sight| {
            matches!(
                sight,
                Sight::Write {
                    write: Write::Delete,
                    ..
                }
            )
        })
    });
    server.restart();
    server.command(&["SET", "one:lock", "after", "PX", "60000"]);
    wait_until("a look at the new process", || looked_at(&watch, "after"));

    let seen = watch.end();
    let taken = seen.iter().find_map(|seen| match &seen.sight {
        Sight::Write {
            write:
                Write::Set {
                    token,
                    until,
                    if_free,
                },
            by,
            in_script,
        } if token == "the token" => Some((
            until.unwrap() - seen.at,
            *if_free,
            by.contains(&"the token".to_owned()),
            *in_script,
        )),
        _ => None,
    });
    assert_eq!(taken, Some((60_000, false, true, true)));
    let processes = seen.iter().filter_map(|seen| match &seen.sight {
        Sight::Look { process, .. } => Some(process),
        _ => None,
    });
    let mut processes: Vec<&String> = processes.collect();
    processes.dedup();
    assert_eq!(processes.len(), 2, "{processes:?}");
}

#[test]
fn a_watch_sees_the_locks_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let mut watch = Watch::default();
    let locks = [Watched {
        lock: "one",
        key: "one".to_owned(),
        state: String::new(),
    }];
    watch.file(path.clone(), &locks);
    let url = format!("sqlite:{}", path.display());
    let release = dir.path().join("release");
    let mut command = crate::support::command::command(crate::support::command::BINARY);
    command.args([
        "exec", "--store", &url, "--lock", "one", "--ttl", "5s", "--", "/bin/sh", "-c",
    ]);
    command.arg(format!(
        "until [ -e {} ]; do sleep 0.02; done",
        release.display()
    ));
    let mut child = command.spawn().unwrap();
    wait_until("it holds the lock", || {
        has(&watch, |sight| {
            matches!(
                sight,
                Sight::Look {
                    key: Some(_),
                    beside: Some(_),
                    ..
                }
            )
        })
    });
    std::fs::write(release, "").unwrap();
    assert!(child.wait().unwrap().success());
    watch.end();
}
