//! Real Redis servers: each on a port and in a directory of its own, without persistence.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{command, faketime, wait};

/// The password of [`Builder::password`] and of [`Builder::user`].
pub(crate) const PASSWORD: &str = "geheim-and-long";

/// The rights that `docs/stores.md` asks for.
pub(crate) fn documented_rights() -> &'static str {
    include_str!("../../../docs/stores.md")
        .lines()
        .find_map(|line| line.strip_prefix("user cronlatch on >PASSWORD "))
        .expect("the page has the rule")
}

/// The rights that it asks for on a Redis Cluster.
pub(crate) fn documented_cluster_rights() -> String {
    let more = include_str!("../../../docs/stores.md")
        .split_once("On a Redis Cluster it needs `")
        .and_then(|(_, rest)| rest.split_once('`'))
        .expect("the page has the rule");
    format!("{} {}", documented_rights(), more.0)
}

/// A running `redis-server`; dropping it kills it.
#[derive(Debug)]
pub(crate) struct RedisServer {
    options: Builder,
    port: Port,
    /// Where the servers of a Cluster talk among themselves.
    bus: Option<Port>,
    dir: tempfile::TempDir,
    child: Option<Child>,
}

/// What a server is started with.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own"
)]
pub(crate) struct Builder {
    args: Vec<String>,
    password: bool,
    user: Option<(String, String)>,
    tls: bool,
    certificates: Option<PathBuf>,
    unix: bool,
    cluster: bool,
    unmarked: bool,
    shift: i64,
}

/// A port that no other test of this machine uses while this lives. It lies below those that the
/// kernel gives to outgoing connections, so that a stopped server finds it free again.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _claim: Flock<File>,
}

impl Port {
    /// Its number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// One that is free.
    pub(crate) fn claim() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let start = u16::try_from(std::process::id() % 97).expect("a small number") * 100;
        for _ in 0..9_800 {
            let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 9_700;
            let number = 20_000 + offset;
            let path = std::env::temp_dir().join(format!("cronlatch-test-port-{number}"));
            let Ok(file) = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(path)
            else {
                continue;
            };
            let Ok(claim) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
                continue;
            };
            if std::net::TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Self {
                    number,
                    _claim: claim,
                };
            }
        }
        panic!("no free port between 20000 and 29700");
    }
}

impl Builder {
    /// One more argument of `redis-server`.
    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// Wants [`PASSWORD`] from everybody.
    pub(crate) fn password(mut self) -> Self {
        self.password = true;
        self
    }

    /// Adds a user with [`PASSWORD`] and these rights (ACL rules), whom [`RedisServer::url`]
    /// names; the default user, for the test itself, may do anything.
    pub(crate) fn user(mut self, name: &str, rights: &str) -> Self {
        self.user = Some((name.to_owned(), rights.to_owned()));
        self
    }

    /// Speaks TLS, under an authority of its own: [`RedisServer::ca_file`].
    pub(crate) fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Speaks TLS, with what [`write_certificates`] wrote into this directory.
    pub(crate) fn tls_of(mut self, certificates: &Path) -> Self {
        self.tls = true;
        self.certificates = Some(certificates.to_owned());
        self
    }

    /// Listens on a unix socket as well, which [`RedisServer::url`] then names.
    pub(crate) fn unix(mut self) -> Self {
        self.unix = true;
        self
    }

    /// Can be one of a Cluster's.
    pub(crate) fn cluster(mut self) -> Self {
        self.cluster = true;
        self
    }

    /// It is not initialised, so the first claim waits as after a loss of data.
    pub(crate) fn unmarked(mut self) -> Self {
        self.unmarked = true;
        self
    }

    /// Shifts its wall clock by so many milliseconds.
    pub(crate) fn clock_shifted_by(mut self, millis: i64) -> Self {
        self.shift = millis;
        self
    }

    /// Starts it, waits until it answers, and declares it new.
    #[track_caller]
    pub(crate) fn start(self) -> RedisServer {
        let dir = tempfile::tempdir().expect("a temporary directory");
        match &self.certificates {
            Some(from) => copy_certificates(from, dir.path()),
            None if self.tls => write_certificates(dir.path()),
            None => {}
        }
        if let Some((name, rights)) = &self.user {
            let acl = format!(
                "user default on nopass ~* &* +@all\nuser {name} on >{PASSWORD} {rights}\n"
            );
            fs::write(dir.path().join("users.acl"), acl).expect("a writable directory");
        }
        let mut server = RedisServer {
            options: self,
            port: Port::claim(),
            bus: None,
            dir,
            child: None,
        };
        // The port was free a moment ago, but not everybody asks whose it is.
        for _ in 0..20 {
            server.bus = server.options.cluster.then(Port::claim);
            if server.try_run() {
                if !server.options.unmarked {
                    server.declare_new();
                }
                return server;
            }
            server.port = Port::claim();
        }
        panic!("redis-server finds no port:\n{}", server.log());
    }
}

impl RedisServer {
    /// A server with nothing special about it.
    #[track_caller]
    pub(crate) fn start() -> Self {
        Self::builder().start()
    }

    /// A server with something special about it.
    pub(crate) fn builder() -> Builder {
        Builder::default()
    }

    /// Its port; of a server with TLS, the one with TLS.
    pub(crate) fn port(&self) -> u16 {
        self.port.number
    }

    /// The port of the bus of a Cluster's server.
    pub(crate) fn bus(&self) -> u16 {
        self.bus.as_ref().expect("a server of a Cluster").number
    }

    /// The port under which a Cluster knows it: its own, or what it was told to announce.
    pub(crate) fn known_port(&self) -> u16 {
        self.told("--cluster-announce-port")
            .unwrap_or_else(|| self.port())
    }

    /// The bus port under which a Cluster knows it.
    pub(crate) fn known_bus(&self) -> u16 {
        self.told("--cluster-announce-bus-port")
            .unwrap_or_else(|| self.bus())
    }

    /// The number that an argument gives.
    fn told(&self, argument: &str) -> Option<u16> {
        let args = &self.options.args;
        let at = args.iter().position(|arg| arg == argument)?;
        args.get(at + 1)?.parse().ok()
    }

    /// The store URL, with the password if there is one.
    pub(crate) fn url(&self) -> String {
        let user = match &self.options.user {
            Some((name, _)) => format!("{name}:{PASSWORD}@"),
            None if self.options.password => format!(":{PASSWORD}@"),
            None => String::new(),
        };
        self.url_with(&user)
    }

    /// The store URL with this user part (`""`, or `user:password@`).
    pub(crate) fn url_with(&self, user: &str) -> String {
        let port = self.port();
        if self.options.unix {
            return format!("redis+unix://{}", self.socket().display());
        }
        if self.options.tls {
            return format!("rediss://{user}localhost:{port}");
        }
        format!("redis://{user}127.0.0.1:{port}")
    }

    /// Its URL by its port, also where [`Self::url`] names a socket.
    pub(crate) fn url_on_port(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// The store URL by way of a proxy that listens on `port`.
    pub(crate) fn url_via(&self, port: u16) -> String {
        self.url()
            .replace(&format!(":{}", self.port()), &format!(":{port}"))
    }

    /// The certificate of the authority that signed the server's.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Where it lets in who may do anything.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        let child = self.child.as_ref().expect("the server runs");
        i32::try_from(child.id()).expect("a process id")
    }

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Sends a command as one who may do anything, and answers with the reply.
    #[track_caller]
    pub(crate) fn command(&self, words: &[&str]) -> ::redis::Value {
        match self.try_command(words) {
            Ok(value) => value,
            Err(e) => panic!("{words:?}: {e}\n{}", self.log()),
        }
    }

    /// The reply as text; empty for none.
    #[track_caller]
    pub(crate) fn text(&self, words: &[&str]) -> String {
        ::redis::from_redis_value::<Option<String>>(self.command(words))
            .expect("a text")
            .unwrap_or_default()
    }

    /// The reply as a number.
    #[track_caller]
    pub(crate) fn number(&self, words: &[&str]) -> i64 {
        ::redis::from_redis_value::<i64>(self.command(words)).expect("a number")
    }

    /// Puts a key back as `DUMP` gave it; deletes it when there was none.
    #[track_caller]
    pub(crate) fn restore(&self, key: &str, dumped: ::redis::Value) {
        let ::redis::Value::BulkString(bytes) = dumped else {
            self.command(&["DEL", key]);
            return;
        };
        let mut client = self.admin().expect("the server runs");
        let mut command = ::redis::cmd("RESTORE");
        command.arg(key).arg(0).arg(bytes).arg("REPLACE");
        command
            .exec(&mut client)
            .expect("a dump of this server's version");
    }

    /// The reply to a command, or why there is none.
    pub(crate) fn try_command(&self, words: &[&str]) -> ::redis::RedisResult<::redis::Value> {
        let mut client = self.admin()?;
        let mut command = ::redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query(&mut client)
    }

    fn admin(&self) -> ::redis::RedisResult<::redis::Connection> {
        let password = if self.options.password {
            format!("?pass={PASSWORD}")
        } else {
            String::new()
        };
        let url = format!("redis+unix://{}{password}", self.socket().display());
        let connection = ::redis::Client::open(url)?.get_connection_with_timeout(wait::LIMIT)?;
        connection.set_read_timeout(Some(wait::LIMIT))?;
        Ok(connection)
    }

    /// Whether it was not stopped.
    pub(crate) fn runs(&self) -> bool {
        self.child.is_some()
    }

    /// Ends it, as a crash would: nothing is saved. Its port stays its own.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Declares it new, as `cronlatch init` does, whatever it holds: nobody waits.
    #[track_caller]
    pub(crate) fn declare_new(&self) {
        let info = wait::wait_for("it has loaded its data", || {
            let info = self.try_command(&["INFO"]).ok()?;
            ::redis::from_redis_value::<String>(info).ok()
        });
        let told = |name: &str| {
            let mut lines = info.lines();
            lines.find_map(|line| line.strip_prefix(name)).expect(name)
        };
        let (run_id, replid) = (told("run_id:"), told("master_replid:"));
        let marker = "cronlatch:store";
        self.command(&["HDEL", marker, "lost_at", "until", "longest"]);
        let fields = [
            "format", "1", "run_id", run_id, "replid", replid, "since", "0",
        ];
        self.command(&[&["HSET", marker][..], &fields].concat());
    }

    /// As [`Self::lose`], and declares it new.
    #[track_caller]
    pub(crate) fn restart(&mut self) {
        self.crash_and_restart();
        self.declare_new();
    }

    /// Crashes, and starts again where it was, with what `SAVE` saved; it may still be loading
    /// that.
    #[track_caller]
    pub(crate) fn crash_and_restart(&mut self) {
        self.stop();
        let up = (0..100).any(|_| {
            self.try_run() || {
                std::thread::sleep(wait::INTERVAL);
                false
            }
        });
        assert!(up, "redis-server does not start again:\n{}", self.log());
    }

    /// Deletes what `SAVE` saved, or a replica got from its master: [`Self::crash_and_restart`] then loses all.
    pub(crate) fn forget_snapshot(&self) {
        let _ = fs::remove_file(self.dir.path().join("dump.rdb"));
    }

    /// Stops it in its tracks: connections stay, and nothing answers.
    #[track_caller]
    pub(crate) fn pause(&self) {
        kill(Pid::from_raw(self.pid()), Signal::SIGSTOP).expect("a child of ours");
    }

    /// Lets it go on.
    #[track_caller]
    pub(crate) fn resume(&self) {
        kill(Pid::from_raw(self.pid()), Signal::SIGCONT).expect("a child of ours");
    }

    /// Empties it, and declares it new.
    #[track_caller]
    pub(crate) fn flush(&self) {
        self.command(&["FLUSHALL"]);
        self.declare_new();
    }

    /// Changes a setting.
    #[track_caller]
    pub(crate) fn config(&self, name: &str, value: &str) {
        self.command(&["CONFIG", "SET", name, value]);
    }

    /// Lets every snapshot fail from now on, and waits until one has. It then rejects writes.
    #[track_caller]
    pub(crate) fn break_snapshots(&self) {
        let in_the_way = self.dir.path().join("dump.rdb");
        fs::create_dir_all(in_the_way.join("full")).expect("a writable directory");
        self.config("save", "3600 1");
        self.command(&["BGSAVE"]);
        self.wait_for_snapshot("err");
    }

    /// Lets snapshots succeed again, and waits until one has.
    #[track_caller]
    pub(crate) fn mend_snapshots(&self) {
        fs::remove_dir_all(self.dir.path().join("dump.rdb")).expect("a writable directory");
        // Another one may be under way: the server retries them by itself.
        let begun = || self.try_command(&["BGSAVE"]).is_ok();
        wait::wait_until("a snapshot has begun", begun);
        self.wait_for_snapshot("ok");
    }

    #[track_caller]
    fn wait_for_snapshot(&self, outcome: &str) {
        let line = format!("rdb_last_bgsave_status:{outcome}");
        wait::wait_until("the snapshot has ended", || {
            let info = self.text(&["INFO", "persistence"]);
            info.lines().any(|said| said == line)
        });
    }

    /// Closes all connections but the one that asks.
    #[track_caller]
    pub(crate) fn kill_clients(&self) {
        self.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        self.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }

    /// Where the clock of one that was started with another clock reads it.
    fn clock(&self) -> PathBuf {
        self.dir.path().join("clock")
    }

    /// Steps the wall clock of a running server that was started with another clock: from now on it
    /// is shifted by so many milliseconds.
    #[track_caller]
    pub(crate) fn set_clock(&mut self, millis: i64) {
        assert_ne!(self.options.shift, 0, "it uses the machine's clock");
        self.options.shift = millis;
        faketime::set_server(&self.clock(), millis);
    }

    /// Runs the process and waits until it answers; false when the port is taken.
    #[track_caller]
    fn try_run(&mut self) -> bool {
        let dir = self.dir.path();
        let log = File::create(dir.join("log")).expect("a writable directory");
        let mut server = command::command("redis-server");
        let port = self.port().to_string();
        let (plain, secure) = if self.options.tls {
            ("0", port.as_str())
        } else {
            (port.as_str(), "0")
        };
        server
            .current_dir(dir)
            .args(["--port", plain, "--bind", "127.0.0.1"])
            .args(["--unixsocket", "redis.sock", "--unixsocketperm", "700"])
            .args(["--save", "", "--appendonly", "no", "--dir", "."]);
        if self.options.tls {
            server
                .args(["--tls-port", secure, "--tls-auth-clients", "no"])
                .args(["--tls-cert-file", "server.pem"])
                .args(["--tls-key-file", "server.key"])
                .args(["--tls-ca-cert-file", "ca.pem"]);
        }
        if self.options.password {
            server.args(["--requirepass", PASSWORD]);
        }
        if let Some(bus) = &self.bus {
            server
                .args([
                    "--cluster-enabled",
                    "yes",
                    "--cluster-config-file",
                    "nodes.conf",
                ])
                .args(["--cluster-port", &bus.number.to_string()]);
        }
        if self.options.user.is_some() {
            server.args(["--aclfile", "users.acl"]);
        }
        server
            .args(&self.options.args)
            .stdout(log.try_clone().expect("a file handle"))
            .stderr(Stdio::from(log));
        if self.options.shift != 0 {
            faketime::set_server(&self.clock(), self.options.shift);
            faketime::follow_server(&mut server, &self.clock());
        }
        self.child = match server.spawn() {
            Ok(child) => Some(child),
            Err(e) => panic!("redis-server cannot be started: {e} (apt-get install redis-server)"),
        };
        let up = wait::try_for(|| {
            match self.try_command(&["PING"]) {
                Ok(_) => return Some(true),
                Err(e) if e.code() == Some("LOADING") => return Some(true),
                Err(_) => {}
            }
            let child = self.child.as_mut().expect("just started");
            child.try_wait().expect("a child of ours").map(|_| false)
        });
        if up == Some(true) {
            return true;
        }
        self.stop();
        let log = self.log();
        assert!(
            log.contains("Address already in use"),
            "redis-server does not start:\n{log}"
        );
        false
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the Redis server:\n{}", self.log());
        }
        self.stop();
    }
}

/// An authority, and a certificate for `localhost` and `127.0.0.1` that it signed.
pub(crate) fn write_certificates(dir: &Path) {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    };

    let authority_key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    // A name of its own: servers that verify each other take a certificate whose issuer has its
    // subject's name for one that signed itself.
    authority
        .distinguished_name
        .push(DnType::CommonName, "the authority of a test");
    let certificate = authority
        .self_signed(&authority_key)
        .expect("a certificate");
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().expect("a key");
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let server = CertificateParams::new(names)
        .and_then(|params| params.signed_by(&key, &issuer))
        .expect("a certificate");
    for (name, text) in [
        ("ca.pem", certificate.pem()),
        ("server.pem", server.pem()),
        ("server.key", key.serialize_pem()),
    ] {
        fs::write(dir.join(name), text).expect("a writable directory");
    }
}

/// The same ones for another server.
pub(crate) fn copy_certificates(from: &Path, to: &Path) {
    for name in ["ca.pem", "server.pem", "server.key"] {
        fs::copy(from.join(name), to.join(name)).expect("a certificate");
    }
}

#[test]
fn a_server_comes_back_on_its_port_and_empty() {
    let mut server = RedisServer::start();
    let port = server.port();
    server.command(&["SET", "a", "1"]);
    assert_eq!(server.text(&["GET", "a"]), "1");
    server.restart();
    assert_eq!(server.port(), port);
    assert_eq!(server.text(&["GET", "a"]), "");
    server.command(&["SET", "a", "2"]);
    server.command(&["SAVE"]);
    server.restart();
    assert_eq!(server.text(&["GET", "a"]), "2");
    server.forget_snapshot();
    server.restart();
    assert_eq!(server.text(&["GET", "a"]), "");
    server.pause();
    server.resume();
    assert_eq!(server.text(&["PING"]), "PONG");
}
