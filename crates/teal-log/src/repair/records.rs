//! The newest whole records of objects that the inode map does not lead to.
//!
//! # Guarantees
//! 1. *Newest wins*: of all records of an object the one with the highest sequence number and `Lsn`
//!    is taken; one that its neighbours confirm before one that they do not. If that one gave the
//!    object back, it is gone.
//! 2. *Dead stays dead*: where the usage table is whole and no record of the log is lost, nothing
//!    is taken from segments in which nothing lives.

use crate::format::checksum::crc;
use crate::format::delta::{Delta, PlacedDelta, decode_body};
use crate::format::imap::RecordHome;
use crate::recovery::chain::{ChainRecord, OpeningDisk};
use crate::seeded::{Bug, bug};
use crate::store::handle::Store;
use std::cell::RefCell;
use std::collections::BTreeMap;
use teal_types::{Lsn, ObjectNo, SECTOR};

/// The rank of what a record says of an object: confirmed, sequence number, `Lsn`.
type RecordRank = (bool, u64, Lsn);

/// The last word of the records on an object: where its record is, or that it was given back.
#[derive(Debug, Clone, Copy)]
struct LastWord {
    rank: RecordRank,
    home: Option<RecordHome>,
}

/// Returns where the newest record of each object lies that `is_wanted`.
pub(super) fn find_records(
    store: &Store,
    log_losses: u32,
    is_wanted: &mut dyn FnMut(ObjectNo) -> bool,
) -> BTreeMap<ObjectNo, RecordHome> {
    let objects = store.objects();
    let opening = OpeningDisk {
        reader: &objects.reader,
        sb: &objects.sb,
        geometry: objects.geometry,
        window: RefCell::default(),
    };
    // A segment in which nothing lives has nothing newer than what lives elsewhere.
    let is_usage_known = log_losses == 0 && has_whole_usage(store);
    let is_dead = |record: &ChainRecord| {
        let segment = objects.geometry.segment_of(record.at);
        let live = segment.map_or(0, |segment| objects.segments.lock().get(segment).live);
        is_usage_known && live == 0
    };
    let mut found: BTreeMap<ObjectNo, LastWord> = BTreeMap::new();
    for stretch in opening.surviving_stretches() {
        opening.each_record(&stretch, &mut |record| {
            if is_dead(record) {
                return;
            }
            for placed in decode_body(&record.body, record.header.deltas).map_while(Result::ok) {
                let Some(word) = last_word(record, &placed, stretch.is_confirmed) else {
                    continue;
                };
                if !is_wanted(placed.object) {
                    continue;
                }
                // The newest that is confirmed holds.
                let known = found.entry(placed.object).or_insert(word);
                if word.rank > known.rank {
                    *known = word;
                }
            }
        });
    }
    // An object that was given back last is gone.
    let homes = found
        .into_iter()
        .filter_map(|(no, word)| Some((no, word.home?)));
    homes.collect()
}

/// Returns what a delta says of an object as a whole, if it does.
fn last_word(
    record: &ChainRecord,
    placed: &PlacedDelta<'_>,
    is_confirmed: bool,
) -> Option<LastWord> {
    let lsn = Lsn::new(record.header.lsn.get() + u64::from(placed.lsn_offset));
    let rank = (is_confirmed, record.header.seq, lsn);
    let body = record.at.byte_offset() + SECTOR * (1 + u64::from(record.header.payload));
    let home = match placed.delta {
        Delta::Inode(bytes) => Some(RecordHome {
            byte: body + placed.at as u64,
            len: bytes.len() as u32,
            crc: crc(bytes),
            lsn,
        }),
        // The seeded bug: what was given back is there again.
        Delta::Free if bug(Bug::DeletedRepaired) => return None,
        Delta::Free => None,
        _ => return None,
    };
    Some(LastWord { rank, home })
}

/// Returns whether every page of the usage table can be read.
fn has_whole_usage(store: &Store) -> bool {
    // Its second copies count as well.
    let mut is_whole = true;
    let usage = store.log.usage.lock();
    usage.walk_nodes(&store.objects().reader, &mut |_, _| {}, &mut |_, _| {
        is_whole = false
    });
    is_whole
}
