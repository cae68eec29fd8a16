//! Holds the defaults of fields, and the form of sizes.

use serde::{Deserialize, Serialize, Serializer};

/// Returns the default milliseconds between two readings of a meter.
pub(super) fn default_every_ms() -> u64 {
    100
}

/// Returns the default seed.
pub(super) fn default_seed() -> u64 {
    1
}

/// Returns the default least number of blocks.
pub(super) fn default_least() -> u32 {
    2
}

/// Returns the default largest number of blocks.
pub(super) fn default_most() -> u32 {
    10
}

/// Returns the default width of intervals that is narrow enough.
pub(super) fn default_within() -> f64 {
    0.05
}

/// Returns the default factor on the workloads' file sets.
pub(super) fn default_scale() -> f64 {
    1.0
}

/// Returns the default seconds of a run.
pub(super) fn default_seconds() -> u64 {
    60
}

/// Reads bytes with an optional K, M, G or T.
pub(super) fn parse_size<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(from)?;
    // The suffix is everything behind the digits.
    let (digits, shift) = match text.trim_end_matches(char::is_alphabetic) {
        digits if digits.len() == text.len() => (digits, 0),
        digits => match &text[digits.len()..] {
            "K" => (digits, 10),
            "M" => (digits, 20),
            "G" => (digits, 30),
            "T" => (digits, 40),
            _ => {
                return Err(serde::de::Error::custom(format!(
                    "'{text}' is no size; say \"4G\""
                )));
            }
        },
    };
    // An overflow is as wrong as a letter.
    let bytes = digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift));
    bytes
        .map(Some)
        .ok_or_else(|| serde::de::Error::custom(format!("'{text}' is no size; say \"4G\"")))
}

/// Writes bytes as [`parse_size`] reads them.
pub(super) fn write_size<S: Serializer>(of: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    of.map(|bytes| bytes.to_string()).serialize(to)
}
