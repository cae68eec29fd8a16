//! The name of what lost a conflict: `report (conflict laptop 2026-11-22).txt`.
//!
//! # Guarantees
//! 1. It is a [`Name`]: at most 255 bytes; the stem is cut between characters, the extension stays.
//! 2. Different numbers give different names.

use teal_types::{NAME_MAX, Name, Timestamp};

/// A longer ending is no extension.
const EXTENSION_MAX: usize = 32;

/// The conflict name of `name`: number 1 has no number.
pub fn conflict_name(name: &Name, device: &str, time: Timestamp, number: u32) -> Name {
    let (stem, extension) = split_extension(name.as_bytes());
    let count = if number > 1 {
        format!(" {number}")
    } else {
        String::new()
    };
    let middle = format!(" (conflict {device} {}){count}", time.format_date());
    let room = NAME_MAX.saturating_sub(middle.len() + extension.len());
    let bytes = [cut_at_character(stem, room), middle.as_bytes(), extension].concat();
    // A device's name is short and has no slash, so that this is a name.
    Name::new(&bytes).unwrap_or_else(|_| name.clone())
}

/// Stem, and extension with its dot.
fn split_extension(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().rposition(|byte| *byte == b'.') {
        Some(at) if at > 0 && name.len() - at <= EXTENSION_MAX => name.split_at(at),
        _ => (name, &[]),
    }
}

/// At most `room` bytes, ending where a character ends if this is text.
fn cut_at_character(stem: &[u8], room: usize) -> &[u8] {
    if stem.len() <= room {
        return stem;
    }
    let is_inside = |at: &usize| stem[*at] & 0xc0 == 0x80;
    // A character has at most four bytes; what is longer is no text.
    let end = (room.saturating_sub(3)..=room)
        .rev()
        .find(|at| !is_inside(at))
        .unwrap_or(room);
    &stem[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Timestamp = Timestamp::new(1_795_305_600, 0);

    fn of(name: &[u8], number: u32) -> String {
        conflict_name(&Name::new(name).unwrap(), "laptop", DAY, number).to_string()
    }

    #[test]
    fn a_conflict_name_says_who_and_when() {
        assert_eq!(
            of(b"report.txt", 1),
            "report (conflict laptop 2026-11-22).txt"
        );
        assert_eq!(
            of(b"report.txt", 2),
            "report (conflict laptop 2026-11-22) 2.txt"
        );
        assert_eq!(of(b".profile", 1), ".profile (conflict laptop 2026-11-22)");
        assert_eq!(of(b"a.tar.gz", 1), "a.tar (conflict laptop 2026-11-22).gz");
    }

    #[test]
    fn a_long_name_is_cut_between_characters_and_keeps_its_extension() {
        for len in 100..120 {
            let long = ["ü".repeat(len).as_bytes(), b".jpeg"].concat();
            let short = conflict_name(&Name::new(&long).unwrap(), &"d".repeat(63), DAY, u32::MAX);
            assert!(short.as_bytes().len() <= NAME_MAX);
            let text = std::str::from_utf8(short.as_bytes()).unwrap();
            assert!(text.ends_with("4294967295.jpeg"), "{text}");
        }
        let bytes = Name::new(&[0xbf; 255]).unwrap();
        assert!(conflict_name(&bytes, "d", DAY, 1).as_bytes().len() <= NAME_MAX);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let shown = [0, -1, 951_782_400, 4_107_542_400, -62_167_219_200]
            .map(|secs| Timestamp::new(secs, 0).format_date());
        assert_eq!(
            shown,
            [
                "1970-01-01",
                "1969-12-31",
                "2000-02-29",
                "2100-03-01",
                "0000-01-01"
            ]
        );
        Timestamp::new(i64::MAX, 0).format_date();
        Timestamp::new(i64::MIN, 0).format_date();
    }
}
