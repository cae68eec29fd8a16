//! Bytes on their way to the disk, in the memory they came in: nothing copies them before the disk
//! takes them.
//!
//! # Invariants
//! 1. What a [`Bytes`] or [`Parts`] shows never changes.
//! 2. The parts of a [`Parts`] are not empty, and one does not continue the memory of the one
//!    before it.

use std::fmt;
use std::io::IoSlice;
use std::ops::{Deref, Range};
use std::sync::Arc;
use teal_env::AlignedBuffer;

#[derive(Clone)]
enum BackingMemory {
    Own(Arc<[u8]>),
    /// A part of a larger piece that goes back to its stock when the last part is gone.
    Lent(Arc<AlignedBuffer>),
}

/// A cheap handle of some bytes.
#[derive(Clone)]
pub(crate) struct SharedBytes {
    memory: BackingMemory,
    from: u32,
    len: u32,
}

impl SharedBytes {
    /// The bytes of `memory`, in pieces of `step`.
    pub(crate) fn split_into(memory: AlignedBuffer, step: usize) -> impl Iterator<Item = Self> {
        let end = memory_len(memory.len());
        let memory = Arc::new(memory);
        (0..end).step_by(step).map(move |from| Self {
            memory: BackingMemory::Lent(Arc::clone(&memory)),
            from,
            len: (end - from).min(step as u32),
        })
    }

    /// `len` bytes of it.
    pub(crate) fn subslice(&self, from: usize, len: usize) -> Self {
        assert!(
            from + len <= self.len as usize,
            "a part is inside the whole"
        );
        Self {
            memory: self.memory.clone(),
            from: self.from + from as u32,
            len: len as u32,
        }
    }

    /// Takes over what follows if it lies behind this in the same memory.
    fn extend_with(&mut self, next: &Self) -> bool {
        let is_next = match (&self.memory, &next.memory) {
            (BackingMemory::Lent(mine), BackingMemory::Lent(other)) => {
                Arc::ptr_eq(mine, other) && self.from + self.len == next.from
            }
            _ => false,
        };
        self.len += if is_next { next.len } else { 0 };
        is_next
    }
}

fn memory_len(len: usize) -> u32 {
    u32::try_from(len).expect("one write is far below 4 GiB")
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.memory {
            BackingMemory::Own(bytes) => bytes,
            BackingMemory::Lent(buffer) => buffer,
        };
        &all[self.from as usize..(self.from + self.len) as usize]
    }
}

impl From<AlignedBuffer> for SharedBytes {
    fn from(memory: AlignedBuffer) -> Self {
        let len = memory_len(memory.len());
        Self {
            memory: BackingMemory::Lent(Arc::new(memory)),
            from: 0,
            len,
        }
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Arc::<[u8]>::from(bytes).into()
    }
}

impl From<&[u8]> for SharedBytes {
    fn from(bytes: &[u8]) -> Self {
        Arc::<[u8]>::from(bytes).into()
    }
}

impl From<Arc<[u8]>> for SharedBytes {
    fn from(bytes: Arc<[u8]>) -> Self {
        let len = memory_len(bytes.len());
        Self {
            memory: BackingMemory::Own(bytes),
            from: 0,
            len,
        }
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

/// Bytes one behind the other, in the memory they came in.
#[derive(Debug, Default)]
pub struct ScatteredBytes {
    /// Each with where it begins.
    parts: Vec<(usize, SharedBytes)>,
    len: usize,
}

impl ScatteredBytes {
    /// Returns how many bytes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes, piece by piece.
    pub fn pieces(&self) -> Vec<&[u8]> {
        self.parts.iter().map(|(_, bytes)| &**bytes).collect()
    }

    /// A copy in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.pieces().concat()
    }

    pub(crate) fn push(&mut self, bytes: SharedBytes) {
        let (at, len) = (self.len, bytes.len());
        if len == 0 {
            return;
        }
        self.len += len;
        if !self
            .parts
            .last_mut()
            .is_some_and(|(_, last)| last.extend_with(&bytes))
        {
            self.parts.push((at, bytes));
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        other
            .parts
            .into_iter()
            .for_each(|(_, bytes)| self.push(bytes));
    }

    pub(crate) fn io_slices(&self) -> Vec<IoSlice<'_>> {
        self.parts
            .iter()
            .map(|(_, bytes)| IoSlice::new(bytes))
            .collect()
    }

    /// Copies a range that lies inside.
    pub(crate) fn copy_to(&self, range: Range<usize>, out: &mut [u8]) {
        let first = self
            .parts
            .partition_point(|(at, _)| *at <= range.start)
            .saturating_sub(1);
        for (at, bytes) in self.parts[first..]
            .iter()
            .take_while(|(at, _)| *at < range.end)
        {
            let (from, to) = (range.start.max(*at), range.end.min(at + bytes.len()));
            if from < to {
                out[from - range.start..to - range.start]
                    .copy_from_slice(&bytes[from - at..to - at]);
            }
        }
    }
}

impl From<Vec<u8>> for ScatteredBytes {
    fn from(bytes: Vec<u8>) -> Self {
        let mut parts = Self::default();
        parts.push(bytes.into());
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teal_env::BufferPool;

    #[test]
    fn what_lies_together_is_one_part_and_any_range_can_be_copied() {
        let mut buffer = BufferPool::new(0).lend(100);
        buffer
            .iter_mut()
            .enumerate()
            .for_each(|(i, byte)| *byte = i as u8);
        let pieces: Vec<SharedBytes> = SharedBytes::split_into(buffer, 30).collect();
        assert_eq!(
            pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>(),
            [30, 30, 30, 10]
        );
        let mut parts = ScatteredBytes::from(vec![200; 5]);
        let order = [
            &pieces[0],
            &pieces[1],
            &pieces[3],
            &pieces[2].subslice(0, 7),
            &SharedBytes::from(vec![]),
        ];
        order.iter().for_each(|piece| parts.push((*piece).clone()));
        let mut all = ScatteredBytes::default();
        all.push(vec![201; 3].into());
        all.append(parts);
        let whole = [
            vec![201; 3],
            vec![200; 5],
            (0..60).collect(),
            (90..100).collect(),
            (60..67).collect(),
        ]
        .concat();
        assert_eq!((all.len(), all.io_slices().len()), (whole.len(), 5));
        assert_eq!(
            all.io_slices()
                .iter()
                .flat_map(|part| part.iter().copied())
                .collect::<Vec<_>>(),
            whole
        );
        for from in 0..whole.len() {
            for to in from..=whole.len() {
                let mut out = vec![0; to - from];
                all.copy_to(from..to, &mut out);
                assert_eq!(out, whole[from..to], "{from}..{to}");
            }
        }
    }
}
