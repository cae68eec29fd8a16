//! Opening: the index is rebuilt from the packs alone.
//!
//! # Guarantees
//! 1. *Complete*: every chunk that is whole on the shelf is found, also in packs cut short or
//!    damaged.
//! 2. *Nothing is touched*: what does not look like ours is reported and left alone.
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
use crate::read::read_table;
use crate::shelf::directory::AccessMode;
use crate::shelf::{Shelf, ShelfObject};
use crate::store::{ChunkStore, StoreParts};
use crate::tables::{ChunkTables, PinTable};
use crate::writer::PackWriter;
use parking_lot::RwLock;
use std::sync::Arc;
use teal_env::{Clock, Entropy};

/// How a store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkStoreOptions {
    /// Whether anything may be stored and collected.
    pub access: AccessMode,
    /// Packs grow to about this many bytes, at most half of [`PACK_MAX`](crate::PACK_MAX).
    pub pack_target: usize,
}

impl Default for ChunkStoreOptions {
    /// For writing, packs of [`PACK_TARGET`](crate::PACK_TARGET).
    fn default() -> Self {
        Self {
            access: AccessMode::Write,
            pack_target: PACK_TARGET,
        }
    }
}

/// What opening has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShelfScanReport {
    /// Packs whose table was whole.
    pub packs: usize,
    /// Packs that are cut short or damaged, with how many whole chunks were found in each.
    /// Collection leaves them alone.
    pub damaged: Vec<(PackId, usize)>,
    /// Objects that are not packs of this domain, with the reason; at most
    /// [`PROBLEMS_MAX`](crate::PROBLEMS_MAX) are listed.
    pub strangers: Vec<(String, &'static str)>,
    /// How many strangers there are.
    pub stranger_count: usize,
}

enum PackFinding {
    Whole(Vec<TableEntry>),
    Damaged(Vec<TableEntry>),
    Stranger(&'static str),
    OtherKey,
}

const OTHER_DOMAIN: &str = "a pack of another domain";

impl ChunkStore {
    /// Opens the store of `domain` on `shelf`; an empty shelf is an empty store.
    ///
    /// # Errors
    /// [`ChunkError::WrongKey`], [`ChunkError::WrongDomain`], or the shelf's, naming the pack.
    pub fn open(
        shelf: Arc<dyn Shelf>,
        domain: DedupDomain,
        options: ChunkStoreOptions,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<(Self, ShelfScanReport), ChunkError> {
        let seed = entropy.random_id();
        let keyed = KeyedHashBuilder::new(seed);
        let mut state = ChunkTables {
            index: Index::new(keyed),
            packs: PackTable::default(),
            pins: PinTable::new(keyed),
            collecting: false,
        };
        let mut opening = ShelfScanReport::default();
        let mut other_domain = None;
        for ShelfObject { name, bytes } in shelf.list_objects()? {
            let Some(id) = PackId::from_object_name(&name) else {
                opening.record_stranger(name, "not a pack by its name");
                continue;
            };
            let (entries, whole) = match inspect_object(&*shelf, &domain, id, bytes)? {
                PackFinding::Whole(entries) => (entries, true),
                PackFinding::Damaged(entries) => (entries, false),
                PackFinding::OtherKey => {
                    return Err(ChunkError::WrongKey {
                        pack: id,
                        place: shelf.place(),
                    });
                }
                PackFinding::Stranger(why) => {
                    other_domain = other_domain.or((why == OTHER_DOMAIN).then_some(id));
                    opening.record_stranger(name, why);
                    continue;
                }
            };
            if whole {
                opening.packs += 1;
            } else {
                log::warn!(
                    "pack {id} is cut short or damaged; {} chunks of it are whole",
                    entries.len()
                );
                opening.damaged.push((id, entries.len()));
            }
            state.register_pack(
                Pack {
                    id,
                    bytes,
                    seen: clock.monotonic_time(),
                    whole,
                },
                &entries,
            );
        }
        if let Some(pack) = other_domain.filter(|_| opening.packs + opening.damaged.len() == 0) {
            return Err(ChunkError::WrongDomain {
                pack,
                place: shelf.place(),
            });
        }
        let ChunkStoreOptions {
            access,
            pack_target,
        } = options;
        let inner = StoreParts {
            shelf,
            domain,
            clock,
            entropy,
            access,
            pack_target: pack_target.min(PACK_MAX as usize / 2),
            state: RwLock::new(state),
            writer: PackWriter::default(),
            counters: ChunkCounters::default(),
        };
        Ok((Self(Arc::new(inner)), opening))
    }
}

impl ShelfScanReport {
    fn record_stranger(&mut self, name: String, why: &'static str) {
        log::warn!("{name}: {why}; it is left alone");
        self.stranger_count += 1;
        if self.strangers.len() < PROBLEMS_MAX {
            self.strangers.push((name, why));
        }
    }
}

/// Returns what the object of this pack is.
fn inspect_object(
    shelf: &dyn Shelf,
    domain: &DedupDomain,
    id: PackId,
    bytes: u64,
) -> Result<PackFinding, ChunkError> {
    if bytes > PACK_MAX {
        return Ok(PackFinding::Stranger("too long for a pack"));
    }
    let ours = pack::pack_identity(domain, id);
    if let PackTail::Whole(footer, entries) = read_table(shelf, id, bytes)? {
        return Ok(foreign_finding(&footer.identity, &ours).unwrap_or(PackFinding::Whole(entries)));
    }
    let all = shelf.read(&id.object_name(), 0..bytes)?;
    // Without a whole header nothing says whose it is but the names of its chunks, which are
    // verified.
    let foreign = header::decode(&all).and_then(|(identity, _)| foreign_finding(&identity, &ours));
    Ok(foreign.unwrap_or_else(|| PackFinding::Damaged(pack::salvage_chunks(domain, &all))))
}

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
