//! What the log store costs a modelled Microdrive, phase by phase. `cargo test -p teal-rig
//! --test joules -- --nocapture` prints it.
#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

use std::sync::Arc;
use teal_emulator::{
    DiskSnapshot, DriveAccount, EmulatedDisk, EmulationPace, EmulationSetup, VirtualClock,
};
use teal_energy::Profile;
use teal_energy::ledger::{EnergyUse, WorkPhase};
use teal_env::{Disk, MemDisk, SystemEntropy};
use teal_log::{Cost, MkfsOptions, NewObject, OpenOptions, Store};
use teal_types::{Energy, FileType, Name, ObjectNo, SECTOR, Timestamp};

const FILES: u64 = 200;
const FILE: usize = 4096;
/// The physical floor for 12,800 files of 4 KiB: written once, in sequence, with one seek; and the
/// least that durable appends one by one can cost, each just ahead of the head. Of the independent
/// model; cache on and off.
const FLOOR: Energy = Energy::from_microjoules(10_100_000 / 12_800);
const FLOOR_UNCACHED: Energy = Energy::from_microjoules(14_200_000 / 12_800);
const FLOOR_DURABLE: Energy = Energy::from_microjoules(15_500_000 / 12_800);

/// A store on a modelled Microdrive, and what it is asked.
struct Bench {
    disk: Arc<EmulatedDisk<MemDisk>>,
    clock: VirtualClock,
    store: Option<Arc<Store>>,
}

impl Bench {
    fn new(has_cache: bool) -> Self {
        let setup = EmulationSetup::new(
            Profile::find_shipped("ibm-microdrive-1gb").unwrap(),
            64 << 20,
        )
        .unwrap();
        let setup = if has_cache {
            setup
        } else {
            setup.without_cache()
        };
        let clock = VirtualClock::default();
        let (memory, pace) = (
            MemDisk::new(setup.sectors()),
            EmulationPace::Virtual(clock.clone()),
        );
        let disk = Arc::new(EmulatedDisk::new(memory, &setup, pace, Box::new(())).unwrap());
        let dynamic: Arc<dyn Disk> = disk.clone();
        Store::mkfs(
            dynamic,
            Arc::new(clock.clone()),
            &SystemEntropy,
            &MkfsOptions::default(),
        )
        .unwrap();
        let mut this = Self {
            disk,
            clock,
            store: None,
        };
        this.open();
        this
    }

    fn open(&mut self) {
        let disk: Arc<dyn Disk> = self.disk.clone();
        self.store = Some(
            Store::open(disk, Arc::new(self.clock.clone()), OpenOptions::default())
                .unwrap()
                .0,
        );
    }

    fn create(&self, name: &str) -> ObjectNo {
        let store = self.store.as_ref().unwrap();
        let op = store.begin(Cost::names(2)).unwrap();
        let mut locked = op.lock(&[ObjectNo::ROOT]).unwrap();
        let now = Timestamp::default();
        let no = locked.create(NewObject {
            kind: FileType::File,
            perm: 0o644,
            uid: 0,
            gid: 0,
            rdev: 0,
            now,
        });
        locked
            .insert_entry(ObjectNo::ROOT, &Name::new(name.as_bytes()).unwrap(), no)
            .unwrap();
        locked.write(no, 0, &[7; FILE]).unwrap();
        no
    }

    fn commit(&self) {
        self.store.as_ref().unwrap().commit().unwrap();
    }

    /// Returns what `act` cost.
    fn phase(&mut self, act: impl FnOnce(&mut Self)) -> Phased {
        // The flush before belongs to what came before.
        self.disk.sync().unwrap();
        let before = self.disk.snapshot();
        act(self);
        self.disk.sync().unwrap();
        Phased::between(&before, &self.disk.snapshot())
    }
}

struct Phased {
    energy: Energy,
    line: String,
    writes: u64,
}

impl Phased {
    fn between(before: &DiskSnapshot, after: &DiskSnapshot) -> Self {
        let (requests, uses) = DriveAccount::since(&after.account, &before.account);
        let energy: Energy = uses.iter().map(|(.., energy)| *energy).sum();
        let of = |phase| {
            uses.iter()
                .find(|(used, ..)| *used == EnergyUse::Work(phase))
                .map_or(Energy::ZERO, |u| u.3)
        };
        let line = format!(
            "{energy} in {}: {} reads ({} KiB), {} writes ({} KiB), {} flushes; commands {}, seek {}, rotate {}, read {}, write {}",
            after.now.since(before.now),
            requests.reads,
            (requests.sectors_read * SECTOR) >> 10,
            requests.writes,
            (requests.sectors_written * SECTOR) >> 10,
            requests.flushes,
            of(WorkPhase::Latency),
            of(WorkPhase::Seek),
            of(WorkPhase::Rotate),
            of(WorkPhase::Read),
            of(WorkPhase::Write),
        );
        Self {
            energy,
            line,
            writes: requests.writes,
        }
    }
}

/// Joules per file, created and synced one by one.
fn measure(has_cache: bool) -> Energy {
    let mut bench = Bench::new(has_cache);
    bench.create("first");
    bench.commit();
    println!("cache {}:", if has_cache { "on" } else { "off" });
    let synced = bench.phase(|bench| {
        for n in 0..FILES {
            bench.create(&format!("file-{n}"));
            bench.commit();
        }
    });
    println!(
        "  {FILES} files of 4 KiB, synced one by one  {}",
        synced.line
    );
    assert!(synced.writes >= FILES, "every sync writes");
    let recovered = bench.phase(|bench| {
        bench.store = None;
        bench.open();
    });
    println!(
        "  opening again, all of them redone      {}",
        recovered.line
    );
    let together = bench.phase(|bench| {
        for n in 0..FILES {
            bench.create(&format!("more-{n}"));
        }
        bench.commit();
    });
    println!(
        "  {FILES} files of 4 KiB, synced together   {}",
        together.line
    );
    let each = |energy: Energy| Energy::from_microjoules(energy.get() / FILES);
    let floor = if has_cache { FLOOR } else { FLOOR_UNCACHED };
    println!(
        "  per file: {} synced one by one, {} together; floor {floor}, durable one by one {FLOOR_DURABLE}",
        each(synced.energy),
        each(together.energy)
    );
    // Whoever is below what the data alone takes on the surface has not written it.
    assert!(
        each(together.energy) > Energy::from_microjoules(4 * 230),
        "{}",
        together.line
    );
    assert!(each(together.energy) < each(synced.energy) && recovered.energy < synced.energy);
    each(synced.energy)
}

#[test]
fn a_durable_file_costs_about_a_turn_of_the_disk() {
    for has_cache in [true, false] {
        let each = measure(has_cache);
        // 10.4 mJ are a turn and the transfer; a seek more for each would be 18.
        assert!(
            (Energy::from_microjoules(1_200)..Energy::from_millijoules(20)).contains(&each),
            "{each}"
        );
    }
}
