//! All clients at once: each asks when the paper's clients do, and waits for news beside that, as
//! the program does.

use crate::Plan;
use crate::load::{self, Ask};
use crate::machine::{Known, Machine, ask, channel};
use crate::town::Town;
use anyhow::{Context as _, Result, ensure};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use teal_env::{Clock as _, SystemClock, Timer as _};
use teal_net::{Channel, ClientIdentity};
use teal_proto::{ClientRequest, PulledChanges, ServerReply};
use teal_testkit::Rng;
use teal_types::{CommitSeq, Incarnation};
use tokio::runtime::Handle;

/// Files of each volume that are read.
const FILES: usize = 64;
/// Updates are gathered for so long where another machine is connected.
const GATHER: Duration = Duration::from_secs(1);
/// The time for which the program itself waits for news.
const PULL_MS: u32 = 30_000;
/// Threads of clients do little.
const STACK: usize = 256 << 10;

/// The measurements of the clients.
#[derive(Debug, Default)]
pub(crate) struct Met {
    /// The times of all requests, but for those that wait for news.
    pub(crate) times: Vec<Duration>,
    /// The times of the flushes of new files, until the commit was durable.
    pub(crate) flushes: Vec<Duration>,
    /// Requests begun more than a second late, because earlier ones were not answered yet.
    pub(crate) late: u64,
    pub(crate) refused: u64,
    /// Words of the first refusal.
    pub(crate) words: Option<String>,
    pub(crate) updates: u64,
}

impl Met {
    fn note(&mut self, begun: Duration, answer: Result<bool, String>) {
        match answer {
            Ok(true) => self.times.push(SystemClock.monotonic_time() - begun),
            Ok(false) => self.refuse("an answer that does not fit".to_owned()),
            Err(words) => self.refuse(words),
        }
    }

    fn refuse(&mut self, words: String) {
        self.refused += 1;
        self.words.get_or_insert(words);
    }

    fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.flushes.extend(other.flushes);
        self.late += other.late;
        self.refused += other.refused;
        self.updates += other.updates;
        self.words = self.words.take().or(other.words);
    }
}

/// The counts of requests that wait for news.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) pulls: AtomicU64,
    /// States that were told.
    pub(crate) states: AtomicU64,
    pub(crate) refused: AtomicU64,
}

/// The length of the run, and its beginning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

struct Client {
    machine: Machine,
    files: Vec<Known>,
    rng: Rng,
    met: Met,
}

impl Client {
    /// Lives through `span`: requests of half a minute are spread over it, those of a spike come
    /// one upon the other.
    fn live(mut self, span: Span) -> Met {
        let phase = Duration::from_nanos(self.rng.below(load::WINDOW.as_nanos() as u64));
        let (mut window, mut flushed, mut gathered) = (span.from, span.from, 0);
        let mut end = span.from + phase;
        let mut is_first = true;
        while window < span.to {
            let mut count = load::window(&mut self.rng);
            if is_first {
                // The first one has begun before.
                count = (count as f64 * phase.as_secs_f64() / load::WINDOW.as_secs_f64()) as u64;
            }
            let step = (end - window) / u32::try_from(count.max(1)).unwrap_or(u32::MAX);
            for n in 0..count {
                let due = window + step * u32::try_from(n).unwrap_or(u32::MAX);
                if due >= span.to {
                    break;
                }
                SystemClock.wait_until(due);
                let begun = SystemClock.monotonic_time();
                self.met.late += u64::from(begun > due + Duration::from_secs(1));
                match load::ask(&mut self.rng) {
                    Ask::Update => gathered += 1,
                    Ask::Read => {
                        let known = *self.rng.pick(&self.files);
                        let read = self.machine.read(known).map_err(|e| e.to_string());
                        self.met.note(begun, read);
                    }
                }
                if gathered > 0 && begun >= flushed + GATHER {
                    (flushed, gathered) = (begun, self.flush(gathered));
                }
            }
            if gathered > 0 && end < span.to {
                SystemClock.wait_until(end.min(flushed + GATHER));
                (flushed, gathered) = (SystemClock.monotonic_time(), self.flush(gathered));
            }
            (window, end, is_first) = (end, end + load::WINDOW, false);
        }
        self.met
    }

    /// Sends so many new files; what is left to send: none.
    fn flush(&mut self, files: u64) -> u64 {
        self.met.updates += files;
        let Ok((requests, _)) = self.machine.flush(&mut self.rng, files as usize, true) else {
            return 0;
        };
        let first = SystemClock.monotonic_time();
        for request in requests {
            let begun = SystemClock.monotonic_time();
            let answer = self.machine.ask(&request).map_err(|e| e.to_string());
            let is_committed = matches!(answer, Ok(ServerReply::Committed { .. }));
            let answer = answer.and_then(|reply| match reply {
                ServerReply::Refused(refused) => Err(refused.to_string()),
                _ => Ok(true),
            });
            let failed = answer.is_err();
            self.met.note(begun, answer);
            if is_committed {
                self.met.flushes.push(SystemClock.monotonic_time() - first);
            }
            if failed {
                break;
            }
        }
        0
    }
}

/// Waits for news until `stop`, from the position it is told.
fn listen((channel, filter): (&Channel, u64), stop: &AtomicBool, news: &News) {
    let (mut since, mut digest, mut after) = (CommitSeq::new(0), [0; 32], None);
    while !stop.load(Relaxed) {
        let request = ClientRequest::Pull {
            incarnation: Incarnation::NONE,
            since,
            digest,
            filter,
            after,
            wait_ms: PULL_MS,
        };
        match ask(channel, &request) {
            Ok(ServerReply::Pulled(PulledChanges {
                to,
                digest: at,
                more,
                changes,
                ..
            })) => {
                news.pulls.fetch_add(1, Relaxed);
                news.states.fetch_add(changes.len() as u64, Relaxed);
                after = more.map(|object| (object, to));
                if more.is_none() {
                    (since, digest) = (to, at);
                }
            }
            _ => {
                news.refused.fetch_add(1, Relaxed);
                SystemClock.wait_until(SystemClock.monotonic_time() + Duration::from_millis(200));
            }
        }
    }
}

/// Connects all machines, `each` to a volume; the first of a volume makes the files that are read
/// there.
pub(crate) struct Crowd {
    clients: Vec<Client>,
    pub(crate) connecting: Duration,
}

impl Crowd {
    pub(crate) fn gather(
        plan: &Plan,
        town: &Town,
        runtime: &Handle,
        identities: &[ClientIdentity],
    ) -> Result<Self> {
        let each = plan.clients / plan.volumes;
        let begun = SystemClock.monotonic_time();
        let (mut clients, mut files) = (Vec::new(), Vec::new());
        for (n, identity) in identities.iter().enumerate() {
            let mut rng = Rng::new(n as u64);
            let mut machine = Machine::begin(
                channel(runtime, &town.address, identity),
                &format!("machine-{n}"),
            )
            .with_context(|| format!("client {n}"))?;
            if n % each == 0 {
                files = machine.make(&mut rng, FILES)?;
            }
            if !plan.in_root {
                machine.settle(&format!("machine-{n}"))?;
            }
            if !plan.everything {
                machine.keep()?;
            }
            clients.push(Client {
                machine,
                files: files.clone(),
                rng,
                met: Met::default(),
            });
        }
        ensure!(!clients.is_empty(), "no clients");
        Ok(Self {
            clients,
            connecting: SystemClock.monotonic_time() - begun,
        })
    }

    /// Runs all machines for this time; `between` is called at the beginning and at the end.
    pub(crate) fn live(self, seconds: u64, news: &News, mut between: impl FnMut()) -> Result<Met> {
        let stop = AtomicBool::new(false);
        let from = SystemClock.monotonic_time() + Duration::from_secs(5);
        let span = Span {
            from,
            to: from + Duration::from_secs(seconds),
        };
        let machines = self.clients.iter().map(|client| &client.machine);
        let channels: Vec<_> = machines
            .map(|machine| (machine.channel(), machine.filter()))
            .collect();
        std::thread::scope(|scope| {
            let thread = || std::thread::Builder::new().stack_size(STACK);
            for (channel, filter) in &channels {
                let stop = &stop;
                thread().spawn_scoped(scope, move || listen((channel, *filter), stop, news))?;
            }
            let living = self
                .clients
                .into_iter()
                .map(|client| thread().spawn_scoped(scope, move || client.live(span)));
            let living = living.collect::<Result<Vec<_>, _>>()?;
            SystemClock.wait_until(span.from);
            between();
            SystemClock.wait_until(span.to);
            between();
            let mut met = Met::default();
            for client in living {
                met.add(
                    client
                        .join()
                        .map_err(|_| anyhow::anyhow!("a client broke down"))?,
                );
            }
            stop.store(true, Relaxed);
            // A request that waits for news is answered when its machine says goodbye.
            for (channel, _) in &channels {
                drop(ask(channel, &ClientRequest::Bye));
            }
            Ok(met)
        })
    }
}
