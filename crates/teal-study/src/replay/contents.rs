//! Knows which device holds which block at what time: the same for every policy, and for the bound.
//!
//! # Guarantees
//! 1. *Independent of the policy*: a change counts as on a device from the latest time at which it
//!    must be there. Before, it is read from another place, at first from memory.
//! 2. *No foresight*: a device gets content that was written, or read from elsewhere, and nothing
//!    else.
//! 3. *LRU*: the least recently used block makes way.

use super::machine::ModelledMachine;
use crate::numbers::mix_bits;
use std::collections::{BTreeMap, HashMap};
use teal_energy::device::{DeviceId, DeviceSet};
use teal_energy::profile::DeviceKind;
use teal_types::{Time, TimeSpan};

/// Bytes of a block.
pub(super) const BLOCK: u64 = 4096;
/// Number of the block that stands for a file's attributes, a directory's entries, a link's target.
pub(super) const ATTRIBUTES: u64 = u64::MAX;

/// Identifies a block: the file, and the block's number in it.
pub(super) type BlockKey = (u64, u64);

/// Holds the most recently used blocks, up to a limit.
#[derive(Debug, Clone, Default)]
struct Lru {
    room: u64,
    used: HashMap<BlockKey, u64>,
    order: BTreeMap<u64, BlockKey>,
    tick: u64,
}

impl Lru {
    fn new(bytes: u64) -> Self {
        Self {
            room: bytes / BLOCK,
            ..Self::default()
        }
    }

    /// Uses a block; returns whether it was there.
    fn touch(&mut self, key: BlockKey) -> bool {
        let Some(tick) = self.used.get_mut(&key) else {
            return false;
        };
        debug_assert!(
            self.order.contains_key(tick),
            "a block that is used is in the order"
        );
        self.order.remove(tick);
        self.tick += 1;
        *tick = self.tick;
        self.order.insert(self.tick, key);
        true
    }

    /// Inserts a block; returns the one that makes way.
    fn insert(&mut self, key: BlockKey) -> Option<BlockKey> {
        if self.touch(key) {
            return None;
        }
        self.tick += 1;
        self.used.insert(key, self.tick);
        self.order.insert(self.tick, key);
        if self.used.len() as u64 <= self.room {
            return None;
        }
        debug_assert_eq!(
            self.used.len(),
            self.order.len(),
            "each used block has one place in the order"
        );
        let (_, oldest) = self.order.pop_first()?;
        self.used.remove(&oldest);
        Some(oldest)
    }

    fn remove(&mut self, key: BlockKey) {
        if let Some(tick) = self.used.remove(&key) {
            self.order.remove(&tick);
        }
    }
}

/// Names the devices that hold a block, and those that will, each at its own time after `since`.
#[derive(Debug, Clone, Copy)]
struct BlockHolders {
    now: DeviceSet,
    later: DeviceSet,
    since: Time,
}

/// Names the place that a block is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadSource {
    /// The page cache has it, or it is not written anywhere yet.
    Memory,
    /// These devices have it; the set is never empty.
    Devices(DeviceSet),
    /// No device that can be reached has it.
    Nowhere,
}

#[derive(Debug)]
pub(super) struct DeviceContents<'a> {
    machine: &'a ModelledMachine,
    ages: Vec<Option<TimeSpan>>,
    links: DeviceSet,
    held: HashMap<BlockKey, BlockHolders>,
    memory: Lru,
    /// Blocks on each device; `None` means that it has room for everything.
    rooms: Vec<Option<Lru>>,
    outages: &'a [(Time, Time)],
}

impl<'a> DeviceContents<'a> {
    /// Starts with this number of bytes of page cache, and links that are down at these times.
    pub(super) fn new(
        machine: &'a ModelledMachine,
        memory: u64,
        outages: &'a [(Time, Time)],
    ) -> Self {
        // Links need special treatment in outages.
        let links = machine
            .iter_devices()
            .filter(|(_, part)| part.device.kind == DeviceKind::Link)
            .map(|(id, _)| id);
        Self {
            machine,
            ages: machine
                .parts
                .iter()
                .map(|part| part.device.queue.map(|queue| queue.age))
                .collect(),
            links: links.collect(),
            held: HashMap::new(),
            memory: Lru::new(memory),
            rooms: machine
                .parts
                .iter()
                .map(|part| part.room.map(Lru::new))
                .collect(),
            outages,
        }
    }

    /// Returns whether a device may hold content of a file.
    fn may_hold(&self, id: DeviceId, file: u64) -> bool {
        let spread = self.machine.spread;
        if !spread.contains(id) {
            return true;
        }
        // The file's hash chooses one of the disks, evenly and for ever.
        let at = mix_bits(file) % spread.iter().count() as u64;
        spread
            .iter()
            .zip(0..)
            .any(|(disk, n)| disk == id && n == at)
    }

    /// Returns the devices that want changes of a file.
    pub(super) fn sinks_of(&self, file: u64) -> DeviceSet {
        let wants = |id: &DeviceId| self.ages[id.index()].is_some() && self.may_hold(*id, file);
        self.machine
            .iter_devices()
            .map(|(id, _)| id)
            .filter(wants)
            .collect()
    }

    fn initial_holders(&self, (file, block): BlockKey) -> BlockHolders {
        // The hash of file and device decides whether the device holds the file.
        let holds = |id: DeviceId| {
            let share = self.machine.parts[id.index()].holds;
            // The hash decides for each file and device alike, so that a share is the same in every
            // run.
            let chance = mix_bits(file ^ mix_bits(id.index() as u64 + 1)) % 100;
            (block == ATTRIBUTES && share.attributes) || chance < share.files.into()
        };
        let ids = self.machine.iter_devices().map(|(id, _)| id);
        let now = ids
            .filter(|id| self.may_hold(*id, file) && holds(*id))
            .collect();
        BlockHolders {
            now,
            later: DeviceSet::EMPTY,
            since: Time::ZERO,
        }
    }

    /// Returns the holders of a block at a time, with the devices that have got it meanwhile.
    fn holders_at(&mut self, at: Time, key: BlockKey) -> BlockHolders {
        let mut held = self
            .held
            .get(&key)
            .copied()
            .unwrap_or_else(|| self.initial_holders(key));
        // A device gets a change at its age, whether the policy writes it sooner or not.
        for id in held.later.iter() {
            if self.ages[id.index()].is_some_and(|age| held.since + age <= at) {
                (held.now, held.later) = (held.now.with_device(id), held.later.without_device(id));
            }
        }
        held
    }

    fn record_holders(&mut self, key: BlockKey, held: BlockHolders) {
        self.held.insert(key, held);
        for id in held.now.iter().chain(held.later.iter()) {
            // A full device loses its least recently used block, and its holders are told.
            let Some(out) = self.rooms[id.index()]
                .as_mut()
                .and_then(|room| room.insert(key))
            else {
                continue;
            };
            let mut gone = self
                .held
                .get(&out)
                .copied()
                .unwrap_or_else(|| self.initial_holders(out));
            (gone.now, gone.later) = (gone.now.without_device(id), gone.later.without_device(id));
            self.held.insert(out, gone);
        }
    }

    /// Reads a block: returns its source, and the devices that get a copy of it.
    pub(super) fn read(&mut self, at: Time, key: BlockKey) -> (ReadSource, DeviceSet) {
        if self.memory.touch(key) {
            return (ReadSource::Memory, DeviceSet::EMPTY);
        }
        let mut held = self.holders_at(at, key);
        // In an outage only local devices can serve.
        let is_down = self
            .outages
            .iter()
            .any(|(from, until)| *from <= at && at < *until);
        let reached = if is_down {
            held.now
                .iter()
                .filter(|id| !self.links.contains(*id))
                .collect()
        } else {
            held.now
        };
        // A block that only waits to be written somewhere is still in memory.
        let place = match (reached.is_empty(), held.later.is_empty()) {
            (false, _) => ReadSource::Devices(reached),
            (true, false) => ReadSource::Memory,
            (true, true) => return (ReadSource::Nowhere, DeviceSet::EMPTY),
        };
        self.memory.insert(key);
        // A keeper gets a copy unless it has the block, or will have it.
        let lacks = |id: &DeviceId| {
            !held.now.contains(*id) && !held.later.contains(*id) && self.may_hold(*id, key.0)
        };
        let keepers = self
            .machine
            .iter_devices()
            .filter(|(_, part)| part.keeps)
            .map(|(id, _)| id);
        let copied: DeviceSet = keepers.filter(lacks).collect();
        // Content of memory is not copied: it is on its way to its devices anyway.
        let copied = if place == ReadSource::Memory {
            DeviceSet::EMPTY
        } else {
            copied
        };
        if !copied.is_empty() {
            held.later = held.later.iter().chain(copied.iter()).collect();
            held.since = at;
        }
        // The block is the most recently used one of all its holders.
        self.record_holders(key, held);
        (place, copied)
    }

    /// Writes a block: every device that wants it lacks it from now on, until it must have it.
    pub(super) fn write(&mut self, at: Time, key: BlockKey) {
        self.memory.insert(key);
        let held = BlockHolders {
            now: DeviceSet::EMPTY,
            later: self.sinks_of(key.0),
            since: at,
        };
        self.record_holders(key, held);
    }

    /// Makes a block the same as another one, without reading it.
    pub(super) fn copy_block(&mut self, at: Time, from: BlockKey, to: BlockKey) {
        let held = self.holders_at(at, from);
        self.memory.remove(to);
        self.record_holders(to, held);
    }

    /// Forgets a block of a removed file.
    pub(super) fn forget_block(&mut self, key: BlockKey) {
        self.held.remove(&key);
        self.memory.remove(key);
        self.rooms
            .iter_mut()
            .flatten()
            .for_each(|room| room.remove(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::machine::InitialShare;

    fn at(seconds: u64) -> Time {
        Time::after_start(TimeSpan::from_secs(seconds))
    }

    fn set(devices: &[usize]) -> DeviceSet {
        devices.iter().filter_map(|id| DeviceId::new(*id)).collect()
    }

    #[test]
    fn a_change_is_read_from_memory_then_from_who_has_it_first() {
        let laptop = ModelledMachine::by_name("laptop").unwrap();
        let mut contents = DeviceContents::new(&laptop, 0, &[]);
        contents.write(at(10), (7, 0));
        let mut read = |seconds| contents.read(at(seconds), (7, 0)).0;
        assert_eq!(read(14), ReadSource::Memory);
        assert_eq!(read(15), ReadSource::Devices(set(&[0])), "the home log");
        assert_eq!(read(40), ReadSource::Devices(set(&[0, 2])), "the server");
        assert_eq!(
            read(24 * 3600 + 10),
            ReadSource::Devices(set(&[0, 1, 2])),
            "the disk"
        );
    }

    #[test]
    fn what_is_read_elsewhere_is_copied_to_flash() {
        let laptop = ModelledMachine::by_name("laptop").unwrap();
        let mut contents = DeviceContents::new(&laptop, 0, &[]);
        assert_eq!(
            contents.read(at(0), (7, 0)),
            (ReadSource::Devices(set(&[1, 2])), set(&[0]))
        );
        assert_eq!(
            contents.read(at(4), (7, 0)),
            (ReadSource::Devices(set(&[1, 2])), set(&[])),
            "on its way"
        );
        assert_eq!(
            contents.read(at(5), (7, 0)),
            (ReadSource::Devices(set(&[0, 1, 2])), set(&[]))
        );
        let mut cached = DeviceContents::new(&laptop, 2 * BLOCK, &[]);
        for block in [0, 1, 0, 2] {
            cached.read(at(0), (7, block));
        }
        let is_cached = |contents: &mut DeviceContents<'_>, block| {
            contents.read(at(1), (7, block)).0 == ReadSource::Memory
        };
        assert!(
            is_cached(&mut cached, 0) && is_cached(&mut cached, 2) && !is_cached(&mut cached, 1)
        );
    }

    #[test]
    fn flash_that_is_full_forgets_what_was_not_used_for_longest() {
        let mut laptop = ModelledMachine::by_name("laptop").unwrap();
        laptop.parts[0].room = Some(2 * BLOCK);
        let mut contents = DeviceContents::new(&laptop, 0, &[]);
        for block in 0..3 {
            contents.read(at(0), (7, block));
        }
        let places = [0, 1, 2].map(|block| contents.holders_at(at(9), (7, block)).now);
        assert_eq!(places, [set(&[1, 2]), set(&[0, 1, 2]), set(&[0, 1, 2])]);
    }

    #[test]
    fn spread_files_are_on_one_disk_each_and_partly_warm_ones_on_some() {
        let server = ModelledMachine::by_name("home-server").unwrap();
        let mut contents = DeviceContents::new(&server, 0, &[]);
        let mut seen = [0; 5];
        for file in 0..1000 {
            let (ReadSource::Devices(copies), _) = contents.read(at(0), (file, 0)) else {
                panic!("it is somewhere")
            };
            let only: Vec<_> = copies.iter().collect();
            assert_eq!(only.len(), 1);
            seen[only[0].index()] += 1;
            let sinks = contents.sinks_of(file);
            assert_eq!(sinks, copies.with_device(DeviceId::new(0).unwrap()));
        }
        assert!(
            seen[0] == 0 && seen[1..].iter().all(|count| (200..300).contains(count)),
            "{seen:?}"
        );
        let mut handheld = ModelledMachine::by_name("handheld").unwrap();
        handheld.parts[0].holds = InitialShare {
            files: 50,
            attributes: true,
        };
        let contents = DeviceContents::new(&handheld, 0, &[]);
        let warm = (0..1000)
            .filter(|file| contents.initial_holders((*file, 0)).now == set(&[0, 1]))
            .count();
        assert!((450..550).contains(&warm), "{warm}");
        assert_eq!(contents.initial_holders((3, ATTRIBUTES)).now, set(&[0, 1]));
    }

    #[test]
    fn a_link_that_is_down_serves_nothing() {
        let mut handheld = ModelledMachine::by_name("handheld").unwrap();
        handheld.parts[0].holds = InitialShare::NOTHING;
        let outages = [(at(10), at(20))];
        let mut contents = DeviceContents::new(&handheld, 0, &outages);
        assert_eq!(
            contents.read(at(15), (1, 0)),
            (ReadSource::Nowhere, set(&[]))
        );
        assert_eq!(
            contents.read(at(20), (1, 0)),
            (ReadSource::Devices(set(&[1])), set(&[0]))
        );
    }
}
