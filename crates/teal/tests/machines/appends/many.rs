//! Programs that append on two machines at once: every line that was synced can be found by name.

use super::{
    Mounted, Nas, OFlags, contents, converge, end, flush, held, is_long, join, let_pass, wait_until,
};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use teal_env::{Clock as _, SystemClock};
use teal_testkit::Rng;

/// Every line is whole in a file of this machine.
#[track_caller]
fn all_are_found(m: &Mounted, lines: &[String]) {
    let files = contents(m);
    let is_in = |content: &[u8], line: &str| {
        content
            .windows(line.len())
            .any(|window| window == line.as_bytes())
    };
    for line in lines {
        assert!(
            files.values().any(|content| is_in(content, line)),
            "{line:?} is in none of {:?}",
            files.keys()
        );
    }
}

/// A line between machines that delays what goes over it by half a round trip each way.
fn delayed(address: &str, round_trip: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (here, there) = (
        listener.local_addr().unwrap().to_string(),
        address.to_owned(),
    );
    let relay = move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(&there) else {
                continue;
            };
            for (from, to) in [
                (near.try_clone().unwrap(), far.try_clone().unwrap()),
                (far, near),
            ] {
                carry(from, to, round_trip / 2);
            }
        }
    };
    // Ends with the test's process.
    std::thread::Builder::new()
        .name("line".into())
        .spawn(relay)
        .unwrap();
    here
}

/// Carries bytes one way, each for as long as `delay`.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, receiver) = sync_channel::<(Duration, Vec<u8>)>(1024);
    let take = move || {
        let mut piece = [0; 16 << 10];
        while let Ok(n @ 1..) = from.read(&mut piece) {
            if sender
                .send((SystemClock.monotonic_time() + delay, piece[..n].to_vec()))
                .is_err()
            {
                return;
            }
        }
    };
    let give = move || {
        for (due, piece) in receiver {
            let _ = wait_until(delay, || SystemClock.monotonic_time() >= due);
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    };
    std::thread::Builder::new()
        .name("line in".into())
        .spawn(take)
        .unwrap();
    std::thread::Builder::new()
        .name("line out".into())
        .spawn(give)
        .unwrap();
}

/// A program that holds a log, and syncs each line; the lines that were synced.
fn keep_a_log(m: &Mounted, who: &str, time: Duration, seed: u64) -> Vec<String> {
    let clock = SystemClock;
    let until = clock.monotonic_time() + time;
    let mut log = held(&m.path("log"));
    let mut rng = Rng::new(seed);
    let mut lines = Vec::new();
    while clock.monotonic_time() < until {
        let line = format!(
            "{who} {} {}\n",
            lines.len(),
            "-".repeat(rng.below(60) as usize)
        );
        log.write_all(line.as_bytes()).unwrap();
        log.sync_data().unwrap();
        lines.push(line);
        // Long enough, now and then, for a line to be sent and for one of the other machine to come
        // here.
        let pause = if rng.below(5) == 0 {
            1500 + rng.below(1500)
        } else {
            10 + rng.below(100)
        };
        let_pass(Duration::from_millis(pause));
    }
    lines
}

fn two_loggers(test: &str, round_trip: Duration) {
    let Some(mut nas) = Nas::of(test, |root| {
        std::fs::write(root.join("log"), "base\n").unwrap()
    }) else {
        return;
    };
    let (address, token) = nas.serve();
    let laptop = join(test, &(delayed(&address, round_trip), token));
    converge(&nas.0, &laptop);
    let time = Duration::from_secs(if is_long() { 600 } else { 25 });
    let lines = std::thread::scope(|scope| {
        let both = [(&nas.0, "nas"), (&laptop, "laptop")].map(|(m, who)| {
            std::thread::Builder::new()
                .spawn_scoped(scope, move || keep_a_log(m, who, time, who.len() as u64))
                .unwrap()
        });
        both.map(|thread| thread.join().unwrap())
    });
    converge(&nas.0, &laptop);
    for m in [&nas.0, &laptop] {
        lines.iter().for_each(|lines| all_are_found(m, lines));
    }
    all_are_in_one(&laptop, &lines);
    end(vec![laptop, nas.0]);
}

/// The log has every line once and whole, each machine's in its order, and there is no other file.
#[track_caller]
fn all_are_in_one(m: &Mounted, lines: &[Vec<String>; 2]) {
    let files = contents(m);
    assert_eq!(files.len(), 1, "{:?}", files.keys());
    let log = String::from_utf8(files["log"].clone()).unwrap();
    let there: Vec<&str> = log.split_inclusive('\n').skip(1).collect();
    for (lines, who) in lines.iter().zip(["nas ", "laptop "]) {
        let of_one: Vec<&str> = there
            .iter()
            .copied()
            .filter(|line| line.starts_with(who))
            .collect();
        assert_eq!(of_one, *lines);
    }
    assert_eq!(there.len(), lines.iter().map(Vec::len).sum::<usize>());
}

#[test]
fn two_loggers_with_held_descriptors_lose_no_line() {
    two_loggers(
        "two_loggers_with_held_descriptors_lose_no_line",
        Duration::ZERO,
    );
}

#[test]
fn two_loggers_far_apart_lose_no_line() {
    two_loggers(
        "two_loggers_far_apart_lose_no_line",
        Duration::from_millis(100),
    );
}

/// A program on a machine, with what it holds.
struct Program<'m> {
    m: &'m Mounted,
    who: &'static str,
    held: Vec<File>,
    lines: Vec<String>,
}

const FILES: [&str; 2] = ["log", "other"];

impl<'m> Program<'m> {
    fn new(m: &'m Mounted, who: &'static str) -> Self {
        let open = |name: &str, flags| {
            let flags = flags | OFlags::RDWR | OFlags::CREATE;
            File::from(
                rustix::fs::open(m.path(name), flags, rustix::fs::Mode::from_raw_mode(0o644))
                    .unwrap(),
            )
        };
        let ways = [
            OFlags::APPEND,
            OFlags::APPEND | OFlags::DIRECT,
            OFlags::empty(),
        ];
        let held = FILES
            .iter()
            .flat_map(|name| ways.map(|flags| open(name, flags)))
            .collect();
        Self {
            m,
            who,
            held,
            lines: Vec::new(),
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        let line = format!(
            "{} {} {}\n",
            self.who,
            self.lines.len(),
            "-".repeat(rng.below(5000) as usize)
        );
        match rng.below(10) {
            0..5 => {
                let at = rng.below(self.held.len() as u64) as usize;
                let file = &mut self.held[at];
                // Without O_APPEND the program looks for the end itself.
                file.seek(SeekFrom::End(0)).unwrap();
                file.write_all(line.as_bytes()).unwrap();
                file.sync_data().unwrap();
                self.lines.push(line);
            }
            5 | 6 => {
                let mut file = held(&self.m.path(FILES[rng.below(2) as usize]));
                file.write_all(line.as_bytes()).unwrap();
                file.sync_data().unwrap();
                self.lines.push(line);
            }
            7 => drop(std::fs::read(self.m.path(FILES[rng.below(2) as usize])).unwrap()),
            8 => flush(self.m),
            _ => let_pass(Duration::from_millis(rng.below(400))),
        }
    }
}

#[test]
fn random_programs_with_held_descriptors_lose_no_line() {
    let test = "random_programs_with_held_descriptors_lose_no_line";
    let (seeds, steps) = if is_long() { (40, 400) } else { (2, 120) };
    for seed in 1..=seeds {
        let begin = |root: &std::path::Path| {
            FILES
                .iter()
                .for_each(|name| std::fs::write(root.join(name), "base\n").unwrap())
        };
        let Some(mut nas) = Nas::of(test, begin) else {
            return;
        };
        let laptop = join(test, &nas.serve());
        converge(&nas.0, &laptop);
        let lines = std::thread::scope(|scope| {
            let both = [(&nas.0, "nas"), (&laptop, "laptop")].map(|(m, who)| {
                let live = move || {
                    let mut rng = Rng::new(2 * seed + who.len() as u64 % 2);
                    let mut program = Program::new(m, who);
                    (0..steps).for_each(|_| program.step(&mut rng));
                    program.lines
                };
                std::thread::Builder::new()
                    .spawn_scoped(scope, live)
                    .unwrap()
            });
            both.map(|thread| thread.join().unwrap()).concat()
        });
        converge(&nas.0, &laptop);
        for m in [&nas.0, &laptop] {
            all_are_found(m, &lines);
        }
        end(vec![laptop, nas.0]);
    }
}
