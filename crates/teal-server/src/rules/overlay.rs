//! Content put together from layers: what comes later covers what was there.

use std::collections::BTreeMap;
use teal_meta::{ExtentRow, PastExtent};
use teal_types::{ChunkId, ContentChange, ContentPiece, PieceSource};

/// The chunk that a piece comes from, and the offset in it; `None` for zeros.
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
    /// Returns the content after these rows of history, oldest first, cut to `size`.
    pub(crate) fn of_history(rows: &[PastExtent], size: u64) -> Self {
        let mut overlay = Self::default();
        rows.iter().for_each(|row| {
            // The size of the file may have been cut later than its rows were written.
            overlay.cover_range(row.offset, row.offset.saturating_add(row.len), row.source)
        });
        overlay.cover_range(size, u64::MAX, None);
        overlay
    }

    /// Puts a piece over what is there.
    pub(crate) fn cover_range(&mut self, start: u64, end: u64, source: OverlaySource) {
        if start >= end {
            return;
        }
        // Every piece below the new one goes, but for its parts outside.
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
        // Zeros need no piece.
        if source.is_some() {
            self.0.insert(start, (end, source));
        }
        debug_assert!(
            self.0.range(start..end).count() <= 1,
            "pieces do not overlap"
        );
    }

    /// Applies an author's change.
    pub(crate) fn apply_change(&mut self, change: &ContentChange) {
        // The cut and the size work like pieces of zeros.
        self.cover_range(change.cut, u64::MAX, None);
        for ContentPiece {
            offset,
            len,
            source,
        } in &change.pieces
        {
            let source = match source {
                PieceSource::Chunk { id, offset } => Some((*id, *offset)),
                PieceSource::Hole => None,
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
        fn an_overlay_shows_what_was_painted_last(strokes in prop::collection::vec((0_u64..50, 0_u64..20, 0_u8..4), 0..20)) {
            let (mut overlay, mut plain) = (ContentOverlay::default(), [None; 80]);
            for (start, len, colour) in strokes {
                let source = (colour > 0).then(|| (ChunkId::new([colour; 32]), u32::from(colour) * 100));
                overlay.cover_range(start, start + len, source);
                for at in 0..len {
                    plain[(start + at) as usize] = advance_source(source, at);
                }
            }
            let mut shown = [None; 80];
            for extent in overlay.extents() {
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
