//! Who holds which block when: the same for every policy, and for the bound.
//!
//! # Guarantees
//! 1. *Independent of the policy*: a change is on a device from the time on at which it must be
//!    there at the latest. Before, it is read elsewhere, at first from memory.
//! 2. *No foresight*: a device gets what was written, or read elsewhere, and nothing else.
//! 3. What has no room any more is what was not used for longest.

use super::machine::Machine;
use crate::numbers::mix;
use std::collections::{BTreeMap, HashMap};
use teal_energy::device::{DeviceId, DeviceSet};
use teal_energy::profile::Kind;
use teal_types::{Span, Time};

/// Bytes of a block.
pub(super) const BLOCK: u64 = 4096;
/// The block that stands for a file's attributes, a directory's entries, a link's target.
pub(super) const ATTRIBUTES: u64 = u64::MAX;

/// A block: the file, and the block's number in it.
pub(super) type Key = (u64, u64);

/// What was not used for longest, of at most so many blocks.
#[derive(Debug, Clone, Default)]
struct Lru {
    room: u64,
    used: HashMap<Key, u64>,
    order: BTreeMap<u64, Key>,
    tick: u64,
}

impl Lru {
    fn new(bytes: u64) -> Self {
        Self {
            room: bytes / BLOCK,
            ..Self::default()
        }
    }

    /// Uses a block; says whether it was there.
    fn touch(&mut self, key: Key) -> bool {
        let Some(tick) = self.used.get_mut(&key) else {
            return false;
        };
        self.order.remove(tick);
        self.tick += 1;
        *tick = self.tick;
        self.order.insert(self.tick, key);
        true
    }

    /// Puts a block in; gives the one that makes way.
    fn put(&mut self, key: Key) -> Option<Key> {
        if self.touch(key) {
            return None;
        }
        self.tick += 1;
        self.used.insert(key, self.tick);
        self.order.insert(self.tick, key);
        if self.used.len() as u64 <= self.room {
            return None;
        }
        let (_, oldest) = self.order.pop_first()?;
        self.used.remove(&oldest);
        Some(oldest)
    }

    fn drop(&mut self, key: Key) {
        if let Some(tick) = self.used.remove(&key) {
            self.order.remove(&tick);
        }
    }
}

/// Devices that hold a block, and devices that will, each at its own time after `since`.
#[derive(Debug, Clone, Copy)]
struct Held {
    now: DeviceSet,
    later: DeviceSet,
    since: Time,
}

/// Where a block is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    /// In memory: in the page cache, or not written anywhere yet.
    Memory,
    /// On these devices, never none.
    Devices(DeviceSet),
    /// Nowhere that can be reached.
    Nowhere,
}

#[derive(Debug)]
pub(super) struct Contents<'a> {
    machine: &'a Machine,
    ages: Vec<Option<Span>>,
    links: DeviceSet,
    held: HashMap<Key, Held>,
    memory: Lru,
    /// By device; `None`: it has room for everything.
    rooms: Vec<Option<Lru>>,
    outages: &'a [(Time, Time)],
}

impl<'a> Contents<'a> {
    /// With so many bytes of page cache, and links that are down at these times.
    pub(super) fn new(machine: &'a Machine, memory: u64, outages: &'a [(Time, Time)]) -> Self {
        let links = machine
            .each()
            .filter(|(_, part)| part.device.kind == Kind::Link)
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

    /// Returns whether a device may hold anything of a file.
    fn takes(&self, id: DeviceId, file: u64) -> bool {
        let spread = self.machine.spread;
        if !spread.has(id) {
            return true;
        }
        let at = mix(file) % spread.iter().count() as u64;
        spread
            .iter()
            .zip(0..)
            .any(|(disk, n)| disk == id && n == at)
    }

    /// Devices that want changes of a file.
    pub(super) fn sinks(&self, file: u64) -> DeviceSet {
        let wants = |id: &DeviceId| self.ages[id.index()].is_some() && self.takes(*id, file);
        self.machine
            .each()
            .map(|(id, _)| id)
            .filter(wants)
            .collect()
    }

    fn at_first(&self, (file, block): Key) -> Held {
        let holds = |id: DeviceId| {
            let share = self.machine.parts[id.index()].holds;
            let chance = mix(file ^ mix(id.index() as u64 + 1)) % 100;
            (block == ATTRIBUTES && share.attributes) || chance < share.files.into()
        };
        let ids = self.machine.each().map(|(id, _)| id);
        let now = ids
            .filter(|id| self.takes(*id, file) && holds(*id))
            .collect();
        Held {
            now,
            later: DeviceSet::EMPTY,
            since: Time::ZERO,
        }
    }

    /// Returns what is known of a block at a time, with the devices that have got it meanwhile.
    fn look(&mut self, at: Time, key: Key) -> Held {
        let mut held = self
            .held
            .get(&key)
            .copied()
            .unwrap_or_else(|| self.at_first(key));
        for id in held.later.iter() {
            if self.ages[id.index()].is_some_and(|age| held.since + age <= at) {
                (held.now, held.later) = (held.now.with(id), held.later.without(id));
            }
        }
        held
    }

    fn keep(&mut self, key: Key, held: Held) {
        self.held.insert(key, held);
        for id in held.now.iter().chain(held.later.iter()) {
            let Some(out) = self.rooms[id.index()]
                .as_mut()
                .and_then(|room| room.put(key))
            else {
                continue;
            };
            let mut gone = self
                .held
                .get(&out)
                .copied()
                .unwrap_or_else(|| self.at_first(out));
            (gone.now, gone.later) = (gone.now.without(id), gone.later.without(id));
            self.held.insert(out, gone);
        }
    }

    /// Reads a block: where from, and the devices that get a copy of it.
    pub(super) fn read(&mut self, at: Time, key: Key) -> (Where, DeviceSet) {
        if self.memory.touch(key) {
            return (Where::Memory, DeviceSet::EMPTY);
        }
        let mut held = self.look(at, key);
        let is_down = self
            .outages
            .iter()
            .any(|(from, until)| *from <= at && at < *until);
        let reached = if is_down {
            held.now.iter().filter(|id| !self.links.has(*id)).collect()
        } else {
            held.now
        };
        let place = match (reached.is_empty(), held.later.is_empty()) {
            (false, _) => Where::Devices(reached),
            (true, false) => Where::Memory,
            (true, true) => return (Where::Nowhere, DeviceSet::EMPTY),
        };
        self.memory.put(key);
        let lacks =
            |id: &DeviceId| !held.now.has(*id) && !held.later.has(*id) && self.takes(*id, key.0);
        let keepers = self
            .machine
            .each()
            .filter(|(_, part)| part.keeps)
            .map(|(id, _)| id);
        let copied: DeviceSet = keepers.filter(lacks).collect();
        let copied = if place == Where::Memory {
            DeviceSet::EMPTY
        } else {
            copied
        };
        if !copied.is_empty() {
            held.later = held.later.iter().chain(copied.iter()).collect();
            held.since = at;
        }
        self.keep(key, held);
        (place, copied)
    }

    /// Writes a block: from now on every device that wants it lacks it, until it must have it.
    pub(super) fn write(&mut self, at: Time, key: Key) {
        self.memory.put(key);
        let held = Held {
            now: DeviceSet::EMPTY,
            later: self.sinks(key.0),
            since: at,
        };
        self.keep(key, held);
    }

    /// A block becomes the same as another one, without being read.
    pub(super) fn copy(&mut self, at: Time, from: Key, to: Key) {
        let held = self.look(at, from);
        self.memory.drop(to);
        self.keep(to, held);
    }

    /// A file is gone.
    pub(super) fn forget(&mut self, key: Key) {
        self.held.remove(&key);
        self.memory.drop(key);
        self.rooms
            .iter_mut()
            .flatten()
            .for_each(|room| room.drop(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::machine::Share;

    fn at(seconds: u64) -> Time {
        Time::after_start(Span::secs(seconds))
    }

    fn set(devices: &[usize]) -> DeviceSet {
        devices.iter().filter_map(|id| DeviceId::new(*id)).collect()
    }

    #[test]
    fn a_change_is_read_from_memory_then_from_who_has_it_first() {
        let laptop = Machine::named("laptop").unwrap();
        let mut contents = Contents::new(&laptop, 0, &[]);
        contents.write(at(10), (7, 0));
        let mut read = |seconds| contents.read(at(seconds), (7, 0)).0;
        assert_eq!(read(14), Where::Memory);
        assert_eq!(read(15), Where::Devices(set(&[0])), "the home log");
        assert_eq!(read(40), Where::Devices(set(&[0, 2])), "the server");
        assert_eq!(
            read(24 * 3600 + 10),
            Where::Devices(set(&[0, 1, 2])),
            "the disk"
        );
    }

    #[test]
    fn what_is_read_elsewhere_is_copied_to_flash() {
        let laptop = Machine::named("laptop").unwrap();
        let mut contents = Contents::new(&laptop, 0, &[]);
        assert_eq!(
            contents.read(at(0), (7, 0)),
            (Where::Devices(set(&[1, 2])), set(&[0]))
        );
        assert_eq!(
            contents.read(at(4), (7, 0)),
            (Where::Devices(set(&[1, 2])), set(&[])),
            "on its way"
        );
        assert_eq!(
            contents.read(at(5), (7, 0)),
            (Where::Devices(set(&[0, 1, 2])), set(&[]))
        );
        let mut cached = Contents::new(&laptop, 2 * BLOCK, &[]);
        for block in [0, 1, 0, 2] {
            cached.read(at(0), (7, block));
        }
        let is_cached = |contents: &mut Contents<'_>, block| {
            contents.read(at(1), (7, block)).0 == Where::Memory
        };
        assert!(
            is_cached(&mut cached, 0) && is_cached(&mut cached, 2) && !is_cached(&mut cached, 1)
        );
    }

    #[test]
    fn flash_that_is_full_forgets_what_was_not_used_for_longest() {
        let mut laptop = Machine::named("laptop").unwrap();
        laptop.parts[0].room = Some(2 * BLOCK);
        let mut contents = Contents::new(&laptop, 0, &[]);
        for block in 0..3 {
            contents.read(at(0), (7, block));
        }
        let places = [0, 1, 2].map(|block| contents.look(at(9), (7, block)).now);
        assert_eq!(places, [set(&[1, 2]), set(&[0, 1, 2]), set(&[0, 1, 2])]);
    }

    #[test]
    fn spread_files_are_on_one_disk_each_and_partly_warm_ones_on_some() {
        let server = Machine::named("home-server").unwrap();
        let mut contents = Contents::new(&server, 0, &[]);
        let mut seen = [0; 5];
        for file in 0..1000 {
            let (Where::Devices(copies), _) = contents.read(at(0), (file, 0)) else {
                panic!("it is somewhere")
            };
            let only: Vec<_> = copies.iter().collect();
            assert_eq!(only.len(), 1);
            seen[only[0].index()] += 1;
            let sinks = contents.sinks(file);
            assert_eq!(sinks, copies.with(DeviceId::new(0).unwrap()));
        }
        assert!(
            seen[0] == 0 && seen[1..].iter().all(|count| (200..300).contains(count)),
            "{seen:?}"
        );
        let mut handheld = Machine::named("handheld").unwrap();
        handheld.parts[0].holds = Share {
            files: 50,
            attributes: true,
        };
        let contents = Contents::new(&handheld, 0, &[]);
        let warm = (0..1000)
            .filter(|file| contents.at_first((*file, 0)).now == set(&[0, 1]))
            .count();
        assert!((450..550).contains(&warm), "{warm}");
        assert_eq!(contents.at_first((3, ATTRIBUTES)).now, set(&[0, 1]));
    }

    #[test]
    fn a_link_that_is_down_serves_nothing() {
        let mut handheld = Machine::named("handheld").unwrap();
        handheld.parts[0].holds = Share::NOTHING;
        let outages = [(at(10), at(20))];
        let mut contents = Contents::new(&handheld, 0, &outages);
        assert_eq!(contents.read(at(15), (1, 0)), (Where::Nowhere, set(&[])));
        assert_eq!(
            contents.read(at(20), (1, 0)),
            (Where::Devices(set(&[1])), set(&[0]))
        );
    }
}
