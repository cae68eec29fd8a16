//! Opening: the index is rebuilt from the packs alone.
//!
//! # Guarantees
//! 1. *Complete*: every chunk that is whole on the shelf is found, also in packs cut short or
//!    damaged.
//! 2. *Nothing is touched*: what does not look like ours is reported and left alone.
//! 3. *Unreachable is not absent*: a pack that cannot be read fails the opening; it is never passed
//!    over.

use crate::batch::Writer;
use crate::counters::Counters;
use crate::domain::Domain;
use crate::error::ChunkError;
use crate::format::{Entry, Identity, PackId, header};
use crate::index::{Index, Keyed};
use crate::limits::{PACK_MAX, PACK_TARGET, PROBLEMS_MAX};
use crate::pack::{self, Tail};
use crate::packs::{Pack, Packs};
use crate::pin::Pins;
use crate::read::read_table;
use crate::shelf::directory::Access;
use crate::shelf::{Item, Shelf};
use crate::store::{ChunkStore, Inner, State};
use parking_lot::RwLock;
use std::sync::Arc;
use teal_env::{Clock, Entropy};

/// How a store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Whether anything may be stored and collected.
    pub access: Access,
    /// Packs grow to about this many bytes, at most half of [`PACK_MAX`](crate::PACK_MAX).
    pub pack_target: usize,
}

impl Default for Options {
    /// For writing, packs of [`PACK_TARGET`](crate::PACK_TARGET).
    fn default() -> Self {
        Self {
            access: Access::Write,
            pack_target: PACK_TARGET,
        }
    }
}

/// What opening has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opening {
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

enum Found {
    Whole(Vec<Entry>),
    Damaged(Vec<Entry>),
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
        domain: Domain,
        options: Options,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<(Self, Opening), ChunkError> {
        let seed = entropy.id();
        let keyed = Keyed::new(seed);
        let mut state = State {
            index: Index::new(keyed),
            packs: Packs::default(),
            pins: Pins::new(keyed),
            collecting: false,
        };
        let mut opening = Opening::default();
        let mut other_domain = None;
        for Item { name, bytes } in shelf.list()? {
            let Some(id) = PackId::of_object(&name) else {
                opening.stranger(name, "not a pack by its name");
                continue;
            };
            let (entries, whole) = match look(&*shelf, &domain, id, bytes)? {
                Found::Whole(entries) => (entries, true),
                Found::Damaged(entries) => (entries, false),
                Found::OtherKey => {
                    return Err(ChunkError::WrongKey {
                        pack: id,
                        place: shelf.place(),
                    });
                }
                Found::Stranger(why) => {
                    other_domain = other_domain.or((why == OTHER_DOMAIN).then_some(id));
                    opening.stranger(name, why);
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
            state.register(
                Pack {
                    id,
                    bytes,
                    seen: clock.monotonic(),
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
        let Options {
            access,
            pack_target,
        } = options;
        let inner = Inner {
            shelf,
            domain,
            clock,
            entropy,
            access,
            pack_target: pack_target.min(PACK_MAX as usize / 2),
            state: RwLock::new(state),
            writer: Writer::default(),
            counters: Counters::default(),
        };
        Ok((Self(Arc::new(inner)), opening))
    }
}

impl Opening {
    fn stranger(&mut self, name: String, why: &'static str) {
        log::warn!("{name}: {why}; it is left alone");
        self.stranger_count += 1;
        if self.strangers.len() < PROBLEMS_MAX {
            self.strangers.push((name, why));
        }
    }
}

/// Returns what the object of this pack is.
fn look(shelf: &dyn Shelf, domain: &Domain, id: PackId, bytes: u64) -> Result<Found, ChunkError> {
    if bytes > PACK_MAX {
        return Ok(Found::Stranger("too long for a pack"));
    }
    let ours = pack::identity(domain, id);
    if let Tail::Whole(footer, entries) = read_table(shelf, id, bytes)? {
        return Ok(foreign(&footer.identity, &ours).unwrap_or(Found::Whole(entries)));
    }
    let all = shelf.read(&id.object(), 0..bytes)?;
    // Without a whole header nothing says whose it is but the names of its chunks, which are
    // verified.
    let foreign = header::decode(&all).and_then(|(identity, _)| foreign(&identity, &ours));
    Ok(foreign.unwrap_or_else(|| Found::Damaged(pack::salvage(domain, &all))))
}

fn foreign(identity: &Identity, ours: &Identity) -> Option<Found> {
    if identity.domain != ours.domain {
        Some(Found::Stranger(OTHER_DOMAIN))
    } else if identity.key_check != ours.key_check {
        Some(Found::OtherKey)
    } else {
        (identity.pack != ours.pack).then_some(Found::Stranger("a pack under the name of another"))
    }
}
