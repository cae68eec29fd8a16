//! Decimal fractions of integers, for people.

use std::fmt;

/// Writes `raw / unit` with that many places, rounded, halves up.
pub(crate) fn write_decimal(
    f: &mut fmt::Formatter<'_>,
    raw: u128,
    unit: u128,
    places: u32,
) -> fmt::Result {
    let scale = 10_u128.pow(places);
    let scaled = (raw * scale + unit / 2) / unit;
    if places == 0 {
        return write!(f, "{scaled}");
    }
    write!(
        f,
        "{}.{:0width$}",
        scaled / scale,
        scaled % scale,
        width = places as usize
    )
}
