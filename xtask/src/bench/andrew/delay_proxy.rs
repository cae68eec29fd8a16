//! A TCP proxy on loopback with a delay and a bandwidth, which stands for a long line between two
//! machines.
//!
//! # Guarantees
//! 1. Bytes come out in the order in which they went in, half a round trip later, and not before
//!    the line had time for them and for all bytes before them in that direction, on any
//!    connection.
//! 2. A connection costs one round trip before its first byte, as it does over a real line.
//! 3. At most [`QUEUE`] pieces of a connection are under way in one direction: a faster sender
//!    waits.

use super::super::meter::monotonic_seconds;
use anyhow::{Context as _, Result};
use rustix::fs::{Mode, OFlags};
use rustix::thread::LinkNameSpaceType;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use teal_testkit::NetworkCable;

/// Bytes read at once.
const PIECE: usize = 16 << 10;
/// Pieces under way.
const QUEUE: usize = 128;

/// One direction of a line.
struct LineDirection {
    /// The time at which all bytes that went in are on their way (monotonic seconds).
    free: Mutex<f64>,
}

impl LineDirection {
    fn new() -> Self {
        Self {
            free: Mutex::new(0.0),
        }
    }

    /// Returns the time at which so many bytes that go in at `now` are on their way.
    fn departure_time(&self, bytes: usize, rate: f64, now: f64) -> f64 {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // Bytes queue up behind those that are still on their way.
        *free = free.max(now) + bytes as f64 / rate;
        *free
    }
}

struct ProxyLine {
    target: String,
    /// A round trip, in milliseconds.
    delay: AtomicU64,
    /// Bytes a second.
    rate: f64,
    lanes: [LineDirection; 2],
    is_over: AtomicBool,
}

/// A proxy in front of a listening server. Connections made through it last until one side ends
/// them.
pub(in super::super) struct DelayProxy {
    address: SocketAddr,
    line: Arc<ProxyLine>,
}

impl DelayProxy {
    /// Makes a proxy to `target` with a round trip of `delay` milliseconds, and `mbit` megabits a
    /// second each way.
    pub(in super::super) fn to_target(target: &str, delay: u64, mbit: f64) -> Result<Self> {
        Self::serve_on(TcpListener::bind("127.0.0.1:0")?, target, delay, mbit)
    }

    /// Makes a proxy of unlimited bandwidth that listens on the near machine of a cable, which has
    /// a bandwidth itself.
    pub(in super::super) fn behind_cable(cable: &NetworkCable, target: &str) -> Result<Self> {
        let namespace = cable.namespace_at(0).namespace_path();
        let listen = || -> Result<TcpListener> {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let there = rustix::fs::open(&namespace, flags, Mode::empty())?;
            rustix::thread::move_into_link_name_space(
                there.as_fd(),
                Some(LinkNameSpaceType::Network),
            )?;
            Ok(TcpListener::bind((NetworkCable::ADDRESSES[0], 0))?)
        };
        // A socket stays in the namespace in which it was made, also after this thread ends.
        let made = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("road".to_owned())
                .spawn_scoped(scope, listen);
            Ok::<_, std::io::Error>(thread?.join())
        });
        let listener = made?.map_err(|_| anyhow::anyhow!("nobody listens on the cable"))??;
        Self::serve_on(listener, target, 0, 1e5)
    }

    fn serve_on(listener: TcpListener, target: &str, delay: u64, mbit: f64) -> Result<Self> {
        let (target, delay, is_over) = (
            target.to_owned(),
            AtomicU64::new(delay),
            AtomicBool::new(false),
        );
        let rate = mbit * 1e6 / 8.0;
        let line = ProxyLine {
            target,
            delay,
            rate,
            lanes: [LineDirection::new(), LineDirection::new()],
            is_over,
        };
        let this = Self {
            address: listener.local_addr()?,
            line: Arc::new(line),
        };
        let line = Arc::clone(&this.line);
        spawn_thread("road", move || {
            for connection in listener.incoming().flatten() {
                if line.is_over.load(Ordering::Relaxed) {
                    break;
                }
                let line = Arc::clone(&line);
                spawn_thread("road", move || forward_connection(&line, connection))?;
            }
            Ok(())
        })?;
        Ok(this)
    }

    pub(in super::super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the round trip, in milliseconds.
    pub(in super::super) fn set_delay(&self, delay: u64) {
        self.line.delay.store(delay, Ordering::Relaxed);
    }
}

impl Drop for DelayProxy {
    fn drop(&mut self) {
        self.line.is_over.store(true, Ordering::Relaxed);
        // This connection wakes the thread that accepts, which then ends; behind a cable it ends
        // with the program.
        drop(TcpStream::connect_timeout(
            &self.address,
            Duration::from_millis(100),
        ));
    }
}

fn spawn_thread(name: &str, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let run = move || drop(work());
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .context("a thread")
        .map(drop)
}

// Setting up a connection takes a round trip.
fn sleep_until(time: f64) {
    let left = time - monotonic_seconds();
    if left > 0.0 {
        let (tv_sec, tv_nsec) = (left as i64, (left.fract() * 1e9) as _);
        let _ = rustix::thread::nanosleep(&rustix::thread::Timespec { tv_sec, tv_nsec });
    }
}

fn forward_connection(line: &Arc<ProxyLine>, near: TcpStream) -> Result<()> {
    sleep_until(monotonic_seconds() + line.delay.load(Ordering::Relaxed) as f64 / 1e3);
    let far = TcpStream::connect(&line.target)?;
    for end in [&near, &far] {
        // Nagle's algorithm would add delays of its own.
        end.set_nodelay(true)?;
    }
    let (there, back) = ((near.try_clone()?, far.try_clone()?), (far, near));
    let other = Arc::clone(line);
    spawn_thread("road", move || carry_bytes(&other, 0, there.0, there.1))?;
    carry_bytes(line, 1, back.0, back.1)
}

/// Carries all bytes that come `from` one end to the other, in direction `lane`.
fn carry_bytes(
    line: &Arc<ProxyLine>,
    lane: usize,
    mut from: TcpStream,
    mut to: TcpStream,
) -> Result<()> {
    let (sender, pieces) = sync_channel::<(f64, Vec<u8>)>(QUEUE);
    spawn_thread("road", move || {
        for (due, piece) in pieces {
            sleep_until(due);
            to.write_all(&piece)?;
        }
        Ok(to.shutdown(Shutdown::Write)?)
    })?;
    let mut buffer = vec![0; PIECE];
    loop {
        let read = from.read(&mut buffer)?;
        // Each direction takes half of the round trip.
        let half = line.delay.load(Ordering::Relaxed) as f64 / 2e3;
        let due = line.lanes[lane].departure_time(read, line.rate, monotonic_seconds()) + half;
        if read == 0 || sender.send((due, buffer[..read].to_vec())).is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time_one_after_the_other() {
        let lane = LineDirection::new();
        assert_eq!(lane.departure_time(1000, 1000.0, 5.0), 6.0);
        assert_eq!(
            lane.departure_time(500, 1000.0, 5.1),
            6.5,
            "behind what went before"
        );
        assert_eq!(
            lane.departure_time(1000, 1000.0, 9.0),
            10.0,
            "the line was idle"
        );
    }

    #[test]
    fn what_is_sent_arrives_whole_and_late() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let road =
            DelayProxy::to_target(&listener.local_addr().unwrap().to_string(), 40, 1000.0).unwrap();
        let sent: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
        let began = monotonic_seconds();
        let mut near = TcpStream::connect(road.address()).unwrap();
        std::thread::scope(|scope| {
            let (mut far, all) = (listener.accept().unwrap().0, &sent);
            let echo = move || {
                let mut got = Vec::new();
                far.read_to_end(&mut got).unwrap();
                far.write_all(&got).unwrap();
            };
            std::thread::Builder::new()
                .spawn_scoped(scope, echo)
                .unwrap();
            near.write_all(all).unwrap();
            near.shutdown(Shutdown::Write).unwrap();
            let mut got = Vec::new();
            near.read_to_end(&mut got).unwrap();
            assert!(got == sent);
        });
        // To connect and to and fro, and 2.4 ms each way for the bytes.
        assert!(
            monotonic_seconds() - began >= 0.0848,
            "{}",
            monotonic_seconds() - began
        );
    }
}
