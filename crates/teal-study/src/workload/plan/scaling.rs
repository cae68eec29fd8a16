//! Scales the number of files, or their sizes where there are few files.

/// Number of files below which a scaled set keeps all, and makes them smaller.
const FEW: u64 = 100;

pub(super) fn scaled_count(count: u64, scale: f64) -> u64 {
    ((count as f64 * scale).round() as u64).max(1)
}

/// Returns the number of files after scaling, and the factor on their sizes.
pub(super) fn scale_entries(entries: u64, scale: f64) -> (u64, f64) {
    // A set of few files loses its character when their number changes.
    if entries < FEW {
        (entries, scale)
    } else {
        (scaled_count(entries, scale), 1.0)
    }
}
