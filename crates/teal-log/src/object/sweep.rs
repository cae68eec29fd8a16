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
    let limit = store.reader.disk().shape().sectors * SECTOR;
    let is_there = |home: &RecordHome| {
        home.byte
            .checked_add(u64::from(home.len))
            .is_some_and(|end| end <= limit)
    };
    for no in wanted {
        let home = store.inode_map.read().get(&store.reader, no).ok().flatten();
        match home.filter(is_there) {
            Some(home) => homes.push((home, no)),
            None => each(no, None),
        }
    }
    homes.sort_unstable_by_key(|(home, _)| home.byte);
    let mut rest = homes.as_slice();
    while let Some((first, _)) = rest.first() {
        let start = first.byte / SECTOR * SECTOR;
        let mut end = start;
        let together = rest.iter().take_while(|(home, _)| {
            let stop = home.byte + u64::from(home.len);
            let is_near = home.byte <= end + WORTH_PASSING && stop - start <= SWEEP;
            if is_near {
                end = stop;
            }
            is_near
        });
        let (now, later) = rest.split_at(together.count().max(1));
        let bytes = read_stretch(&store.reader, start, end).unwrap_or_default();
        for (home, no) in now {
            let from = (home.byte - start) as usize;
            let record = bytes
                .get(from..from + home.len as usize)
                .filter(|record| crc_matches(record, home.crc));
            each(
                *no,
                record.and_then(|record| ObjectState::decode(*no, Some(*home), record)),
            );
        }
        rest = later;
    }
}

/// Returns what lies between two addresses, unchecked.
fn read_stretch(reader: &CachedReader, start: u64, end: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; (end.saturating_sub(start).next_multiple_of(SECTOR)) as usize];
    reader
        .read_raw(Sector::new(start / SECTOR), &mut bytes)
        .ok()
        .map(|()| bytes)
}
