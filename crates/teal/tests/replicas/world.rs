//! A server in memory, whole clients on disks in memory, and what can happen to them.

use crate::wire::{Seat, Trace, Wire};
use parking_lot::RwLock;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use teal_chunk::{ChunkStore, MemoryShelf, Options};
use teal_client::{Caller, Client, ClientOptions, UpstreamOptions};
use teal_env::MemDisk;
use teal_log::{CheckOptions, MkfsOptions, OpenOptions, Store};
use teal_meta::Memory;
use teal_server::{Peer, Server};
use teal_testkit::{Rng, SeededEntropy, SimClock};
use teal_types::{ObjectNo, VolumeId};

pub(crate) const ROOT: ObjectNo = ObjectNo::ROOT;
pub(crate) const CALLER: Caller = Caller { uid: 0, gid: 0, pid: 1, umask: 0o022 };
const DISK: u64 = 24 << 20;

/// A client, what its machine keeps in a power cut, and its way to the server.
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) client: Arc<Client>,
    pub(crate) wire: Arc<Wire>,
    disk: Arc<MemDisk>,
    joins: bool,
}

impl Machine {
    /// What is noted beside objects, as bytes.
    pub(crate) fn notes(&self) -> Vec<(ObjectNo, Vec<u8>)> {
        let store = self.client.store();
        let mut found = Vec::new();
        let all = store.each_note(ROOT, &mut |no, _| {
            found.push(no);
            ControlFlow::Continue(())
        });
        all.unwrap();
        found.into_iter().map(|no| (no, store.note(no).unwrap().unwrap_or_default())).collect()
    }
}

/// All of them.
pub(crate) struct World {
    pub(crate) clock: SimClock,
    pub(crate) machines: Vec<Machine>,
    pub(crate) trace: Trace,
    pub(crate) seat: Seat,
    pub(crate) volume: VolumeId,
    meta: Memory,
    shelf: MemoryShelf,
    entropy: Arc<SeededEntropy>,
    is_printed: bool,
}

fn serve(meta: &Memory, shelf: &MemoryShelf, clock: &SimClock, entropy: &Arc<SeededEntropy>) -> Arc<Server> {
    let domain = teal_server::domain(meta, &**entropy).unwrap();
    let clock = Arc::new(clock.clone());
    let shelf = Arc::new(shelf.clone());
    let chunks = ChunkStore::open(shelf, domain, Options::default(), clock.clone(), Arc::clone(entropy) as _);
    let meta = Arc::new(meta.clone());
    Arc::new(Server::open(meta, chunks.unwrap().0, clock, Arc::clone(entropy) as _).unwrap())
}

impl World {
    pub(crate) fn new(seed: u64, is_printed: bool) -> Self {
        let (clock, entropy) = (SimClock::default(), Arc::new(SeededEntropy::new(seed)));
        let (meta, shelf) = (Memory::new(), MemoryShelf::new());
        let server = serve(&meta, &shelf, &clock, &entropy);
        let volume = server.create_volume("home").unwrap();
        let seat = Arc::new(RwLock::new(server));
        Self { clock, machines: Vec::new(), trace: Trace::default(), seat, volume, meta, shelf, entropy, is_printed }
    }

    pub(crate) fn server(&self) -> Arc<Server> {
        Arc::clone(&*self.seat.read())
    }

    /// A device of the volume.
    pub(crate) fn enrol(&self, name: &str) -> Peer {
        let server = self.server();
        let token = server.token(self.volume, Duration::from_secs(60)).unwrap();
        server.enrol(&token, name).unwrap()
    }

    fn mkfs(&self) -> Arc<MemDisk> {
        let disk = Arc::new(MemDisk::new(DISK / 512));
        let clock = Arc::new(self.clock.clone());
        Store::mkfs(Arc::clone(&disk) as _, clock, &*self.entropy, &MkfsOptions::default()).unwrap();
        disk
    }

    fn store(&self, disk: &Arc<MemDisk>) -> Arc<Store> {
        Store::open(Arc::clone(disk) as _, Arc::new(self.clock.clone()), OpenOptions::default()).unwrap().0
    }

    /// The volume as it was before it had a server: filled by `fill`, then served by the machine it is on.
    pub(crate) fn found(&mut self, rng: &mut Rng, fill: impl FnOnce(&Client)) {
        let disk = self.mkfs();
        let clock = Arc::new(self.clock.clone());
        let alone = Client::new(self.store(&disk), clock, ClientOptions::default()).unwrap();
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

    fn add(&mut self, name: &str, disk: Arc<MemDisk>, peer: Peer, joins: bool, rng: &mut Rng) {
        let wire = Wire::new(&self.seat, peer, &self.trace, rng.fork(), self.is_printed);
        let client = self.open(name, &disk, &wire, joins);
        self.machines.push(Machine { name: name.into(), client, wire, disk, joins });
    }

    fn open(&self, name: &str, disk: &Arc<MemDisk>, wire: &Arc<Wire>, joins: bool) -> Arc<Client> {
        let (clock, options) = (Arc::new(self.clock.clone()), ClientOptions::default());
        let of_upstream = (joins, UpstreamOptions::default());
        Client::replica(self.store(disk), clock, options, Arc::clone(wire) as _, name, of_upstream).unwrap()
    }

    /// The machine's power fails and comes back: what was not committed is gone.
    pub(crate) fn cut_power(&mut self, at: usize) {
        let Machine { name, wire, disk, joins, .. } = &self.machines[at];
        let bytes = disk.snapshot();
        let disk = Arc::new(MemDisk::from_bytes(bytes));
        let client = self.open(name, &disk, &Arc::clone(wire), *joins);
        (self.machines[at].client, self.machines[at].disk) = (client, disk);
    }

    /// The server's power fails and comes back.
    pub(crate) fn cut_server(&mut self) {
        self.meta = self.meta.crash();
        *self.seat.write() = serve(&self.meta, &self.shelf, &self.clock, &self.entropy);
    }

    /// What is wrong with the stores.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        for machine in &self.machines {
            machine.client.sync().unwrap();
            let report = machine.client.store().check(CheckOptions { verify_data: true }, &mut |_| ());
            found.extend(report.problems.iter().map(|problem| format!("{}: {problem}", machine.name)));
        }
        found
    }
}
