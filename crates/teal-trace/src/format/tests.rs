//! Golden bytes, and the table of actions against the document's.

use super::*;
use crate::{TraceReader, TraceWriter};

fn header() -> TraceHeader {
    TraceHeader {
        level: Level::File,
        anonymous: true,
        start: Timestamp {
            secs: 0x0102_0304,
            nanos: 5,
        },
        machine: Text::truncated(b"m"),
        source: Text::truncated(b"src"),
    }
}

fn event(
    at: u64,
    process: u32,
    object: u64,
    action: Action,
    outcome: EventOutcome,
    latency: Option<u64>,
) -> TraceItem {
    let latency = latency.map(Duration::from_nanos);
    TraceItem::Event(TraceEvent {
        at: Duration::from_nanos(at),
        process,
        object,
        action,
        outcome,
        latency,
    })
}

fn items() -> Vec<TraceItem> {
    vec![
        TraceItem::Process(TracedProcess {
            id: 300,
            leader: 1,
            session: 0,
            name: Text::truncated(b"cp"),
        }),
        TraceItem::Called(ObjectName {
            object: 9,
            parent: 1,
            name: Text::truncated(b"a"),
        }),
        event(
            1000,
            300,
            9,
            Action::Read {
                offset: 128,
                length: 5,
            },
            EventOutcome::Done(4),
            Some(200),
        ),
        event(
            1001,
            300,
            9,
            Action::Fsync { data: true },
            EventOutcome::Failed(5),
            None,
        ),
        event(
            1001,
            0,
            1,
            Action::Lookup {
                name: Text::truncated(b"xy"),
            },
            EventOutcome::Unknown,
            Some(0),
        ),
        TraceItem::Dropped(2),
    ]
}

#[test]
fn golden_bytes_of_a_trace() {
    let mut writer = TraceWriter::new(Vec::new(), &header()).unwrap();
    items()
        .iter()
        .for_each(|item| writer.write_item(item).unwrap());
    let bytes = writer.finish().unwrap();
    let mut want = Vec::new();
    want.extend(b"TEALTRC\x01\x01\x00\x01\x01");
    want.extend(b"\x04\x03\x02\x01\0\0\0\0\x05\0\0\0\x01\0\x03\0msrc");
    want.extend(crc32c::crc32c(&want).to_le_bytes());
    assert_eq!(bytes[..want.len()], want, "header");
    let items: &[&[u8]] = &[
        b"\xc1\xac\x02\x01\x00\x02cp",
        b"\xc0\x09\x01\x01a",
        // Read, done with latency: time, process, object, offset 128, length 5, value 4, latency
        // 200.
        b"\x03\x05\xe8\x07\xac\x02\x09\x80\x01\x05\x04\xc8\x01",
        // Fsync of the data, failed, same process and object, 1 ns later.
        b"\x05\x1a\x01\x01\x05",
        // Lookup, unknown with latency, another process and object at the same time.
        b"\x0b\x04\x00\x00\x01\x02xy\x00",
        b"\xc2\x02",
    ];
    let mut block = b"TBLK\0\0\0\0".to_vec();
    block.extend((items.concat().len() as u32).to_le_bytes());
    block.extend(b"\x06\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0");
    block.extend(items.concat());
    block.extend(crc32c::crc32c(&block).to_le_bytes());
    assert_eq!(bytes[want.len()..], block, "block");
}

#[test]
fn the_checksum_is_the_castagnoli_one() {
    assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn numbers_have_one_to_ten_bytes() {
    for (value, len) in [
        (0, 1),
        (127, 1),
        (128, 2),
        (u64::from(u32::MAX), 5),
        (u64::MAX, 10),
    ] {
        let mut out = Vec::new();
        out.put_varint(value);
        assert_eq!((out.len(), FieldReader(&out).varint()), (len, Some(value)));
        assert_eq!(FieldReader(&out[..len - 1]).varint(), None);
    }
    // 2^64 and more.
    assert_eq!(
        FieldReader(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02").varint(),
        None
    );
    assert_eq!(FieldReader(&[0xff; 11]).varint(), None);
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let mut writer = TraceWriter::new(Vec::new(), &header()).unwrap();
    items()
        .iter()
        .for_each(|item| writer.write_item(item).unwrap());
    let good = writer.finish().unwrap();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let Ok(mut reader) = TraceReader::new(&bad[..]) else {
            continue;
        };
        let read: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
        assert!(read.is_empty(), "bit {bit}");
        assert!(
            matches!(
                reader.ending(),
                Some(crate::TraceEnding::CutOff { blocks: 0, .. })
            ),
            "bit {bit}"
        );
    }
}

/// The rows of the document's table of actions.
fn rows() -> Vec<String> {
    let row = |(code, level, word, fields): &(u8, Option<Level>, &str, &[(&str, &str)])| {
        let level = match level {
            Some(Level::File) => "file",
            Some(Level::Block) => "block",
            None => "both",
        };
        let kind = |kind: &str| match kind {
            "u64" => "number",
            "bool" => "yes or no",
            "Text" => "text",
            other => panic!("the document has no word for {other}"),
        };
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, ty)| format!("{name} ({})", kind(ty)))
            .collect();
        format!("| {code} | {level} | `{word}` | {} |", fields.join(", "))
    };
    Action::TABLE.iter().map(row).collect()
}

#[test]
fn the_document_has_every_action_with_its_fields() {
    let doc = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format-trace.md");
    let doc = std::fs::read_to_string(doc).unwrap();
    let missing: Vec<_> = rows()
        .into_iter()
        .filter(|row| !doc.contains(row.trim_end_matches('|').trim_end()))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/format-trace.md lacks\n{}",
        missing.join("\n")
    );
    let in_doc = doc
        .lines()
        .filter(|line| line.contains(" file | `") || line.contains(" block | `"))
        .count();
    assert_eq!(in_doc, rows().len() - 1, "and nothing else");
}

#[test]
fn codes_and_words_are_used_once() {
    let mut codes: Vec<_> = Action::TABLE.iter().map(|row| row.0).collect();
    let mut words: Vec<_> = Action::TABLE.iter().map(|row| row.2).collect();
    codes.sort_unstable();
    words.sort_unstable();
    codes.dedup();
    words.dedup();
    assert_eq!(
        (codes.len(), words.len()),
        (Action::TABLE.len(), Action::TABLE.len())
    );
    assert!(
        codes.iter().all(|code| (1..=127).contains(code)),
        "tags from 128 are other items"
    );
}
