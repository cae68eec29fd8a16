//! Sizes in bytes, as people write and read them.

/// Formats a number of bytes in the largest unit that leaves at least 1 before the point: `1.5
/// GiB`.
pub fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    // The largest unit that leaves at least 1 before the point.
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    debug_assert!(unit < UNITS.len() && value >= 0.0, "the unit exists");
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// Reads a size: a number with an optional K, M, G or T (powers of 1024).
pub fn parse_size(given: &str) -> Result<u64, String> {
    let text = given
        .trim()
        .trim_end_matches(['B', 'b'])
        .trim_end_matches('i');
    let (digits, unit) = match text.char_indices().last() {
        Some((i, c)) if c.is_ascii_alphabetic() => (&text[..i], c.to_ascii_uppercase()),
        _ => (text, ' '),
    };
    // Units are powers of 1024, however they are spelt.
    let shift = match unit {
        ' ' => 0,
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => return Err(no_size(given)),
    };
    let number: u64 = digits.trim().parse().map_err(|_| no_size(given))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{given} is too large a size: at most 16777215T"))
}

fn no_size(given: &str) -> String {
    format!(
        "'{given}' is no size: give a whole number of bytes, or one with K, M, G or T (times \
            1024), such as 1536M or 20G"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("20M", 20 << 20),
            ("1GiB", 1 << 30),
            ("2t", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "G", "-1", "1.5G", "3X", "99999999999T"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
