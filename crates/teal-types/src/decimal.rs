//! Numbers of units with places behind the point, for people.

use std::fmt;

/// Writes `raw / unit` with that many places, rounded, halves up.
pub(crate) fn decimal(
    f: &mut fmt::Formatter<'_>,
    raw: u128,
    unit: u128,
    places: u32,
) -> fmt::Result {
    debug_assert!(unit > 0, "a unit is a part of something");
    // Rounded as a whole number of the last place, so that 9.996 becomes 10.00 and not 9.100.
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
