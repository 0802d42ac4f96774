//! A Redis server: looks, and between them every write that its `MONITOR` tells of.
//!
//! A look is a script of ours on a connection of its own, and stands in the stream of `MONITOR` as
//! any other: so it is known between which writes it was taken.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use super::words::{self, Line};
use super::{PAUSE, Post, Watched};
use crate::checker::{Holding, Sight, Sighting, Write};

/// Marks our own looks.
const MARK: &str = "a look of the campaign";

/// KEYS lock, state; ARGV the mark and a number. Reply: process, role, now, value, its ms, token, its lease end.
const LOOK: &str = "local info = redis.call('INFO')
local t = redis.call('TIME')
local value = redis.pcall('GET', KEYS[1])
return { string.match(info, 'run_id:(%x+)'), string.match(info, 'role:(%a+)'),
  string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)),
  type(value) == 'string' and value or '', string.format('%.0f', redis.call('PTTL', KEYS[1])),
  redis.call('HGET', KEYS[2], 'token') or '', redis.call('HGET', KEYS[2], 'lease_end') or '0' }";

type Answer = Vec<String>;

/// Watches until the connection ends or all is over.
pub(super) fn watch(post: &Post, socket: &Path, ahead: i64) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    stream.write_all(b"MONITOR\r\n")?;
    let (answers, heard) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| look_on(post, socket, &answers));
        let mut reader = Reader {
            post,
            ahead,
            answers: heard,
            early: HashMap::new(),
            caller: Vec::new(),
        };
        let said = reader.read(BufReader::new(stream));
        // The task that looks notices that the receiver is gone.
        drop(reader);
        said
    })
}

/// Looks at every lock again and again; a server that is not master of a lock's slot refuses.
fn look_on(post: &Post, socket: &Path, answers: &Sender<(u64, Option<Answer>)>) {
    let url = format!("redis+unix://{}", socket.display());
    let connect = || {
        let client = redis::Client::open(url.as_str()).ok()?;
        let connection = client
            .get_connection_with_timeout(Duration::from_secs(1))
            .ok()?;
        connection
            .set_read_timeout(Some(crate::support::wait::LIMIT))
            .ok()?;
        Some(connection)
    };
    let Some(mut connection) = connect() else {
        return;
    };
    let unknown = |lock| {
        post.note([Sighting {
            at: crate::fleet::now(),
            server: post.server.clone(),
            lock,
            sight: Sight::Unknown,
        }]);
    };
    post.locks.iter().for_each(|watched| unknown(watched.lock));
    let mut refused = vec![false; post.locks.len()];
    let mut number = 0;
    while !post.is_over() {
        for (at, Watched { lock, key, state }) in post.locks.iter().enumerate() {
            number += 1;
            let answer: redis::RedisResult<Answer> = redis::cmd("EVAL_RO")
                .arg(LOOK)
                .arg(2)
                .arg(key)
                .arg(state)
                .arg(MARK)
                .arg(number)
                .query(&mut connection);
            if answer.as_ref().is_err_and(redis::RedisError::is_io_error) {
                return;
            }
            // Not its master any more: what reaches it meanwhile is not followed.
            if answer.is_err() && !std::mem::replace(&mut refused[at], answer.is_err()) {
                unknown(lock);
            }
            refused[at] = answer.is_err();
            if answers.send((number, answer.ok())).is_err() {
                return;
            }
        }
        // A rhythm, and no wait for anything.
        std::thread::sleep(PAUSE);
    }
}

struct Reader<'a> {
    post: &'a Post,
    ahead: i64,
    answers: Receiver<(u64, Option<Answer>)>,
    early: HashMap<u64, Option<Answer>>,
    /// The words of the command that the present script came with.
    caller: Vec<String>,
}

impl Reader<'_> {
    fn read(&mut self, mut stream: BufReader<UnixStream>) -> io::Result<()> {
        let mut line = Vec::new();
        while !self.post.is_over() {
            match stream.read_until(b'\n', &mut line) {
                Ok(0) => return Ok(()),
                Ok(_) => {
                    let text = String::from_utf8_lossy(&line);
                    if let Some(line) = words::parse(&text) {
                        let found = self.judge(line);
                        self.post.note(found);
                    }
                    line.clear();
                }
                // What was read so far stays in the buffer.
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn judge(&mut self, line: Line) -> Vec<Sighting> {
        let at = line.at - self.ahead;
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        if !line.in_script {
            let looked = words.iter().position(|word| *word == MARK);
            if let Some(number) = looked.and_then(|at| words.get(at + 1)?.parse().ok()) {
                let (lock, sight) = self.look(number, &words);
                return lock
                    .map(|lock| self.sighting(at, lock, sight))
                    .into_iter()
                    .collect();
            }
        }
        let name = words.first().map(|word| word.to_uppercase());
        if matches!(name.as_deref(), Some("FLUSHALL" | "FLUSHDB")) {
            let locks = self.post.locks.iter();
            let all = locks.map(|watched| self.sighting(at, watched.lock, Sight::Unknown));
            return all.collect();
        }
        let by = || {
            if line.in_script {
                self.caller.clone()
            } else {
                line.words.clone()
            }
        };
        let found = words.get(1).and_then(|key| {
            let watched = self.post.locks.iter().find(|watched| watched.key == *key)?;
            let write = write(name.as_deref()?, &words, at)?;
            let sight = Sight::Write {
                write,
                by: by(),
                in_script: line.in_script,
            };
            Some(self.sighting(at, watched.lock, sight))
        });
        if !line.in_script {
            self.caller = line.words;
        }
        found.into_iter().collect()
    }

    /// The answer to a look that stands in the stream.
    fn look(&mut self, number: u64, words: &[&str]) -> (Option<&'static str>, Sight) {
        let lock = self
            .post
            .locks
            .iter()
            .find(|watched| words.contains(&watched.key.as_str()));
        let lock = lock.map(|watched| watched.lock);
        let began = Instant::now();
        let answer = loop {
            if let Some(answer) = self.early.remove(&number) {
                break answer;
            }
            match self.answers.recv_timeout(Duration::from_millis(100)) {
                Ok((heard, answer)) => {
                    self.early.insert(heard, answer);
                }
                Err(mpsc::RecvTimeoutError::Timeout)
                    if began.elapsed() < Duration::from_secs(20) && !self.post.is_over() => {}
                Err(_) => break None,
            }
        };
        (
            lock,
            answer.map_or(Sight::Unknown, |answer| self.sight(&answer)),
        )
    }

    fn sight(&self, answer: &Answer) -> Sight {
        let [process, role, now, value, left, token, lease_end] = answer.as_slice() else {
            return Sight::Unknown;
        };
        if role != "master" {
            return Sight::Unknown;
        }
        let now: i64 = now.parse().unwrap_or(0);
        let left: i64 = left.parse().unwrap_or(-1);
        let holding = |token: &str, until: Option<i64>| {
            (!token.is_empty()).then(|| Holding {
                token: token.to_owned(),
                until: until.map(|until| until - self.ahead),
            })
        };
        Sight::Look {
            process: process.clone(),
            key: holding(value, (left >= 0).then_some(now + left)),
            beside: holding(token, lease_end.parse().ok())
                .filter(|held| held.until > Some(now - self.ahead)),
        }
    }

    fn sighting(&self, at: i64, lock: &'static str, sight: Sight) -> Sighting {
        Sighting {
            at,
            server: self.post.server.clone(),
            lock,
            sight,
        }
    }
}

/// What a command does to a lock's key, if anything.
fn write(name: &str, words: &[&str], at: i64) -> Option<Write> {
    let number = |word: &str| {
        let place = words.iter().position(|w| w.eq_ignore_ascii_case(word))?;
        words.get(place + 1)?.parse::<i64>().ok()
    };
    match name {
        "SET" => Some(Write::Set {
            token: (*words.get(2)?).to_owned(),
            until: number("PX").map(|millis| at + millis),
            if_free: words
                .iter()
                .skip(3)
                .any(|word| word.eq_ignore_ascii_case("NX")),
        }),
        "PEXPIRE" => Some(Write::Extend {
            until: at + words.get(2)?.parse::<i64>().ok()?,
        }),
        "DEL" | "UNLINK" => Some(Write::Delete),
        _ => None,
    }
}
