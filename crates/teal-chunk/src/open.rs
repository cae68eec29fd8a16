//! Opening: the index is rebuilt from the packs alone.
//!
//! # Guarantees
//! 1. *Complete*: every chunk that is whole on the shelf is found, also in packs cut short or
//!    damaged.
//! 2. *Nothing is touched*: an object that does not look like a pack of ours is reported and left
//!    alone.
//! 3. *Unreachable is not absent*: a pack that cannot be read fails the opening; it is never passed
//!    over.

use crate::counters::ChunkCounters;
use crate::domain::DedupDomain;
use crate::error::ChunkError;
use crate::format::{PackId, PackIdentity, TableEntry, header};
use crate::index::{Index, KeyedHashBuilder};
use crate::limits::{PACK_MAX, PACK_TARGET, PROBLEMS_MAX};
use crate::pack::{self, PackTail};
use crate::packs::{Pack, PackTable};
use crate::read::{read_around_gaps, read_table};
use crate::shelf::directory::AccessMode;
use crate::shelf::{Shelf, ShelfError, ShelfObject};
use crate::store::{ChunkStore, StoreParts};
use crate::tables::{ChunkTables, PinTable};
use crate::writer::PackWriter;
use parking_lot::RwLock;
use std::collections::HashSet;
use std::sync::Arc;
use teal_env::{Clock, Entropy};

/// The options of opening a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkStoreOptions {
    /// Says whether anything may be stored and collected.
    pub access: AccessMode,
    /// Packs grow to about this many bytes, at most half of [`PACK_MAX`](crate::PACK_MAX).
    pub pack_target: usize,
}

impl Default for ChunkStoreOptions {
    /// Opens for writing, with packs of [`PACK_TARGET`](crate::PACK_TARGET).
    fn default() -> Self {
        Self {
            access: AccessMode::Write,
            pack_target: PACK_TARGET,
        }
    }
}

/// The findings of opening a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShelfScanReport {
    /// The number of packs with a whole table.
    pub packs: usize,
    /// Packs that are cut short or damaged, with how many whole chunks were found in each.
    /// Collection leaves them alone.
    pub damaged: Vec<(PackId, usize)>,
    /// Objects that are not packs of this domain, with the reason; at most
    /// [`PROBLEMS_MAX`](crate::PROBLEMS_MAX) are listed.
    pub strangers: Vec<(String, &'static str)>,
    /// The number of strangers.
    pub stranger_count: usize,
}

/// The finding about one object.
enum PackFinding {
    Whole(Vec<TableEntry>),
    Damaged(Vec<TableEntry>),
    /// Nothing of it can be read.
    Unreadable(ShelfError),
    Stranger(&'static str),
    OtherKey,
}

const OTHER_DOMAIN: &str = "a pack of another domain";

impl ChunkStore {
    /// Opens the store of `domain` on `shelf`; an empty shelf is an empty store.
    ///
    /// # Errors
    /// [`ChunkError::WrongKey`], [`ChunkError::WrongDomain`], or the shelf's error, naming the
    /// pack.
    pub fn open(
        shelf: Arc<dyn Shelf>,
        domain: DedupDomain,
        options: ChunkStoreOptions,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<(Self, ShelfScanReport), ChunkError> {
        let hash_builder = KeyedHashBuilder::new(entropy.random_id());
        let mut state = ChunkTables {
            index: Index::new(hash_builder),
            packs: PackTable::default(),
            pins: PinTable::new(hash_builder),
            collecting: false,
            found_damaged: HashSet::with_hasher(hash_builder),
        };
        let mut report = ShelfScanReport::default();
        let other_domain = scan_shelf(&*shelf, &domain, &*clock, &mut state, &mut report)?;
        // A single foreign pack beside ours is a stranger; nothing but foreign packs is a mistake.
        let has_packs = report.packs + report.damaged.len() > 0;
        if let Some(pack) = other_domain
            && !has_packs
        {
            return Err(ChunkError::WrongDomain {
                pack,
                place: shelf.place(),
            });
        }
        let parts = StoreParts {
            shelf,
            domain,
            clock,
            entropy,
            access: options.access,
            pack_target: options.pack_target.min(PACK_MAX as usize / 2),
            state: RwLock::new(state),
            writer: PackWriter::default(),
            counters: ChunkCounters::default(),
        };
        Ok((Self(Arc::new(parts)), report))
    }
}

/// Reads all objects of a shelf, and takes the chunks of our packs into the tables. Returns the
/// first pack of another domain, if there is one.
fn scan_shelf(
    shelf: &dyn Shelf,
    domain: &DedupDomain,
    clock: &dyn Clock,
    state: &mut ChunkTables,
    report: &mut ShelfScanReport,
) -> Result<Option<PackId>, ChunkError> {
    let mut other_domain = None;
    let (mut readable, mut unreadable) = (0_usize, None);
    for ShelfObject { name, bytes } in shelf.list_objects()? {
        let Some(id) = PackId::from_object_name(&name) else {
            report.record_stranger(name, "not a pack by its name");
            continue;
        };
        let (entries, whole) = match inspect_object(shelf, domain, id, bytes)? {
            PackFinding::Whole(entries) => (entries, true),
            PackFinding::Damaged(entries) => (entries, false),
            PackFinding::Unreadable(error) => {
                unreadable.get_or_insert(error);
                report.record_damaged(id, 0);
                continue;
            }
            // Nothing of this pack could be verified, and a store that went on would store all
            // chunks anew.
            PackFinding::OtherKey => {
                return Err(ChunkError::WrongKey {
                    pack: id,
                    place: shelf.place(),
                });
            }
            PackFinding::Stranger(why) => {
                if why == OTHER_DOMAIN {
                    other_domain.get_or_insert(id);
                }
                report.record_stranger(name, why);
                continue;
            }
        };
        readable += 1;
        if whole {
            report.packs += 1;
        } else {
            report.record_damaged(id, entries.len());
        }
        let pack = Pack {
            id,
            bytes,
            seen: clock.monotonic_time(),
            whole,
        };
        state.register_pack(pack, &entries);
    }
    // A shelf that is out of reach is no damage of its packs.
    match unreadable {
        Some(error) if readable == 0 => Err(error.into()),
        _ => Ok(other_domain),
    }
}

impl ShelfScanReport {
    fn record_damaged(&mut self, pack: PackId, whole_chunks: usize) {
        log::warn!("pack {pack} is cut short or damaged; {whole_chunks} chunks of it are whole");
        self.damaged.push((pack, whole_chunks));
    }

    fn record_stranger(&mut self, name: String, why: &'static str) {
        log::warn!("{name}: {why}; it is left alone");
        self.stranger_count += 1;
        if self.strangers.len() < PROBLEMS_MAX {
            self.strangers.push((name, why));
        }
    }
}

/// Reads the object of this pack as far as its table, or whole if that is damaged.
fn inspect_object(
    shelf: &dyn Shelf,
    domain: &DedupDomain,
    id: PackId,
    bytes: u64,
) -> Result<PackFinding, ChunkError> {
    // Not read: it could be as long as the disk.
    if bytes > PACK_MAX {
        return Ok(PackFinding::Stranger("too long for a pack"));
    }
    let ours = pack::pack_identity(domain, id);
    match read_table(shelf, id, bytes) {
        Ok(PackTail::Whole(footer, entries)) => {
            let foreign = foreign_finding(&footer.identity, &ours);
            return Ok(foreign.unwrap_or(PackFinding::Whole(entries)));
        }
        // One bad sector in a table does not keep the others from being served.
        Ok(_) | Err(ShelfError::Unreachable { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    // The table is lost or damaged; the whole pack is read for the headers of its chunks.
    let all = match read_around_gaps(shelf, id, bytes) {
        Ok(readable) => readable.bytes,
        // A small pack may lie in one bad sector; the others are served.
        Err(error @ ShelfError::Unreachable { .. }) => {
            log::warn!("pack {id} cannot be read: {error}");
            return Ok(PackFinding::Unreadable(error));
        }
        Err(error) => return Err(error.into()),
    };
    // Without a whole header nothing tells the domain but the names of the chunks, which are
    // verified.
    let foreign = header::decode(&all).and_then(|(identity, _)| foreign_finding(&identity, &ours));
    Ok(foreign.unwrap_or_else(|| PackFinding::Damaged(pack::salvage_chunks(domain, &all))))
}

/// Compares the identity in a pack with the one it should have; `None` if it is ours.
fn foreign_finding(identity: &PackIdentity, ours: &PackIdentity) -> Option<PackFinding> {
    if identity.domain != ours.domain {
        Some(PackFinding::Stranger(OTHER_DOMAIN))
    } else if identity.key_check != ours.key_check {
        Some(PackFinding::OtherKey)
    } else {
        (identity.pack != ours.pack)
            .then_some(PackFinding::Stranger("a pack under the name of another"))
    }
}
