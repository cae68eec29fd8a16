//! A server in memory, whole clients on disks in memory, and what can happen to them.

use crate::drives::Stick;
use crate::logs::Kernel;
use crate::operator::{DIRTY, IN_FLIGHT};
use crate::power::{Power, PoweredDisk, PoweredMeta, PoweredShelf};
use crate::wire::{Seat, Trace, Wire};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use teal_chunk::{ChunkStore, ChunkStoreOptions, MemoryShelf};
use teal_env::{Clock as _, DiskShape};
use teal_log::{CheckOptions, MkfsOptions, OpenOptions, Severity, Store};
use teal_meta::MemoryMeta;
use teal_posix::{Caller, FileSystem, FileSystemOptions};
use teal_replica::UpstreamOptions;
use teal_server::{Peer, Server};
use teal_testkit::{RecordingDisk, Rng, SeededEntropy, SimClock};
use teal_types::{LEASE, ObjectNo, Timestamp, VolumeId};

pub(crate) const ROOT: ObjectNo = ObjectNo::ROOT;
pub(crate) const CALLER: Caller = Caller {
    uid: 0,
    gid: 0,
    pid: 1,
    umask: 0o022,
};
const SHAPE: DiskShape = DiskShape {
    sectors: (24 << 20) / 512,
    logical: 512,
    physical: 4096,
    rotational: false,
    sparse: false,
};

/// A client, what its machine keeps in a power cut, and its way to the server.
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) client: Arc<FileSystem>,
    pub(crate) wire: Arc<Wire>,
    pub(crate) power: Power,
    pub(crate) kernel: Kernel,
    pub(crate) clock: SimClock,
    disk: RecordingDisk,
    joins: bool,
    options: UpstreamOptions,
}

impl Machine {
    /// Returns whether the server knows it, and has all it had when it lived alone: a copy can be
    /// told from it then.
    pub(crate) fn is_known(&self) -> bool {
        let status = self.client.replica().unwrap().upstream_status().unwrap();
        let is_sent = |(no, note): &(ObjectNo, Vec<u8>)| {
            no.get() >= LEASE || note[1] & (DIRTY | IN_FLIGHT) == 0
        };
        !status.author.incarnation.is_none()
            && !status.announcing
            && self.notes().iter().all(is_sent)
    }

    /// Returns what is noted beside objects, as bytes.
    pub(crate) fn notes(&self) -> Vec<(ObjectNo, Vec<u8>)> {
        let store = self.client.store();
        let mut found = Vec::new();
        let all = store.each_note(ROOT, &mut |no, _| {
            found.push(no);
            ControlFlow::Continue(())
        });
        all.unwrap();
        found
            .into_iter()
            .map(|no| (no, store.note(no).unwrap().unwrap_or_default()))
            .collect()
    }
}

/// The stores of the server.
#[derive(Clone)]
struct Kept {
    meta: MemoryMeta,
    shelf: MemoryShelf,
}

impl Kept {
    /// As a power cut now, or a copy, has it.
    fn copy(&self) -> Self {
        Self {
            meta: self.meta.after_power_cut(),
            shelf: MemoryShelf::from_objects(self.shelf.snapshot()),
        }
    }
}

/// All of them.
pub(crate) struct World {
    /// The true time, which the server has, and machines with clocks that were not changed.
    clock: SimClock,
    pub(crate) machines: Vec<Machine>,
    pub(crate) trace: Trace,
    pub(crate) seat: Seat,
    pub(crate) volume: VolumeId,
    server_clock: SimClock,
    kept: Kept,
    backup: Option<Kept>,
    pub(crate) entropy: Arc<SeededEntropy>,
    pub(crate) sticks: Vec<Stick>,
    is_printed: bool,
}

fn serve(
    kept: &Kept,
    clock: &SimClock,
    entropy: &Arc<SeededEntropy>,
    power: &Power,
    is_last_kept: bool,
) -> Arc<Server> {
    let domain = teal_server::load_domain(&kept.meta, &**entropy).unwrap();
    let clock = Arc::new(clock.clone());
    let shelf = Arc::new(PoweredShelf {
        shelf: kept.shelf.clone(),
        power: power.clone(),
        is_last_kept,
    });
    let chunks = ChunkStore::open(
        shelf,
        domain,
        ChunkStoreOptions::default(),
        clock.clone(),
        Arc::clone(entropy) as _,
    );
    let meta = Arc::new(PoweredMeta {
        memory: kept.meta.clone(),
        power: power.clone(),
        is_last_kept,
    });
    Arc::new(Server::open(meta, chunks.unwrap().0, clock, Arc::clone(entropy) as _).unwrap())
}

/// Some send at once, and interrupt each file for anything else; for some every file of a few KiB
/// is large; to some little or nothing comes ahead.
fn options(rng: &mut Rng) -> UpstreamOptions {
    let mut options = UpstreamOptions::default();
    if rng.chance(0.5) {
        options.large = 6_000;
    }
    if rng.chance(0.3) {
        (options.flush_age, options.live_age) = (Duration::ZERO, Duration::ZERO);
    }
    if rng.chance(0.6) {
        (options.content_ahead, options.names_ahead) = (rng.below(6_000), rng.below(6) as u32);
    }
    options
}

impl World {
    pub(crate) fn new(seed: u64, is_printed: bool) -> Self {
        let (clock, server_clock, entropy) = (
            SimClock::default(),
            SimClock::default(),
            Arc::new(SeededEntropy::new(seed)),
        );
        let kept = Kept {
            meta: MemoryMeta::new(),
            shelf: MemoryShelf::new(),
        };
        let power = Power::new();
        let server = serve(&kept, &server_clock, &entropy, &power, true);
        let volume = server.create_volume("home").unwrap();
        let seat = Seat::new(server, power);
        let (machines, sticks, trace) = (Vec::new(), Vec::new(), Trace::default());
        Self {
            clock,
            machines,
            trace,
            seat,
            volume,
            server_clock,
            kept,
            backup: None,
            entropy,
            sticks,
            is_printed,
        }
    }

    pub(crate) fn server(&self) -> Arc<Server> {
        Arc::clone(&*self.seat.server.read())
    }

    pub(crate) fn clock(&self) -> Arc<SimClock> {
        Arc::new(self.clock.clone())
    }

    /// Time passes everywhere.
    pub(crate) fn advance(&self, by: Duration) {
        let clocks = self.machines.iter().map(|machine| &machine.clock);
        clocks
            .chain([&self.clock, &self.server_clock])
            .for_each(|clock| clock.advance(by));
    }

    /// Sets the clock of a machine, or of the server (`None`): hours back, a year ahead, or right.
    pub(crate) fn set_clock(&self, whose: Option<usize>, rng: &mut Rng) -> String {
        let clock = whose.map_or(&self.server_clock, |at| &self.machines[at].clock);
        let now = clock.civil_time();
        let secs = match rng.below(3) {
            0 => now.secs - 3600 * (1 + rng.below(48) as i64),
            1 => now.secs + 365 * 86_400,
            _ => self.clock.civil_time().secs,
        };
        clock.set_civil(Timestamp::new(secs, now.nanos));
        format!("{} s", secs - now.secs)
    }

    /// A device of the volume.
    pub(crate) fn enrol(&self, name: &str) -> Peer {
        let server = self.server();
        let token = server
            .make_token(self.volume, Duration::from_secs(60))
            .unwrap();
        server.enrol(&token, name).unwrap()
    }

    fn mkfs(&self) -> RecordingDisk {
        let disk = RecordingDisk::new(SHAPE);
        let clock = Arc::new(self.clock.clone());
        Store::mkfs(
            Arc::new(disk.clone()),
            clock,
            &*self.entropy,
            &MkfsOptions::default(),
        )
        .unwrap();
        disk.restart_trace();
        disk
    }

    fn store(disk: &RecordingDisk, power: &Power, clock: &SimClock) -> Arc<Store> {
        let disk = PoweredDisk {
            disk: disk.clone(),
            power: power.clone(),
        };
        Store::open(
            Arc::new(disk),
            Arc::new(clock.clone()),
            OpenOptions::default(),
        )
        .unwrap()
        .0
    }

    /// The volume as it was before it had a server: filled by `fill`, then served by the machine it
    /// is on.
    pub(crate) fn found(&mut self, rng: &mut Rng, fill: impl FnOnce(&FileSystem)) {
        let disk = self.mkfs();
        let clock = Arc::new(self.clock.clone());
        let store = Self::store(&disk, &Power::new(), &self.clock);
        let alone = FileSystem::new(store, clock, FileSystemOptions::default()).unwrap();
        fill(&alone);
        alone.sync().unwrap();
        drop(alone);
        let peer = self.server().local_replica(self.volume, "nas").unwrap();
        self.add("nas", disk, peer, false, rng);
    }

    /// One more machine, with nothing on it yet.
    pub(crate) fn join(&mut self, name: &str, rng: &mut Rng) {
        let (disk, peer) = (self.mkfs(), self.enrol(name));
        self.add(name, disk, peer, true, rng);
    }

    /// The disk of a machine is copied as it is, and another machine goes on with the copy.
    pub(crate) fn clone_disk(&mut self, of: usize, rng: &mut Rng) {
        let Machine {
            name,
            disk,
            wire,
            joins,
            ..
        } = &self.machines[of];
        let copy = disk.trace().crash_at_end(rng, false).disk;
        let (name, peer, joins) = (format!("{name} again"), wire.peer(), *joins);
        self.add(&name, copy, peer, joins, rng);
    }

    fn add(&mut self, name: &str, disk: RecordingDisk, peer: Peer, joins: bool, rng: &mut Rng) {
        let (power, clock) = (Power::new(), SimClock::new(self.clock.civil_time()));
        let wire = Wire::new(
            &self.seat,
            peer,
            &self.trace,
            &power,
            rng.fork(),
            self.is_printed,
        );
        let options = options(rng);
        let client = Self::open(name, &disk, &wire, (joins, options), &power, &clock);
        let kernel = Kernel::new(rng.fork());
        kernel.boot(&client);
        self.machines.push(Machine {
            name: name.into(),
            client,
            wire,
            power,
            kernel,
            clock,
            disk,
            joins,
            options,
        });
    }

    fn open(
        name: &str,
        disk: &RecordingDisk,
        wire: &Arc<Wire>,
        of_upstream: (bool, UpstreamOptions),
        power: &Power,
        clock: &SimClock,
    ) -> Arc<FileSystem> {
        let store = Self::store(disk, power, clock);
        let (clock, options) = (Arc::new(clock.clone()), FileSystemOptions::default());
        FileSystem::replica_of(
            store,
            clock,
            options,
            Arc::clone(wire) as _,
            name,
            of_upstream,
        )
        .unwrap()
    }

    /// The machine's power fails, if it has not, and comes back: of what was not flushed, any
    /// sectors are there, or torn, or unreadable.
    pub(crate) fn cut_power(&mut self, at: usize, rng: &mut Rng) {
        let Machine {
            name,
            wire,
            power,
            clock,
            disk,
            joins,
            options,
            ..
        } = &self.machines[at];
        power.fails_after(0);
        let image = disk.trace().crash_at_end(rng, true);
        if self.is_printed {
            println!("  {name} is back: {image}");
        }
        power.stays();
        let client = Self::open(name, &image.disk, wire, (*joins, *options), power, clock);
        self.drop_sticks(at, rng);
        self.machines[at].kernel.boot(&client);
        (self.machines[at].client, self.machines[at].disk) = (client, image.disk);
    }

    /// The server's power fails, if it has not, and comes back: what was to be durable soon is, or
    /// is not. `power`: that of its next life.
    pub(crate) fn cut_server(&mut self, rng: &mut Rng) {
        if rng.chance(0.5) {
            self.kept.meta = self.kept.meta.after_power_cut();
        }
        self.start_server(rng.chance(0.5));
    }

    fn start_server(&self, is_last_kept: bool) {
        let power = &self.seat.power;
        power.stays();
        *self.seat.server.write() = serve(
            &self.kept,
            &self.server_clock,
            &self.entropy,
            power,
            is_last_kept,
        );
    }

    /// Copies the server's stores to a safe place.
    pub(crate) fn back_up(&mut self) {
        self.backup = Some(self.kept.copy());
    }

    /// The server's disks are gone; it is restored from the copy, if there is one.
    pub(crate) fn restore(&mut self) -> bool {
        let Some(kept) = self.backup.take() else {
            return false;
        };
        self.kept = kept;
        self.seat.is_restored.store(true, SeqCst);
        self.start_server(true);
        true
    }

    /// Returns what is wrong with the stores.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        for machine in &self.machines {
            machine.client.sync().unwrap();
            let report = machine
                .client
                .store()
                .check(CheckOptions { verify_data: true }, &mut |_| ());
            // An anchor that was being written when the power failed is worth a note, no more.
            let problems = report
                .problems
                .iter()
                .filter(|problem| problem.severity > Severity::Note);
            found.extend(problems.map(|problem| format!("{}: {problem}", machine.name)));
        }
        found
    }
}
