//! Content put together from layers: what comes later covers what was there.

use std::collections::BTreeMap;
use teal_meta::{ExtentRow, PastExtent};
use teal_types::{ChunkId, ContentChange, Piece, Source};

/// Where bytes come from.
pub(crate) type OverlaySource = Option<(ChunkId, u32)>;

/// Pieces that do not overlap, by their beginning; what none covers is zeros.
#[derive(Debug, Clone, Default)]
pub(crate) struct ContentOverlay(BTreeMap<u64, (u64, OverlaySource)>);

fn advance_source(source: OverlaySource, by: u64) -> OverlaySource {
    source.map(|(chunk, start)| {
        (
            chunk,
            start.saturating_add(u32::try_from(by).unwrap_or(u32::MAX)),
        )
    })
}

impl ContentOverlay {
    /// The content after these rows of history, oldest first, cut to `size`.
    pub(crate) fn of_history(rows: &[PastExtent], size: u64) -> Self {
        let mut canvas = Self::default();
        rows.iter().for_each(|row| {
            canvas.cover_range(row.offset, row.offset.saturating_add(row.len), row.source)
        });
        canvas.cover_range(size, u64::MAX, None);
        canvas
    }

    /// Puts a piece over what is there.
    pub(crate) fn cover_range(&mut self, start: u64, end: u64, source: OverlaySource) {
        if start >= end {
            return;
        }
        while let Some((&from, &(to, what))) = self.0.range(..end).next_back() {
            if to <= start {
                break;
            }
            self.0.remove(&from);
            if to > end {
                self.0.insert(end, (to, advance_source(what, end - from)));
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
    pub(crate) fn apply_change(&mut self, change: &ContentChange) {
        self.cover_range(change.cut, u64::MAX, None);
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
            self.cover_range(*offset, offset.saturating_add(*len), source);
        }
        self.cover_range(change.size, u64::MAX, None);
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
            let (mut canvas, mut plain) = (ContentOverlay::default(), [None; 80]);
            for (start, len, colour) in strokes {
                let source = (colour > 0).then(|| (ChunkId::new([colour; 32]), u32::from(colour) * 100));
                canvas.cover_range(start, start + len, source);
                for at in 0..len {
                    plain[(start + at) as usize] = advance_source(source, at);
                }
            }
            let mut shown = [None; 80];
            for extent in canvas.extents() {
                for at in 0..extent.len {
                    let place = &mut shown[(extent.offset + at) as usize];
                    prop_assert!(place.is_none(), "two pieces at one place");
                    *place = advance_source(Some((extent.chunk, extent.start)), at);
                }
            }
            prop_assert_eq!(shown, plain);
        }
    }
}
