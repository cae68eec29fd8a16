//! The bytes of a note: reading and writing them.
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

use super::{
    AppendedTail, ComponentsInFlight, DirtyContent, NoteSummary, ObjectNote, UnsentComponents,
};
use crate::field_reader::FieldReader;
use teal_types::ranges::ByteRanges;
use teal_types::{BatchNo, HardLink, Name, ObjectNo};

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

// The flags of a part.
const CREATED: u8 = 1;
const GONE: u8 = 2;
const ATTRIBUTES: u8 = 4;
const DATA: u8 = 8;
const NAMES: u8 = 16;
const TAIL: u8 = 32;

/// Returns the bit of a flag that is set, and none of another.
const fn flag_bit(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

impl ObjectNote {
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
        self.check();
        // The order of the parts is that of the bits.
        let flags = flag_bit(!self.dirty.is_empty(), DIRTY)
            | flag_bit(self.in_flight.is_some(), IN_FLIGHT)
            | flag_bit(!self.absent.is_empty(), ABSENT)
            | flag_bit(self.unlisted, UNLISTED)
            | flag_bit(self.needs_look, NEEDS_LOOK)
            | flag_bit(self.lost_name.is_some(), LOST)
            | flag_bit(self.behind_since.is_some(), BEHIND);
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
        for link in self.lost_name.iter() {
            put_link(&mut out, link);
        }
        if let Some(since) = self.behind_since {
            out.extend(since.get().to_le_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut t = FieldReader::new(bytes);
        let version = t.take_u8()?;
        let flags = t.take_u8()?;
        let known = if version < WITH_LOST_NAME {
            2 * NEEDS_LOOK
        } else {
            2 * BEHIND
        };
        // A newer version, or a flag from the future: damaged, as far as this program can tell.
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
                batch: BatchNo::new(t.take_u64()?),
                components: t.components(version)?,
                sent_names: t.links()?,
            });
        }
        if flags & ABSENT != 0 {
            note.data_seq = t.take_seq()?;
            note.absent = t.ranges()?;
        }
        if flags & LOST != 0 {
            note.lost_name = Some(t.link()?);
        }
        if flags & BEHIND != 0 {
            note.behind_since = Some(t.take_seq()?);
        }
        // Bytes beyond the end are damage.
        t.is_empty().then_some(note)
    }
}

fn put_links(out: &mut Vec<u8>, links: &[HardLink]) {
    debug_assert!(
        links.len() <= usize::from(u16::MAX),
        "more names than a note can hold"
    );
    out.extend((links.len() as u16).to_le_bytes());
    for link in links.iter() {
        put_link(out, link);
    }
}

fn put_link(out: &mut Vec<u8>, link: &HardLink) {
    out.extend(link.dir.get().to_le_bytes());
    put_short(out, link.name.as_bytes());
}

/// Appends at most 255 bytes, the limit of names.
fn put_short(out: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(
        bytes.len() <= usize::from(u8::MAX),
        "a name longer than a note can hold"
    );
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
    let flags = flag_bit(part.created, CREATED)
        | flag_bit(part.gone, GONE)
        | flag_bit(part.attributes.is_some(), ATTRIBUTES)
        | flag_bit(part.data.is_some(), DATA)
        | flag_bit(part.links.is_some(), NAMES)
        | flag_bit(tail.is_some(), TAIL);
    out.push(flags);
    if let Some(base) = part.attributes {
        out.extend(base.get().to_le_bytes());
    }
    if let Some(dirty) = &part.data {
        out.extend(dirty.base.get().to_le_bytes());
        out.extend(dirty.least_size.to_le_bytes());
        put_ranges(out, &dirty.ranges);
    }
    if let Some(AppendedTail { start, from, to }) = tail {
        for word in [start, from, to].iter() {
            out.extend(word.to_le_bytes());
        }
    }
    if let Some((base, links)) = &part.links {
        out.extend(base.get().to_le_bytes());
        put_links(out, links);
    }
    debug_assert!(part.xattrs.len() <= usize::from(u16::MAX));
    out.extend((part.xattrs.len() as u16).to_le_bytes());
    for (name, base) in &part.xattrs {
        out.extend(base.get().to_le_bytes());
        put_short(out, name);
    }
}

impl<'a> FieldReader<'a> {
    fn short_bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.take_u8()?;
        self.take_bytes(usize::from(len))
    }
    fn links(&mut self) -> Option<Vec<HardLink>> {
        let count = self.take_u16()?;
        (0..count).map(|_| self.link()).collect()
    }
    fn link(&mut self) -> Option<HardLink> {
        Some(HardLink {
            dir: ObjectNo::new(self.take_u64()?),
            name: Name::new(self.short_bytes()?).ok()?,
        })
    }
    fn ranges(&mut self) -> Option<ByteRanges> {
        let count = self.take_u32()?;
        let ranges: Option<Vec<_>> = (0..count)
            .map(|_| Some((self.take_u64()?, self.take_u64()?)))
            .collect();
        // Ranges must be ascending and must not touch.
        ByteRanges::from_sorted(ranges?)
    }
    fn components(&mut self, version: u8) -> Option<UnsentComponents> {
        let known = if version < WITH_TAIL {
            2 * NAMES
        } else {
            2 * TAIL
        };
        let flags = self.take_u8().filter(|flags| *flags < known)?;
        let mut part = UnsentComponents {
            created: flags & CREATED != 0,
            gone: flags & GONE != 0,
            ..UnsentComponents::default()
        };
        if flags & ATTRIBUTES != 0 {
            part.attributes = Some(self.take_seq()?);
        }
        if flags & DATA != 0 {
            part.data = Some(DirtyContent {
                base: self.take_seq()?,
                least_size: self.take_u64()?,
                ranges: self.ranges()?,
                tail: None,
            });
        }
        if flags & TAIL != 0 {
            let tail = AppendedTail {
                start: self.take_u64()?,
                from: self.take_u64()?,
                to: self.take_u64()?,
            };
            // A tail without dirty content is damage.
            part.data.as_mut()?.tail = Some(tail);
        }
        if flags & NAMES != 0 {
            part.links = Some((self.take_seq()?, self.links()?));
        }
        for _ in 0..self.take_u16()? {
            let base = self.take_seq()?;
            part.xattrs.push((self.short_bytes()?.to_vec(), base));
        }
        Some(part)
    }
}
