//! Real Sentinels: a master, its replicas, and those who decide which of them is the master.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use super::redis::{Builder, PASSWORD, Port, copy_certificates, write_certificates};
use super::{RedisServer, command, tree, wait};

/// The name of the master that all of them watch over.
pub(crate) const MASTER: &str = "mymaster";

/// How a Sentinel lets others in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Door {
    /// With TLS, under an authority of its own: [`Sentinel::ca_file`].
    pub(crate) tls: bool,
    /// With these certificates, of an authority that the servers share: they are reached by TLS,
    /// too.
    pub(crate) certificates: Option<PathBuf>,
    /// Also a user of this name, with [`PASSWORD`] and these rights.
    pub(crate) user: Option<(String, String)>,
}

/// What Sentinels are told about.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    /// Where the master is.
    pub(crate) master: u16,
    /// Where its replicas are.
    pub(crate) replicas: Vec<u16>,
    /// The user that Sentinels log in as, with [`PASSWORD`].
    pub(crate) user: Option<&'static str>,
}

impl Watched {
    /// A master alone.
    pub(crate) fn only(master: &RedisServer) -> Self {
        Self {
            master: master.port(),
            replicas: Vec::new(),
            user: None,
        }
    }
}

/// A running Sentinel; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Sentinel {
    port: Port,
    dir: tempfile::TempDir,
    child: Option<Child>,
    door: Door,
}

impl Sentinel {
    /// Sentinels that know each other, the master and its replicas from the start.
    #[track_caller]
    pub(crate) fn start(count: usize, watched: &Watched, door: &Door) -> Vec<Self> {
        let mut sentinels: Vec<Self> = (0..count)
            .map(|_| Self {
                port: Port::claim(),
                dir: tempfile::tempdir().expect("a temporary directory"),
                child: None,
                door: door.clone(),
            })
            .collect();
        let ports: Vec<u16> = sentinels.iter().map(Self::port).collect();
        for sentinel in &mut sentinels {
            sentinel.run(watched, &ports);
        }
        for sentinel in &sentinels {
            wait::wait_until("a Sentinel says where the master is", || {
                assert!(sentinel.is_there(), "{}", sentinel.log());
                sentinel.names() == Some(watched.master)
            });
        }
        sentinels
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        let child = self.child.as_ref().expect("the Sentinel runs");
        i32::try_from(child.id()).expect("a process id")
    }

    /// The certificate of the authority that signed its own.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The port of the master as it knows it.
    pub(crate) fn names(&self) -> Option<u16> {
        let named = self
            .try_command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])
            .ok()?;
        let named: Option<(String, u16)> = ::redis::from_redis_value(named).ok()?;
        named.map(|(_, port)| port)
    }

    /// The reply to a command, or why there is none.
    pub(crate) fn try_command(&self, words: &[&str]) -> ::redis::RedisResult<::redis::Value> {
        let socket = self.dir.path().join("sentinel.sock");
        let client = ::redis::Client::open(format!("redis+unix://{}", socket.display()))?;
        let mut connection = client.get_connection_with_timeout(wait::LIMIT)?;
        connection.set_read_timeout(Some(wait::LIMIT))?;
        let mut command = ::redis::cmd(words[0]);
        command.arg(&words[1..]).query(&mut connection)
    }

    /// Ends it, as a crash would.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn is_there(&self) -> bool {
        tree::is_alive(self.pid())
    }

    fn run(&mut self, watched: &Watched, all: &[u16]) {
        let dir = self.dir.path();
        fs::write(dir.join("sentinel.conf"), self.config(watched, all)).expect("a file");
        let log = File::create(dir.join("log")).expect("a writable directory");
        let mut server = command::command("redis-server");
        server
            .current_dir(dir)
            .args(["sentinel.conf", "--sentinel"])
            .stdout(log.try_clone().expect("a file handle"))
            .stderr(Stdio::from(log));
        self.child = match server.spawn() {
            Ok(child) => Some(child),
            Err(e) => panic!("redis-server cannot be started: {e} (apt-get install redis-server)"),
        };
    }

    fn config(&self, watched: &Watched, all: &[u16]) -> String {
        let id = |port: u16| format!("{port:040x}");
        let quorum = all.len() / 2 + 1;
        let port = self.port();
        let master = watched.master;
        let mut text = format!(
            "bind 127.0.0.1\nunixsocket sentinel.sock\nunixsocketperm 700\n\
             sentinel myid {}\nsentinel monitor {MASTER} 127.0.0.1 {master} {quorum}\n\
             sentinel down-after-milliseconds {MASTER} 1000\n\
             sentinel failover-timeout {MASTER} 5000\n",
            id(port)
        );
        if self.door.tls {
            match &self.door.certificates {
                Some(from) => {
                    copy_certificates(from, self.dir.path());
                    text += "tls-replication yes\n";
                }
                None => write_certificates(self.dir.path()),
            }
            text += &format!(
                "port 0\ntls-port {port}\ntls-auth-clients no\ntls-cert-file server.pem\n\
                 tls-key-file server.key\ntls-ca-cert-file ca.pem\n"
            );
        } else {
            text += &format!("port {port}\n");
        }
        if let Some((name, rights)) = &self.door.user {
            text += &format!(
                "user default on nopass ~* &* +@all\nuser {name} on >{PASSWORD} {rights}\n"
            );
        }
        if let Some(user) = watched.user {
            text += &format!(
                "sentinel auth-user {MASTER} {user}\nsentinel auth-pass {MASTER} {PASSWORD}\n"
            );
        }
        for replica in &watched.replicas {
            text += &format!("sentinel known-replica {MASTER} 127.0.0.1 {replica}\n");
        }
        for other in all.iter().filter(|other| **other != port) {
            text += &format!(
                "sentinel known-sentinel {MASTER} 127.0.0.1 {other} {}\n",
                id(*other)
            );
        }
        text
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the Sentinel:\n{}", self.log());
        }
        self.stop();
    }
}

/// A replica that has caught up with its master, and comes to it by way of this port.
#[track_caller]
pub(crate) fn replica_of(master: &RedisServer, via: u16, with: Builder) -> RedisServer {
    let replica = with
        .unmarked()
        .arg("--replicaof")
        .arg("127.0.0.1")
        .arg(&via.to_string())
        .start();
    caught_up(master, 1);
    replica
}

/// Waits until so many replicas have all that their master has.
#[track_caller]
pub(crate) fn caught_up(master: &RedisServer, replicas: i64) {
    wait::wait_until("the replicas have caught up", || {
        master.number(&["WAIT", &replicas.to_string(), "100"]) == replicas
    });
}

/// The store URL that names these Sentinels.
pub(crate) fn url(sentinels: &[Sentinel]) -> String {
    let all: Vec<String> = sentinels
        .iter()
        .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
        .collect();
    format!("redis+sentinel://{}/{MASTER}", all.join(","))
}
