use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::support::command::command;
use crate::support::wait_until;

/// A server that answers each byte with itself.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut byte = [0];
                while client.read_exact(&mut byte).is_ok() && client.write_all(&byte).is_ok() {}
            });
        }
    });
    port
}

/// A process of its own with one connection, whose bytes are those of its standard streams.
struct Caller {
    child: Child,
    into: ChildStdin,
    from: ChildStdout,
}

impl Caller {
    fn to(port: u16) -> Self {
        let mut shell = command("/bin/bash");
        shell.args([
            "-c",
            &format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo; cat <&3 & exec cat >&3"),
        ]);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let (into, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut caller = Self { child, into, from };
        assert_eq!(caller.hear(), b'\n');
        caller
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    fn say(&mut self, byte: u8) {
        self.into.write_all(&[byte]).unwrap();
    }

    fn hear(&mut self) -> u8 {
        let mut byte = [0];
        self.from.read_exact(&mut byte).unwrap();
        byte[0]
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say_and_hear(stream: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
    stream.write_all(&[byte])?;
    let mut answer = [0];
    stream.read_exact(&mut answer).map(|()| answer[0])
}

#[test]
fn a_way_fails_for_the_party_it_is_of_and_for_no_other() {
    let net = Net::new();
    let door = net.door();
    door.lead_to(echo());
    let (mut one, mut other) = (Caller::to(door.port()), Caller::to(door.port()));
    net.register(one.pid(), Party::Host(0));
    net.register(other.pid(), Party::Host(1));
    for caller in [&mut one, &mut other] {
        caller.say(1);
        assert_eq!(caller.hear(), 1);
    }
    net.set(Party::Host(0), &[door.number()], Way::Late);
    one.say(2);
    other.say(3);
    assert_eq!(other.hear(), 3);
    // What was sent meanwhile arrives, and as the first thing.
    net.set(Party::Host(0), &[door.number()], Way::Open);
    assert_eq!(one.hear(), 2);
    net.set(Party::Host(0), &[door.number()], Way::Refused);
    let mut rest = Vec::new();
    one.from.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
    other.say(4);
    assert_eq!(other.hear(), 4);
    net.end();
}

#[test]
fn a_process_is_known_by_what_it_opened_before_and_after_it_was_registered() {
    let net = Net::new();
    let door = net.door();
    door.lead_to(echo());
    net.register(
        i32::try_from(std::process::id()).unwrap(),
        Party::Sentinel(7),
    );
    let mut stream = TcpStream::connect(("127.0.0.1", door.port())).unwrap();
    assert_eq!(say_and_hear(&mut stream, 1).unwrap(), 1);
    assert_eq!(net.state().open[0].party, Party::Sentinel(7));
    net.register(i32::try_from(std::process::id()).unwrap(), Party::Server(2));
    assert_eq!(net.state().open[0].party, Party::Server(2));
    net.end();
}

#[test]
fn ways_lose_delay_and_cut_and_a_forgotten_one_stays_silent() {
    let net = Net::new();
    let door = net.door();
    door.lead_to(echo());
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", door.port())).unwrap();
        let soon = Some(Duration::from_millis(60));
        stream.set_read_timeout(soon).unwrap();
        stream
    };
    let patient = |stream: &TcpStream| {
        stream
            .set_read_timeout(Some(crate::support::wait::LIMIT))
            .unwrap();
    };
    let set = |way| net.set(Party::Outsider, &[door.number()], way);

    let mut stream = connect();
    patient(&stream);
    set(Way::Slow(Duration::from_millis(30)));
    let began = Instant::now();
    assert_eq!(say_and_hear(&mut stream, 1).unwrap(), 1);
    assert!(began.elapsed() >= Duration::from_millis(60));

    for way in [Way::Silent, Way::Deaf] {
        set(way);
        let mut stream = connect();
        let before = net.state().lost;
        assert!(say_and_hear(&mut stream, 2).is_err(), "{way:?}");
        wait_until("it is lost", || net.state().lost > before);
        set(Way::Open);
        // What was lost stays lost, and so nothing that came after it arrives.
        patient(&stream);
        assert!(say_and_hear(&mut stream, 3).is_err(), "{way:?}");
        let mut fresh = connect();
        patient(&fresh);
        assert_eq!(say_and_hear(&mut fresh, 3).unwrap(), 3, "{way:?}");
    }

    set(Way::CutReply);
    patient(&stream);
    assert!(say_and_hear(&mut stream, 4).is_err());
    let mut stream = connect();
    patient(&stream);
    assert_eq!(say_and_hear(&mut stream, 5).unwrap(), 5);

    net.forget(Party::Outsider, &[door.number()]);
    stream
        .set_read_timeout(Some(Duration::from_millis(60)))
        .unwrap();
    assert!(say_and_hear(&mut stream, 6).is_err());
    let mut fresh = connect();
    patient(&fresh);
    assert_eq!(say_and_hear(&mut fresh, 7).unwrap(), 7);
    net.end();
    wait_until("all has ended", || net.state().open.is_empty());
    assert_eq!(net.panics(), [""; 0]);
}

#[test]
fn a_few_threads_carry_many_connections() {
    let net = Net::new();
    let door = net.door();
    door.lead_to(echo());
    let connect = |_| TcpStream::connect(("127.0.0.1", door.port())).unwrap();
    let mut streams: Vec<TcpStream> = (0..40).map(connect).collect();
    for stream in &mut streams {
        assert_eq!(say_and_hear(stream, 1).unwrap(), 1);
    }
    let name = net.shared.thread.as_str();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let count = names.filter(|comm| comm.trim_end() == name).count();
    assert!(count <= 1 + CARRIERS + WHO_COMES, "{count}");
    assert_eq!(net.state().open.len(), 40);
    net.end();
}

#[test]
fn a_panic_in_the_network_is_told() {
    let net = Net::new();
    assert_eq!(net.panics().len(), 0);
    net.runtime()
        .spawn(async { panic!("as if it could not go on") });
    wait_until("it is noted", || !net.panics().is_empty());
    assert!(net.panics()[0].contains("as if it could not go on"));
    net.end();
}
