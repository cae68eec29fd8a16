//! Reads many objects in the order in which they lie on the disk: a disk with a head must not move
//! it for every object.

use crate::format::checksum::crc_matches;
use crate::format::imap::RecordHome;
use crate::object::objects::ObjectStore;
use crate::object::state::ObjectState;
use crate::tree::reader::CachedReader;
use std::collections::BTreeSet;
use teal_types::{ObjectNo, SECTOR, Sector};

/// Bytes that a head passes over in less time than it takes to move.
const WORTH_PASSING: u64 = 64 << 10;
/// Bytes of one read for many objects.
const SWEEP: u64 = 1 << 20;

/// Hands out objects as their records on the disk say, each once: first those without one, then in
/// the order in which they lie. `None` for what is not there or cannot be read so.
pub(crate) fn sweep_objects(
    store: &ObjectStore,
    wanted: BTreeSet<ObjectNo>,
    each: &mut dyn FnMut(ObjectNo, Option<ObjectState>),
) {
    let mut homes: Vec<(RecordHome, ObjectNo)> = Vec::with_capacity(wanted.len());
    for no in wanted {
        match home_on_disk(store, no) {
            Some(home) => homes.push((home, no)),
            None => each(no, None),
        }
    }
    // In the order of their places: one sweep over the disk.
    homes.sort_unstable_by_key(|(home, _)| home.byte);
    let mut rest = homes.as_slice();
    while let Some((first, _)) = rest.first() {
        let start = first.byte / SECTOR * SECTOR;
        let (count, end) = count_together(rest, start);
        let (now, later) = rest.split_at(count);
        let bytes = read_stretch(&store.reader, start, end).unwrap_or_default();
        for (home, no) in now {
            each(*no, decode_within(&bytes, start, *home, *no));
        }
        rest = later;
    }
}

/// Returns where the record of an object lies, if that is on the disk.
fn home_on_disk(store: &ObjectStore, no: ObjectNo) -> Option<RecordHome> {
    let home = store.inode_map.read().get(&store.reader, no).ok()??;
    let end = home.byte.checked_add(u64::from(home.len))?;
    let limit = store.reader.disk().shape().sectors * SECTOR;
    (end <= limit).then_some(home)
}

/// Returns how many of these records are read together from `start` on, and where the read ends.
fn count_together(homes: &[(RecordHome, ObjectNo)], start: u64) -> (usize, u64) {
    let mut count = 0;
    let mut end = start;
    for (home, _) in homes {
        let stop = home.byte + u64::from(home.len);
        // A gap is read as well, where that is faster than a new request.
        let is_near = home.byte <= end + WORTH_PASSING && stop - start <= SWEEP;
        if !is_near {
            break;
        }
        end = stop;
        count += 1;
    }
    (count.max(1), end)
}

/// Returns the state that a record within these bytes holds, which lie at `start`.
fn decode_within(bytes: &[u8], start: u64, home: RecordHome, no: ObjectNo) -> Option<ObjectState> {
    let from = (home.byte - start) as usize;
    let record = bytes.get(from..from + home.len as usize)?;
    // A record that is not whole is left to the caller, which names it.
    if !crc_matches(record, home.crc) {
        return None;
    }
    ObjectState::decode(no, Some(home), record)
}

/// Returns what lies between two addresses, unchecked.
fn read_stretch(reader: &CachedReader, start: u64, end: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; (end.saturating_sub(start).next_multiple_of(SECTOR)) as usize];
    let at = Sector::new(start / SECTOR);
    reader.read_raw(at, &mut bytes).ok()?;
    Some(bytes)
}
