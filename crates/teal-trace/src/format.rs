//! Defines every byte of a trace file: a header, then blocks of items.
//!
//! All integers are little-endian. A *varint* holds an unsigned 64-bit number in groups of seven
//! bits, the lowest first, in at most ten bytes; every byte but the last has its highest bit set. A
//! *text* is a varint length, at most 4096, and so many bytes. `docs/format-trace.md` is the same
//! in prose; `tests/format_doc.rs` holds the two against each other.
//!
//! The header:
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `TEALTRC\x01` |
//! | 8 | 2 | version: 1 |
//! | 10 | 1 | level: 1 file, 2 block |
//! | 11 | 1 | flags: bit 0 names are hashes; the others zero |
//! | 12 | 8 | start, seconds since 1970-01-01 UTC, signed |
//! | 20 | 4 | start, nanoseconds within the second |
//! | 24 | 2 | bytes of the machine's description, M, at most 4096 |
//! | 26 | 2 | bytes of the source's description, S, at most 4096 |
//! | 28 | M | the machine, for people |
//! | 28 + M | S | where the trace comes from, for people |
//! | 28 + M + S | 4 | CRC32C of everything before |
//!
//! A block; the next one follows without a gap:
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | magic `TBLK` |
//! | 4 | 4 | number of the block in the trace, from 0 |
//! | 8 | 4 | bytes of items, N, at most 262,144 |
//! | 12 | 4 | number of items |
//! | 16 | 8 | base time: nanoseconds since the trace's start |
//! | 24 | 4 | flags: bit 0 the trace ends here, as it should; the others zero |
//! | 28 | N | the items |
//! | 28 + N | 4 | CRC32C of everything before in the block |
//!
//! An item begins with a tag. 1 to 127 is an event, and the tag is the code of its action:
//!
//! | bytes | field |
//! |---|---|
//! | 1 | tag |
//! | 1 | flags: bits 0 and 1 outcome (0 unknown, 1 done, 2 failed), bit 2 the latency is known, bit 3 same process, bit 4 same object as the event before in the block (0 and 0 for the first); the others zero |
//! | varint | time since the event before in the block, or since the base time, nanoseconds |
//! | varint | process; absent with bit 3 |
//! | varint | object; absent with bit 4 |
//! | | the fields of the action in the order of the table of actions: numbers and objects are varints, yes or no is a byte 1 or 0, names are texts |
//! | varint | value if done, errno (1 to 65,535) if failed; absent if unknown |
//! | varint | latency, nanoseconds; absent without bit 2 |
//!
//! The other items:
//!
//! | tag | item | fields |
//! |---:|---|---|
//! | 192 | a name of an object | varint object, varint parent, text name |
//! | 193 | a process | varint id, varint leader, varint session, text name |
//! | 194 | events are missing here | varint how many |

use super::event::{
    Action, EventOutcome, Level, ObjectName, TraceEvent, TraceHeader, TraceItem, TracedProcess,
};
use super::field::{ActionField as _, Text};
use super::field_bytes::{FieldReader, PutVarint as _};
use std::time::Duration;
use teal_types::Timestamp;

pub(crate) const MAGIC: &[u8; 8] = b"TEALTRC\x01";
pub(crate) const VERSION: u16 = 1;
/// Bytes of a header without its texts and its checksum.
pub(crate) const HEADER_FIXED: usize = 28;
const BLOCK_MAGIC: &[u8; 4] = b"TBLK";
/// Bytes of a block's head.
pub(crate) const BLOCK_HEAD: usize = 28;
/// Limits the bytes of items in a block.
pub(crate) const BLOCK_MAX: usize = 256 << 10;
pub(crate) const CRC: usize = 4;

const TAG_CALLED: u8 = 192;
const TAG_PROCESS: u8 = 193;
const TAG_DROPPED: u8 = 194;

const OUTCOME: u8 = 3;
const HAS_LATENCY: u8 = 4;
const SAME_PROCESS: u8 = 8;
const SAME_OBJECT: u8 = 16;

/// Returns nanoseconds as the format has them: 584 years are enough.
pub(crate) fn to_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl TraceHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        debug_assert!(
            self.start.nanos < 1_000_000_000,
            "nanoseconds are within a second"
        );
        let (machine, source) = (self.machine.as_bytes(), self.source.as_bytes());
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.push(match self.level {
            Level::File => 1,
            Level::Block => 2,
        });
        out.push(u8::from(self.anonymous));
        out.extend(self.start.secs.to_le_bytes());
        out.extend(self.start.nanos.to_le_bytes());
        // A text has at most 4096 bytes, so its length fits.
        out.extend((machine.len() as u16).to_le_bytes());
        out.extend((source.len() as u16).to_le_bytes());
        out.extend_from_slice(machine);
        out.extend_from_slice(source);
        let sum = crc32c::crc32c(&out);
        out.extend(sum.to_le_bytes());
        out
    }

    /// Returns the bytes of machine and source together, from the fixed part.
    pub(crate) fn text_bytes(fixed: &[u8; HEADER_FIXED]) -> usize {
        usize::from(u16::from_le_bytes([fixed[24], fixed[25]]))
            + usize::from(u16::from_le_bytes([fixed[26], fixed[27]]))
    }

    /// Decodes a whole header; its magic and version have been checked.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (rest, sum) = bytes.split_last_chunk()?;
        if crc32c::crc32c(rest) != u32::from_le_bytes(*sum) {
            return None;
        }
        // The checksum is right, so the bytes are those of a writer: further faults are a foreign
        // version.
        let mut t = FieldReader(rest);
        t.bytes(MAGIC.len() + 2)?;
        // Each field is checked, since a writer of another version may have other values.
        let level = match t.u8()? {
            1 => Level::File,
            2 => Level::Block,
            _ => return None,
        };
        let flags = t.u8()?;
        let start = Timestamp {
            secs: i64::from_le_bytes(t.array()?),
            nanos: t.u32()?,
        };
        // The lengths of both texts come before the texts.
        let (machine, source) = (usize::from(t.u16()?), usize::from(t.u16()?));
        let machine = Text::new(t.bytes(machine)?).ok()?;
        let source = Text::new(t.bytes(source)?).ok()?;
        // Bytes behind the last text would be fields of another version.
        let is_sound = flags <= 1 && start.nanos < 1_000_000_000 && t.0.is_empty();
        is_sound.then_some(Self {
            level,
            anonymous: flags == 1,
            start,
            machine,
            source,
        })
    }
}

/// Describes the head of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHead {
    pub(crate) number: u32,
    pub(crate) bytes: u32,
    pub(crate) items: u32,
    pub(crate) base: u64,
    pub(crate) is_last: bool,
}

impl BlockHead {
    pub(crate) fn encode(self) -> [u8; BLOCK_HEAD] {
        let mut out = [0; BLOCK_HEAD];
        out[..4].copy_from_slice(BLOCK_MAGIC);
        out[4..8].copy_from_slice(&self.number.to_le_bytes());
        out[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        out[12..16].copy_from_slice(&self.items.to_le_bytes());
        out[16..24].copy_from_slice(&self.base.to_le_bytes());
        out[24..].copy_from_slice(&u32::from(self.is_last).to_le_bytes());
        out
    }
    pub(crate) fn decode(bytes: &[u8; BLOCK_HEAD]) -> Option<Self> {
        let mut t = FieldReader(bytes);
        if t.array::<4>()? != *BLOCK_MAGIC {
            return None;
        }
        let (number, bytes, items, base, flags) =
            (t.u32()?, t.u32()?, t.u32()?, t.u64()?, t.u32()?);
        // A length beyond the limit would allocate more than a block may have.
        let is_sound = bytes as usize <= BLOCK_MAX && flags <= 1;
        is_sound.then_some(Self {
            number,
            bytes,
            items,
            base,
            is_last: flags == 1,
        })
    }
}

/// Returns the CRC32C of a block's head and items.
pub(crate) fn block_sum(head: &[u8], items: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), items)
}

/// Holds the fields of the event before, from which an event's encoding takes its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PreviousEvent {
    /// Nanoseconds since the trace's start.
    pub(crate) at: u64,
    pub(crate) process: u32,
    pub(crate) object: u64,
}

impl TraceItem {
    /// Appends the item. Its time is not before that of `before`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, before: &mut PreviousEvent) {
        match self {
            Self::Event(event) => event.encode(out, before),
            Self::Called(ObjectName {
                object,
                parent,
                name,
            }) => {
                out.push(TAG_CALLED);
                out.put_varint(*object);
                out.put_varint(*parent);
                name.encode(out);
            }
            Self::Process(TracedProcess {
                id,
                leader,
                session,
                name,
            }) => {
                out.push(TAG_PROCESS);
                [*id, *leader, *session]
                    .into_iter()
                    .for_each(|n| out.put_varint(n.into()));
                name.encode(out);
            }
            Self::Dropped(count) => {
                out.push(TAG_DROPPED);
                out.put_varint(*count);
            }
        }
    }

    pub(crate) fn decode(take: &mut FieldReader<'_>, before: &mut PreviousEvent) -> Option<Self> {
        Some(match take.u8()? {
            TAG_CALLED => Self::Called(ObjectName {
                object: take.varint()?,
                parent: take.varint()?,
                name: Text::decode(take)?,
            }),
            TAG_PROCESS => {
                // The numbers of processes have 32 bits.
                let mut number = || u32::try_from(take.varint()?).ok();
                let (id, leader, session) = (number()?, number()?, number()?);
                Self::Process(TracedProcess {
                    id,
                    leader,
                    session,
                    name: Text::decode(take)?,
                })
            }
            TAG_DROPPED => Self::Dropped(take.varint()?),
            // All other tags are the codes of actions.
            code => Self::Event(TraceEvent::decode(code, take, before)?),
        })
    }
}

impl TraceEvent {
    fn encode(&self, out: &mut Vec<u8>, before: &mut PreviousEvent) {
        let at = to_nanos(self.at);
        assert!(at >= before.at, "the writer keeps events in order");
        // The outcome takes the lowest two bits of the flags.
        let outcome = match self.outcome {
            EventOutcome::Unknown => 0,
            EventOutcome::Done(_) => 1,
            EventOutcome::Failed(_) => 2,
        };
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        // Most events repeat the process and the object of the one before.
        out.push(self.action.code());
        out.push(
            outcome
                | flag(self.latency.is_some(), HAS_LATENCY)
                | flag(self.process == before.process, SAME_PROCESS)
                | flag(self.object == before.object, SAME_OBJECT),
        );
        // Times are differences, which are small numbers with few bytes.
        out.put_varint(at - before.at);
        if self.process != before.process {
            out.put_varint(self.process.into());
        }
        if self.object != before.object {
            out.put_varint(self.object);
        }
        self.action.encode(out);
        match self.outcome {
            EventOutcome::Unknown => {}
            EventOutcome::Done(value) => out.put_varint(value),
            EventOutcome::Failed(errno) => out.put_varint(errno.into()),
        }
        if let Some(latency) = self.latency {
            out.put_varint(to_nanos(latency));
        }
        *before = PreviousEvent {
            at,
            process: self.process,
            object: self.object,
        };
    }

    fn decode(code: u8, take: &mut FieldReader<'_>, before: &mut PreviousEvent) -> Option<Self> {
        // Unknown flags would mean fields that are not read here.
        let flags = take.u8()?;
        if flags > 31 {
            return None;
        }
        let at = before.at.checked_add(take.varint()?)?;
        let process = match flags & SAME_PROCESS {
            0 => u32::try_from(take.varint()?).ok()?,
            _ => before.process,
        };
        let object = if flags & SAME_OBJECT == 0 {
            take.varint()?
        } else {
            before.object
        };
        let action = Action::decode(code, take)?;
        let outcome = match flags & OUTCOME {
            0 => EventOutcome::Unknown,
            1 => EventOutcome::Done(take.varint()?),
            // An errno of 0 would be a success.
            2 => EventOutcome::Failed(
                u16::try_from(take.varint()?)
                    .ok()
                    .filter(|errno| *errno > 0)?,
            ),
            _ => return None,
        };
        let latency = if flags & HAS_LATENCY == 0 {
            None
        } else {
            Some(Duration::from_nanos(take.varint()?))
        };
        *before = PreviousEvent {
            at,
            process,
            object,
        };
        Some(Self {
            at: Duration::from_nanos(at),
            process,
            object,
            action,
            outcome,
            latency,
        })
    }
}

#[cfg(test)]
mod tests;
