//! What a replica keeps beside an object: what of it the server does not have, and what of the
//! server's is not here.
//!
//! # Invariants
//! 1. An object without a note is here, whole, as the server has it at the replica's position.
//! 2. A component is dirty from its first change until a batch takes it along; then it is in
//!    flight, until it is known what became of the batch. What has changed meanwhile is dirty
//!    again.
//! 3. A note changes under the object's lock, in the batch of the change it tells of.
//!
//! # Bytes, little-endian
//! | bytes | field |
//! |---:|---|
//! | 1 | version, 2; 1 is read too |
//! | 1 | flags: 1 dirty, 2 in flight, 4 absent, 8 unlisted, 16 to be looked at again; from version 2 on 32 lost a name, 64 behind |
//! | | if dirty: a part |
//! | | if in flight: batch u64, a part, and the names that were sent: links |
//! | | if absent: data commit u64, ranges |
//! | | if it lost a name: the name: directory u64, length u8, name |
//! | | if behind: commit u64 |
//!
//! A *part* is flags (1 created, 2 gone, 4 attributes, 8 data, 16 names, 32 tail: with data, from
//! version 2 on); for attributes the base u64; for data the base u64, the least size u64, and
//! ranges, then the tail if there is one: three u64; for names the base u64 and links; then a count
//! u16 of extended attributes, each base u64, length u8, name. *Links* are a count u16, each
//! directory u64, length u8, name. *Ranges* are a count u32, each start u64, end u64.

use super::committed::CommittedBatch;
use teal_types::ranges::ByteRanges;
use teal_types::{BatchNo, CommitSeq, HardLink, Name, ObjectNo};

const VERSION: u8 = 2;
/// The first version that notes the name that an object lost, and since when it is behind.
const WITH_LOST_NAME: u8 = 2;
/// The first version that notes tails.
const WITH_TAIL: u8 = 2;
const DIRTY: u8 = 1;
const IN_FLIGHT: u8 = 2;
const ABSENT: u8 = 4;
const UNLISTED: u8 = 8;
const NEEDS_LOOK: u8 = 16;
const LOST: u8 = 32;
const BEHIND: u8 = 64;

/// What was put behind the end of a file, if nothing else was done to its content since the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AppendedTail {
    /// Where what the server had at the base ends.
    pub(crate) start: u64,
    /// From where on the server does not have it. What is between was committed there, maybe behind
    /// what others had appended; that is not installed here yet.
    pub(crate) from: u64,
    /// Where it ends, once it is in flight.
    pub(crate) to: u64,
}

impl AppendedTail {
    /// One that may still grow.
    pub(crate) const fn open(start: u64, from: u64) -> Self {
        Self {
            start,
            from,
            to: u64::MAX,
        }
    }

    /// Returns whether a file that ends here has it where it is in this replica.
    pub(crate) const fn ends_at(&self, size: u64) -> bool {
        self.start == self.from && self.to == size
    }
}

/// Content that the server does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DirtyContent {
    pub(crate) base: CommitSeq,
    /// The least size since.
    pub(crate) least_size: u64,
    pub(crate) ranges: ByteRanges,
    /// Unless more was done than appending.
    pub(crate) tail: Option<AppendedTail>,
}

/// Components of an object that the server does not have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct UnsentComponents {
    /// The object itself: all of it is meant.
    pub(crate) created: bool,
    /// It is not here any more.
    pub(crate) gone: bool,
    pub(crate) attributes: Option<CommitSeq>,
    pub(crate) data: Option<DirtyContent>,
    /// The base, and the names the server has.
    pub(crate) links: Option<(CommitSeq, Vec<HardLink>)>,
    pub(crate) xattrs: Vec<(Vec<u8>, CommitSeq)>,
}

impl UnsentComponents {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the first invariant that does not hold.
    fn invariants(&self) -> Result<(), &'static str> {
        if self.created && self.gone {
            return Err("says that an object is new and gone");
        }
        if let Some(dirty) = &self.data
            && let Some(tail) = dirty.tail
            && tail.to < tail.from
        {
            return Err("has a tail that ends before it begins");
        }
        let names = self.xattrs.iter().map(|(name, _)| name);
        if names.collect::<std::collections::BTreeSet<_>>().len() != self.xattrs.len() {
            return Err("names an extended attribute twice");
        }
        Ok(())
    }

    /// The least base of all but its names: what others have changed of that since is not installed
    /// here.
    pub(crate) fn first_base(&self) -> Option<CommitSeq> {
        let data = self.data.as_ref().map(|dirty| dirty.base);
        let xattrs = self.xattrs.iter().map(|(_, base)| *base);
        self.attributes.into_iter().chain(data).chain(xattrs).min()
    }

    /// Its removal is to meet what others have changed since `first`, which was dirty or on its way
    /// here and not installed.
    pub(crate) fn removed_since(&mut self, first: Option<CommitSeq>) {
        if let (Some((base, _)), Some(first)) = (&mut self.links, first) {
            *base = first.min(*base);
        }
    }

    /// Takes up what was on its way and did not arrive.
    pub(crate) fn take_back(&mut self, in_batch: Self) {
        let first = in_batch.first_base();
        self.gone |= in_batch.gone;
        // Of what has gone since there is nothing to make; its names are removed in case they
        // arrived in another life.
        self.created = (self.created || in_batch.created) && !self.gone;
        self.attributes = in_batch.attributes.or(self.attributes);
        self.links = in_batch.links.or(self.links.take());
        if self.gone {
            self.removed_since(first);
        }
        for (name, base) in in_batch.xattrs {
            match self.xattrs.iter_mut().find(|(known, _)| *known == name) {
                Some((_, newer)) => *newer = base,
                None => self.xattrs.push((name, base)),
            }
        }
        self.data = match (in_batch.data, self.data.take()) {
            (Some(mut in_batch), Some(newer)) => {
                in_batch.tail = in_batch.tail.filter(|_| newer.tail.is_some());
                in_batch.least_size = in_batch.least_size.min(newer.least_size);
                in_batch.ranges.add_all(&newer.ranges);
                Some(in_batch)
            }
            (in_batch, newer) => in_batch.or(newer),
        };
        if let Some(DirtyContent {
            tail: Some(tail), ..
        }) = &mut self.data
        {
            tail.to = u64::MAX;
        }
    }
}

/// What is on its way in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ComponentsInFlight {
    pub(crate) batch: BatchNo,
    pub(crate) components: UnsentComponents,
    /// The names as they were sent.
    pub(crate) sent_names: Vec<HardLink>,
}

/// A note; see the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ObjectNote {
    pub(crate) dirty: UnsentComponents,
    pub(crate) in_flight: Option<ComponentsInFlight>,
    /// Content that only the server has.
    pub(crate) absent: ByteRanges,
    /// The commit whose content `absent` means.
    pub(crate) data_seq: CommitSeq,
    /// A directory whose entries only the server knows.
    pub(crate) unlisted: bool,
    /// The server's state did not fit in here: it must be looked at again.
    pub(crate) needs_look: bool,
    /// The name it had here until the server gave that to another, while it waits for one.
    pub(crate) lost_name: Option<HardLink>,
    /// What others have changed in it since this commit is not all here: it could not be installed.
    /// Whatever is changed in it here from then on was made without having seen that.
    pub(crate) behind_since: Option<CommitSeq>,
}

/// What the first bytes of an encoded note tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoteSummary {
    /// Something of the object is dirty.
    pub(crate) is_dirty: bool,
    /// Something of it is in flight.
    pub(crate) is_in_flight: bool,
    /// The server's state is to be looked at again.
    pub(crate) needs_look: bool,
}

impl NoteSummary {
    /// Returns whether the server lacks something of the object, as far as it is known here.
    pub(crate) const fn is_ours(&self) -> bool {
        self.is_dirty || self.is_in_flight
    }
}

impl ComponentsInFlight {
    /// Returns whether this is on its way in a batch that the server has committed.
    pub(crate) fn was_committed_in(&self, committed: Option<CommittedBatch>) -> bool {
        committed.is_some_and(|committed| committed.batch == self.batch)
    }
}

impl ObjectNote {
    /// Asserts what is always true of a note, in debug builds.
    pub(crate) fn check(&self) {
        if cfg!(debug_assertions)
            && let Err(broken) = self.invariants()
        {
            panic!("a note {broken}: {self:?}");
        }
    }

    /// Returns the first invariant that does not hold.
    fn invariants(&self) -> Result<(), &'static str> {
        let in_flight = self
            .in_flight
            .as_ref()
            .map(|in_flight| &in_flight.components);
        for part in [Some(&self.dirty), in_flight].into_iter().flatten() {
            part.invariants()?;
        }
        if self.unlisted && !self.absent.is_empty() {
            return Err("is of a directory that has content");
        }
        if !self.absent.is_empty() && self.data_seq == CommitSeq::default() {
            return Err("says that content of no commit is absent");
        }
        Ok(())
    }

    /// Returns whether there is nothing to note.
    pub(crate) fn is_empty(&self) -> bool {
        let is_settled =
            self.dirty.is_empty() && self.in_flight.is_none() && self.behind_since.is_none();
        is_settled && self.absent.is_empty() && !self.unlisted && !self.needs_look
    }

    /// Returns whether the server lacks something.
    pub(crate) fn is_ours(&self) -> bool {
        !self.dirty.is_empty() || self.in_flight.is_some()
    }

    /// Returns what the first bytes of an encoded note tell.
    pub(crate) fn summary(head: &[u8]) -> NoteSummary {
        let flags = head.get(1).copied().unwrap_or(0);
        NoteSummary {
            is_dirty: flags & DIRTY != 0,
            is_in_flight: flags & IN_FLIGHT != 0,
            needs_look: flags & NEEDS_LOOK != 0,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(!self.dirty.is_empty(), DIRTY)
            | flag(self.in_flight.is_some(), IN_FLIGHT)
            | flag(!self.absent.is_empty(), ABSENT)
            | flag(self.unlisted, UNLISTED)
            | flag(self.needs_look, NEEDS_LOOK)
            | flag(self.lost_name.is_some(), LOST)
            | flag(self.behind_since.is_some(), BEHIND);
        let mut out = vec![VERSION, flags];
        if !self.dirty.is_empty() {
            put_components(&mut out, &self.dirty);
        }
        if let Some(in_flight) = &self.in_flight {
            out.extend(in_flight.batch.get().to_le_bytes());
            put_components(&mut out, &in_flight.components);
            put_links(&mut out, &in_flight.sent_names);
        }
        if !self.absent.is_empty() {
            out.extend(self.data_seq.get().to_le_bytes());
            put_ranges(&mut out, &self.absent);
        }
        self.lost_name
            .iter()
            .for_each(|link| put_link(&mut out, link));
        if let Some(since) = self.behind_since {
            out.extend(since.get().to_le_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut t = NoteReader(bytes);
        let (version, flags) = (t.u8()?, t.u8()?);
        let known = if version < WITH_LOST_NAME {
            2 * NEEDS_LOOK
        } else {
            2 * BEHIND
        };
        if !(1..=VERSION).contains(&version) || flags >= known {
            return None;
        }
        let mut note = Self {
            unlisted: flags & UNLISTED != 0,
            needs_look: flags & NEEDS_LOOK != 0,
            ..Self::default()
        };
        if flags & DIRTY != 0 {
            note.dirty = t.components(version)?;
        }
        if flags & IN_FLIGHT != 0 {
            note.in_flight = Some(ComponentsInFlight {
                batch: BatchNo::new(t.u64()?),
                components: t.components(version)?,
                sent_names: t.links()?,
            });
        }
        if flags & ABSENT != 0 {
            note.data_seq = t.seq()?;
            note.absent = t.ranges()?;
        }
        if flags & LOST != 0 {
            note.lost_name = Some(t.link()?);
        }
        if flags & BEHIND != 0 {
            note.behind_since = Some(t.seq()?);
        }
        t.0.is_empty().then_some(note)
    }
}

fn put_links(out: &mut Vec<u8>, links: &[HardLink]) {
    out.extend((links.len() as u16).to_le_bytes());
    links.iter().for_each(|link| put_link(out, link));
}

fn put_link(out: &mut Vec<u8>, link: &HardLink) {
    out.extend(link.dir.get().to_le_bytes());
    put_short(out, link.name.as_bytes());
}

/// At most 255 bytes, as names are.
fn put_short(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(bytes.len() as u8);
    out.extend(bytes);
}

fn put_ranges(out: &mut Vec<u8>, ranges: &ByteRanges) {
    out.extend((ranges.iter().len() as u32).to_le_bytes());
    for (from, to) in ranges.iter() {
        out.extend(from.to_le_bytes());
        out.extend(to.to_le_bytes());
    }
}

fn put_components(out: &mut Vec<u8>, part: &UnsentComponents) {
    let tail = part.data.as_ref().and_then(|dirty| dirty.tail);
    let (created, gone, has_tail) = (part.created, part.gone, tail.is_some());
    let flags = [
        created,
        gone,
        part.attributes.is_some(),
        part.data.is_some(),
        part.links.is_some(),
        has_tail,
    ];
    out.push(
        flags
            .iter()
            .rev()
            .fold(0, |bits, set| bits << 1 | u8::from(*set)),
    );
    if let Some(base) = part.attributes {
        out.extend(base.get().to_le_bytes());
    }
    if let Some(dirty) = &part.data {
        out.extend(dirty.base.get().to_le_bytes());
        out.extend(dirty.least_size.to_le_bytes());
        put_ranges(out, &dirty.ranges);
    }
    if let Some(AppendedTail { start, from, to }) = tail {
        [start, from, to]
            .iter()
            .for_each(|word| out.extend(word.to_le_bytes()));
    }
    if let Some((base, links)) = &part.links {
        out.extend(base.get().to_le_bytes());
        put_links(out, links);
    }
    out.extend((part.xattrs.len() as u16).to_le_bytes());
    for (name, base) in &part.xattrs {
        out.extend(base.get().to_le_bytes());
        put_short(out, name);
    }
}

/// Takes fields from the front; nothing is taken past the end.
struct NoteReader<'a>(&'a [u8]);

impl<'a> NoteReader<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }
    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }
    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    fn seq(&mut self) -> Option<CommitSeq> {
        self.u64().map(CommitSeq::new)
    }
    fn short_bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u8()?;
        self.bytes(usize::from(len))
    }
    fn links(&mut self) -> Option<Vec<HardLink>> {
        let count = self.u16()?;
        (0..count).map(|_| self.link()).collect()
    }
    fn link(&mut self) -> Option<HardLink> {
        Some(HardLink {
            dir: ObjectNo::new(self.u64()?),
            name: Name::new(self.short_bytes()?).ok()?,
        })
    }
    fn ranges(&mut self) -> Option<ByteRanges> {
        let count = u32::from_le_bytes(self.array()?);
        let ranges: Option<Vec<_>> = (0..count)
            .map(|_| Some((self.u64()?, self.u64()?)))
            .collect();
        ByteRanges::from_sorted(ranges?)
    }
    fn components(&mut self, version: u8) -> Option<UnsentComponents> {
        let known = if version < WITH_TAIL { 32 } else { 64 };
        let flags = self.u8().filter(|flags| *flags < known)?;
        let mut part = UnsentComponents {
            created: flags & 1 != 0,
            gone: flags & 2 != 0,
            ..UnsentComponents::default()
        };
        if flags & 4 != 0 {
            part.attributes = Some(self.seq()?);
        }
        if flags & 8 != 0 {
            part.data = Some(DirtyContent {
                base: self.seq()?,
                least_size: self.u64()?,
                ranges: self.ranges()?,
                tail: None,
            });
        }
        if flags & 32 != 0 {
            let tail = AppendedTail {
                start: self.u64()?,
                from: self.u64()?,
                to: self.u64()?,
            };
            part.data.as_mut()?.tail = Some(tail);
        }
        if flags & 16 != 0 {
            part.links = Some((self.seq()?, self.links()?));
        }
        for _ in 0..self.u16()? {
            let base = self.seq()?;
            part.xattrs.push((self.short_bytes()?.to_vec(), base));
        }
        Some(part)
    }
}

#[cfg(test)]
mod tests;
