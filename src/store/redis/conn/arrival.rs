//! When a reply had arrived at this host, by the kernel.
//!
//! A run that was granted ahead of its instant starts when so much time has passed since the reply to its claim
//! arrived. The program reads the reply later: a core has to wake up first, and while thousands of claims are under way
//! the reply waits for its turn. The kernel notes when each packet arrives (`SO_TIMESTAMPNS` in `socket(7)`). For the
//! bytes of several packets it reports the note of the last one, and the server sent the end of a reply after it had
//! executed the request. So what is reported is never before the server has read its clock.
//!
//! The kernel notes the time of the wall clock, which may be set meanwhile, and which a library can replace for this
//! process by another one (faketime). So a note is not taken as it is. From how long a reply seems to have waited, the
//! shortest such wait on the connection is subtracted: the result is no longer than it waited, however far the wall clock
//! of this process is from that of the kernel, as long as both go with the boot clock. And what is read now had not
//! arrived when nothing was left to read. Where nothing is known, a reply arrived when it was read: on a connection with
//! TLS, on a kernel that notes nothing, and after the wall clock was set.

use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::ReceiveTimestampns,
};
use nix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::time::BootInstant;

/// The arrival time of the bytes that were last read from a connection.
#[derive(Debug, Default)]
pub(super) struct LastArrival(AtomicU64);

impl LastArrival {
    /// Returns when the last bytes arrived that were read. If a reply is among what was read, the server had sent all of
    /// it by then.
    pub(super) fn get(&self) -> BootInstant {
        BootInstant::from_duration(Duration::from_nanos(self.0.load(Ordering::Acquire)))
    }

    fn set(&self, at: BootInstant) {
        let nanos = u64::try_from(at.to_duration().as_nanos()).unwrap_or(u64::MAX);
        self.0.store(nanos, Ordering::Release);
    }
}

/// A connection that keeps the time at which bytes arrive.
#[derive(Debug)]
pub(super) struct TimedStream {
    tcp: TcpStream,
    clock: ArrivalClock,
    last: Arc<LastArrival>,
    /// Where the kernel writes its note.
    control: Vec<u8>,
}

impl TimedStream {
    pub(super) fn new(tcp: TcpStream) -> Self {
        // Without the notes of the kernel the time of reading counts.
        let _ = setsockopt(&tcp, ReceiveTimestampns, &true);
        Self {
            tcp,
            clock: ArrivalClock::default(),
            last: Arc::default(),
            control: nix::cmsg_space!(nix::sys::time::TimeSpec),
        }
    }

    pub(super) fn last_arrival(&self) -> Arc<LastArrival> {
        Arc::clone(&self.last)
    }

    /// Keeps the time at which the bytes of a read had arrived.
    fn keep(&mut self, read: &Read) {
        let arrived = ClockReading::now().map(|reading| self.clock.arrival(read, reading));
        self.last.set(arrived.unwrap_or_else(BootInstant::now));
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            ready!(this.tcp.poll_read_ready(cx))?;
            let room = buf.initialize_unfilled();
            let mut read = None;
            let tried = this.tcp.try_io(Interest::READABLE, || {
                let received = receive(&this.tcp, room, &mut this.control)?;
                let (count, is_all) = (received.count, received.is_all);
                read = Some(received);
                // The next read waits for more at once, as that of `TcpStream` does.
                if count > 0 && is_all {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(())
            });
            if let Some(read) = read {
                this.keep(&read);
                buf.advance(read.count);
                return Poll::Ready(Ok(()));
            }
            match tried {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                _ => {}
            }
        }
    }
}

/// What one call of the kernel read.
#[derive(Debug)]
struct Read {
    began: BootInstant,
    /// In bytes.
    count: usize,
    /// Whether nothing was left.
    is_all: bool,
    /// When the bytes arrived according to the kernel, in nanoseconds of its wall clock.
    noted: Option<i64>,
}

/// Reads what is there.
fn receive(tcp: &TcpStream, room: &mut [u8], control: &mut [u8]) -> io::Result<Read> {
    let began = BootInstant::now();
    let space = room.len();
    let mut parts = [IoSliceMut::new(room)];
    let message = recvmsg::<()>(
        tcp.as_raw_fd(),
        &mut parts,
        Some(control),
        MsgFlags::empty(),
    )?;
    // The bytes are read: that their note cannot be is no error.
    let noted = message.cmsgs().ok().and_then(|mut notes| {
        notes.find_map(|note| match note {
            ControlMessageOwned::ScmTimestampns(at) => nanos(Duration::from(at)),
            _ => None,
        })
    });
    Ok(Read {
        began,
        count: message.bytes,
        is_all: message.bytes < space,
        noted,
    })
}

impl AsyncWrite for TimedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // Before the request is sent: its reply arrives later.
        if let Some(reading) = ClockReading::now() {
            this.clock.check_for_step(reading.offset);
        }
        Pin::new(&mut this.tcp).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}

/// How far the wall clock and the boot clock may seem to move against each other because both are rounded, in
/// nanoseconds.
const ROUNDING: i64 = 1_000;

/// How exactly both clocks must have been read at the same moment, in nanoseconds. Otherwise the thread did not run
/// between the two, and a step of that size would not be noticed.
const EXACT: i64 = 10_000;

/// How far the wall clock is ahead of the boot clock, in nanoseconds: the boot clock was read before and after it.
#[derive(Debug, Clone, Copy)]
struct ClockOffset {
    least: i64,
    most: i64,
}

impl ClockOffset {
    fn is_exact(self) -> bool {
        self.most - self.least <= EXACT
    }

    /// What both say; `None` if the wall clock was set in between.
    fn and(self, other: Self) -> Option<Self> {
        let both = Self {
            least: self.least.max(other.least),
            most: self.most.min(other.most),
        };
        let gap = both.least - both.most;
        match gap {
            ..=0 => Some(both),
            1..=ROUNDING => Some(self),
            _ => None,
        }
    }
}

/// One reading of both clocks.
#[derive(Debug, Clone, Copy)]
struct ClockReading {
    /// The wall clock, in nanoseconds.
    wall: i64,
    /// The boot clock, read after the wall clock.
    boot: BootInstant,
    offset: ClockOffset,
}

impl ClockReading {
    fn now() -> Option<Self> {
        let before = BootInstant::now();
        let wall = clock_gettime(ClockId::CLOCK_REALTIME).ok()?;
        Self::of(before, Duration::from(wall), BootInstant::now())
    }

    /// `None` for times that are centuries away.
    fn of(before: BootInstant, wall: Duration, after: BootInstant) -> Option<Self> {
        let wall = nanos(wall)?;
        let offset = ClockOffset {
            least: wall - nanos(after.to_duration())?,
            most: wall - nanos(before.to_duration())?,
        };
        Some(Self {
            wall,
            boot: after,
            offset,
        })
    }
}

fn nanos(duration: Duration) -> Option<i64> {
    i64::try_from(duration.as_nanos()).ok()
}

/// Tells from the notes of the kernel when bytes arrived.
#[derive(Debug, Default)]
struct ArrivalClock {
    /// How far the wall clock is ahead of the boot clock, since it was last set. Only setting it changes that: what makes
    /// one of the two faster does so with the other, and both count suspended time (`clock_gettime(2)`).
    offset: Option<ClockOffset>,
    /// When there was nothing to read last, since then: what is read now arrived later, and its note is of this time.
    empty: Option<BootInstant>,
    /// The shortest time for which bytes seem to have waited since then, in nanoseconds.
    shortest: Option<u64>,
}

impl ArrivalClock {
    /// Forgets what is known if the wall clock was set. Returns whether it is as it was.
    fn check_for_step(&mut self, now: ClockOffset) -> bool {
        if let Some(both) = self.offset.and_then(|known| known.and(now)) {
            self.offset = Some(both);
            return true;
        }
        *self = Self {
            offset: now.is_exact().then_some(now),
            ..Self::default()
        };
        false
    }

    /// Returns when the bytes arrived that had been read by the time of the reading.
    fn arrival(&mut self, read: &Read, reading: ClockReading) -> BootInstant {
        if !self.check_for_step(reading.offset) {
            return reading.boot;
        }
        let empty = self.empty;
        if read.is_all {
            self.empty = Some(read.began);
        }
        let waited = read
            .noted
            .and_then(|at| u64::try_from(reading.wall - at).ok());
        let (Some(waited), Some(empty), true) = (waited, empty, reading.offset.is_exact()) else {
            return reading.boot;
        };
        let shortest = self.shortest.map_or(waited, |known| known.min(waited));
        self.shortest = Some(shortest);
        let arrived = reading.boot.minus(Duration::from_nanos(waited - shortest));
        arrived.max(empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    const SECOND: i64 = 1_000_000_000;
    const MILLI: i64 = 1_000_000;

    /// What the clocks show, in nanoseconds.
    struct Machine {
        clock: ArrivalClock,
        boot: i64,
        /// The kernel's wall clock less the boot clock.
        kernel: i64,
        /// How far the wall clock of this process is ahead of that of the kernel.
        error: i64,
    }

    impl Machine {
        fn new(error: i64) -> Self {
            let mut machine = Self {
                clock: ArrivalClock::default(),
                boot: 1_000 * SECOND,
                kernel: 1_700_000_000 * SECOND,
                error,
            };
            machine.request();
            assert_eq!(
                machine.reply(MILLI),
                0,
                "it was not seen that nothing was there"
            );
            assert_eq!(machine.reply(MILLI), 0, "nothing to compare it with");
            machine
        }

        fn at(nanos: i64) -> BootInstant {
            BootInstant::from_duration(Duration::from_nanos(nanos.unsigned_abs()))
        }

        /// The clocks, for whose readings so much time is needed.
        fn reading(&self, needed: i64) -> ClockReading {
            let before = self.boot - needed;
            let wall = Duration::from_nanos((before + self.kernel + self.error).unsigned_abs());
            ClockReading::of(Self::at(before), wall, Self::at(self.boot))
                .expect("a time of this century")
        }

        fn request(&mut self) {
            self.clock.check_for_step(self.reading(40).offset);
        }

        fn noted(&self) -> i64 {
            self.boot + self.kernel
        }

        /// How long before it was read a reply seems to have arrived that has waited so long.
        fn reply(&mut self, waited: i64) -> i64 {
            self.boot += SECOND;
            let noted = self.noted();
            self.boot += waited;
            self.read(noted, true, 40)
        }

        /// The same of bytes for which the kernel noted this time.
        fn read(&mut self, noted: i64, is_all: bool, needed: i64) -> i64 {
            let reading = self.reading(needed);
            let read = Read {
                began: Self::at(self.boot - 1_000),
                count: 1,
                is_all,
                noted: Some(noted),
            };
            let arrived = self.clock.arrival(&read, reading);
            assert!(arrived <= reading.boot);
            nanos(reading.boot.since(arrived)).expect("a short time")
        }
    }

    #[test]
    fn a_reply_arrived_as_much_earlier_as_it_waited_longer_than_another_one() {
        // Right; and as with faketime, ahead of the kernel.
        for error in [0, 700 * MILLI] {
            let mut machine = Machine::new(error);
            assert_eq!(machine.reply(10 * MILLI), 9 * MILLI);
            assert_eq!(machine.reply(MILLI / 2), 0);
            assert_eq!(machine.reply(MILLI), MILLI / 2);
        }
        let mut behind = Machine::new(-1_500 * MILLI);
        assert_eq!([MILLI, 10 * MILLI].map(|it| behind.reply(it)), [0, 0]);
    }

    #[test]
    fn a_reply_arrived_when_it_was_read_if_the_wall_clock_was_set_meanwhile() {
        for step in [-SECOND, -20_000, 20_000, SECOND] {
            let mut machine = Machine::new(2 * SECOND);
            machine.request();
            machine.error += step;
            assert_eq!(machine.reply(10 * MILLI), 0);
            assert_eq!(machine.reply(2 * MILLI), 0, "what was known is forgotten");
            assert_eq!(machine.reply(MILLI), 0);
            assert_eq!(machine.reply(3 * MILLI), 2 * MILLI);
        }
    }

    #[test]
    fn a_reply_from_before_a_step_of_the_kernels_clock_makes_no_later_one_early() {
        for (error, step) in [0, 700 * MILLI].into_iter().flat_map(|error| {
            [-SECOND, -699 * MILLI, -20_000, 20_000, SECOND].map(|it| (error, it))
        }) {
            let mut machine = Machine::new(error);
            machine.boot += SECOND;
            let noted = machine.noted();
            machine.boot += 10 * MILLI;
            machine.kernel += step;
            // The first read, or a request, notices the step. Others are of the time before it, too.
            assert_eq!(machine.read(noted, false, 40), 0);
            assert_eq!(machine.read(noted, false, 40), 0);
            assert_eq!(machine.read(noted, true, 40), 0);
            for waited in [3, 1, 5] {
                let found = machine.reply(waited * MILLI);
                assert!(found <= waited * MILLI, "{error} {step}: {found}");
            }
        }
    }

    #[test]
    fn a_step_counts_even_if_the_clocks_could_not_be_read_at_the_same_moment() {
        let mut machine = Machine::new(0);
        machine.boot += SECOND;
        let noted = machine.noted();
        machine.boot += 10 * MILLI;
        machine.error += MILLI;
        assert_eq!(machine.read(noted, true, 2 * MILLI), 0);
        assert_eq!(machine.reply(10 * MILLI), 0, "now it is noticed");
        assert_eq!(machine.reply(10 * MILLI), 0);
        assert_eq!(machine.reply(10 * MILLI), 0);
        assert_eq!(machine.reply(11 * MILLI), MILLI);
    }

    #[test]
    fn nothing_arrived_before_there_was_nothing_to_read() {
        let mut machine = Machine::new(0);
        machine.boot += SECOND;
        let long_ago = machine.noted() - 10 * SECOND;
        assert_eq!(machine.read(long_ago, true, 40), SECOND + 1_000);
    }

    #[test]
    fn without_a_note_a_reply_arrived_when_it_was_read() {
        let mut machine = Machine::new(0);
        let reading = machine.reading(40);
        let read = Read {
            began: reading.boot,
            count: 1,
            is_all: true,
            noted: None,
        };
        assert_eq!(machine.clock.arrival(&read, reading), reading.boot);
    }

    /// A client and what it is connected to.
    async fn connected() -> (TimedStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it has one");
        let client = TcpStream::connect(address).await.expect("it listens");
        let (server, _) = listener.accept().await.expect("a client");
        (TimedStream::new(client), server)
    }

    #[tokio::test]
    async fn what_is_read_late_had_arrived_when_it_was_sent() {
        let (mut client, mut server) = connected().await;
        let last = client.last_arrival();
        let mut room = [0; 16];
        // The kernel begins to note a moment after the first socket asks for it.
        for _ in 0..1_000 {
            for late in [Duration::ZERO, Duration::from_millis(5)] {
                client.write_all(b"?").await.expect("sent");
                assert_eq!(server.read(&mut room).await.ok(), Some(1));
                let before = BootInstant::now();
                server.write_all(b"!").await.expect("sent");
                let sent = BootInstant::now();
                // What the program does meanwhile is no matter of the runtime.
                std::thread::sleep(late);
                assert_eq!(client.read(&mut room).await.ok(), Some(1));
                assert!(last.get() >= before, "never before it was sent");
                if last.get() < sent.plus(late / 2) {
                    return;
                }
            }
        }
        panic!("each seems to have arrived when it was read");
    }

    #[tokio::test]
    async fn the_end_of_a_connection_is_noticed_and_much_is_read_in_parts() {
        let (mut client, mut server) = connected().await;
        let sent: Vec<u8> = (0..1_000_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let expected = sent.clone();
        let sending = tokio::spawn(async move { server.write_all(&sent).await });
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.expect("it ends");
        sending.await.expect("it ends").expect("all is sent");
        assert!(received == expected, "{} bytes", received.len());
    }
}
