//! Content put together from layers: what comes later covers what was there.

use std::collections::BTreeMap;
use teal_meta::{ExtentRow, PastExtent};
use teal_types::{ChunkId, ContentChange, Piece, Source};

/// Where bytes come from.
pub(crate) type From = Option<(ChunkId, u32)>;

/// Pieces that do not overlap, by their beginning; what none covers is zeros.
#[derive(Debug, Clone, Default)]
pub(crate) struct Canvas(BTreeMap<u64, (u64, From)>);

fn later(source: From, by: u64) -> From {
    source.map(|(chunk, start)| {
        (
            chunk,
            start.saturating_add(u32::try_from(by).unwrap_or(u32::MAX)),
        )
    })
}

impl Canvas {
    /// The content after these rows of history, oldest first, cut to `size`.
    pub(crate) fn of_history(rows: &[PastExtent], size: u64) -> Self {
        let mut canvas = Self::default();
        rows.iter().for_each(|row| {
            canvas.paint(row.offset, row.offset.saturating_add(row.len), row.source)
        });
        canvas.paint(size, u64::MAX, None);
        canvas
    }

    /// Puts a piece over what is there.
    pub(crate) fn paint(&mut self, start: u64, end: u64, source: From) {
        if start >= end {
            return;
        }
        while let Some((&from, &(to, what))) = self.0.range(..end).next_back() {
            if to <= start {
                break;
            }
            self.0.remove(&from);
            if to > end {
                self.0.insert(end, (to, later(what, end - from)));
            }
            if from < start {
                self.0.insert(from, (start, what));
                break;
            }
        }
        if source.is_some() {
            self.0.insert(start, (end, source));
        }
    }

    /// What an author did to it.
    pub(crate) fn change(&mut self, change: &ContentChange) {
        self.paint(change.cut, u64::MAX, None);
        for Piece {
            offset,
            len,
            source,
        } in &change.pieces
        {
            let source = match source {
                Source::Chunk { id, offset } => Some((*id, *offset)),
                Source::Hole => None,
            };
            self.paint(*offset, offset.saturating_add(*len), source);
        }
        self.paint(change.size, u64::MAX, None);
    }

    /// Returns what is not zeros, ascending.
    pub(crate) fn extents(&self) -> impl Iterator<Item = ExtentRow> {
        self.0.iter().filter_map(|(&offset, &(end, source))| {
            source.map(|(chunk, start)| ExtentRow {
                offset,
                len: end - offset,
                chunk,
                start,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_canvas_shows_what_was_painted_last(strokes in prop::collection::vec((0_u64..50, 0_u64..20, 0_u8..4), 0..20)) {
            let (mut canvas, mut plain) = (Canvas::default(), [None; 80]);
            for (start, len, colour) in strokes {
                let source = (colour > 0).then(|| (ChunkId::new([colour; 32]), u32::from(colour) * 100));
                canvas.paint(start, start + len, source);
                for at in 0..len {
                    plain[(start + at) as usize] = later(source, at);
                }
            }
            let mut shown = [None; 80];
            for extent in canvas.extents() {
                for at in 0..extent.len {
                    let place = &mut shown[(extent.offset + at) as usize];
                    prop_assert!(place.is_none(), "two pieces at one place");
                    *place = later(Some((extent.chunk, extent.start)), at);
                }
            }
            prop_assert_eq!(shown, plain);
        }
    }
}
