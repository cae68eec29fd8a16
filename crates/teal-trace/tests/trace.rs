//! Traces through the public interface: what is written is read again, in both forms; cut off,
//! damaged, foreign and made-up input.
#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

#[path = "trace/any.rs"]
mod any;
#[path = "trace/foreign.rs"]
mod foreign;

use any::{header, items};
use cap::Cap;
use proptest::prelude::*;
use std::alloc::System;
use std::io::{self, BufReader, Write};
use teal_trace::{
    Action, CutReason, EventOutcome, Level, LineError, ReadError, TextReader, TraceEnding,
    TraceEvent, TraceHeader, TraceItem, TraceReader, TraceWriter, WriteError, text_header,
};

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// What reading may hold, whatever the input says: a block, and the rest. Tests of this binary run
/// at the same time.
const READER_BYTES: usize = 64 << 20;

pub(crate) fn write(header: &TraceHeader, items: &[TraceItem]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), header).unwrap();
    items
        .iter()
        .for_each(|item| writer.write_item(item).unwrap());
    writer.finish().unwrap()
}

pub(crate) fn read(bytes: &[u8]) -> (Vec<TraceItem>, TraceEnding) {
    let mut reader = TraceReader::new(bytes).unwrap();
    let items = reader.by_ref().map(Result::unwrap).collect();
    (items, reader.ending().unwrap().clone())
}

fn to_text(header: &TraceHeader, items: &[TraceItem]) -> String {
    text_header(header)
        + &items
            .iter()
            .map(|item| format!("{item}\n"))
            .collect::<String>()
}

fn reads(at: u64) -> TraceItem {
    let action = Action::Read {
        offset: at * 4096,
        length: 4096,
    };
    let at = std::time::Duration::from_micros(at);
    TraceItem::Event(TraceEvent {
        at,
        process: 7,
        object: 3,
        action,
        outcome: EventOutcome::Done(4096),
        latency: Some(at),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_again((header, items) in header().prop_flat_map(|h| (Just(h.clone()), items(h.level)))) {
        let bytes = write(&header, &items);
        let reader = TraceReader::new(&bytes[..]).unwrap();
        prop_assert_eq!(reader.header(), &header);
        prop_assert_eq!(read(&bytes), (items, TraceEnding::Complete));
    }

    #[test]
    fn text_says_the_same((header, items) in header().prop_flat_map(|h| (Just(h.clone()), items(h.level)))) {
        let text = to_text(&header, &items);
        let mut reader = TextReader::new(text.as_bytes()).unwrap();
        prop_assert_eq!(reader.header(), &header);
        let back: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
        prop_assert_eq!(&back, &items);
        // And so both ways round: bytes are the same again.
        prop_assert_eq!(write(&header, &back), write(&header, &items));
    }

    #[test]
    fn a_trace_cut_off_anywhere_is_read_up_to_its_last_whole_block(
        (header, items) in header().prop_flat_map(|h| (Just(h.clone()), items(h.level))),
        share in 0.0..1.0_f64,
    ) {
        let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
        // Items of every block, and where it ends.
        let mut blocks = vec![(0, writer.bytes_written())];
        for (n, item) in items.iter().enumerate() {
            writer.write_item(item).unwrap();
            if n % 3 == 2 {
                writer.flush().unwrap();
                blocks.push((n + 1, writer.bytes_written()));
            }
        }
        let bytes = writer.finish().unwrap();
        let cut = (bytes.len() as f64 * share) as usize;
        match TraceReader::new(&bytes[..cut]) {
            Ok(mut reader) => {
                let back: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
                let whole = blocks.iter().rev().position(|(_, end)| *end <= cut as u64).unwrap();
                let (count, end) = blocks[blocks.len() - 1 - whole];
                prop_assert_eq!(&back, &items[..count]);
                let why = if cut as u64 == end { CutReason::Nothing } else { CutReason::Part };
                let number = (blocks.len() - 1 - whole) as u64;
                prop_assert_eq!(reader.ending(), Some(&TraceEnding::CutOff { at: end, blocks: number, why }));
            }
            Err(ReadError::Header { .. } | ReadError::Foreign { .. }) => prop_assert!((cut as u64) < blocks[0].1),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn damage_is_noticed_and_never_read(
        (header, items) in header().prop_flat_map(|h| (Just(h.clone()), items(h.level))),
        place in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let good = write(&header, &items);
        let mut bad = good.clone();
        bad[place.index(good.len())] ^= 1_u8 << bit;
        if let Ok(mut reader) = TraceReader::new(&bad[..]) {
            let back: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
            prop_assert!(items.starts_with(&back));
            let is_cut = matches!(reader.ending(), Some(TraceEnding::CutOff { .. }));
            prop_assert!(is_cut);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let mut sound = write(&TraceHeader { level: Level::File, ..any::plain() }, &[]);
        let head = sound.len() - 32;
        sound.truncate(head);
        for input in [bytes.clone(), [&sound[..], &bytes].concat(), [&sound[..], b"TBLK\0\0\0\0", &bytes].concat()] {
            MEMORY.set_limit(MEMORY.allocated() + READER_BYTES).unwrap();
            if let Ok(reader) = TraceReader::new(&input[..]) {
                reader.for_each(|item| drop(item.unwrap()));
            }
            if let Ok(reader) = TextReader::new(&input[..]) {
                reader.for_each(drop);
            }
        }
    }

    #[test]
    fn arbitrary_items_under_sound_checksums_never_panic(items in prop::collection::vec(
        prop_oneof![Just(0_u8), 0..32_u8, 60..68_u8, 192..195_u8, any::<u8>()], 0..200), count in 0..40_u32) {
        let mut bytes = write(&any::plain(), &[]);
        bytes.truncate(bytes.len() - 32);
        let head = bytes.len();
        bytes.extend(b"TBLK\0\0\0\0");
        bytes.extend((items.len() as u32).to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.extend([0; 12]);
        bytes.extend(&items);
        bytes.extend(crc32c::crc32c(&bytes[head..]).to_le_bytes());
        MEMORY.set_limit(MEMORY.allocated() + READER_BYTES).unwrap();
        let (read, ending) = read(&bytes);
        prop_assert!(read.len() <= count as usize);
        let is_cut = matches!(ending, TraceEnding::CutOff { why: CutReason::Item(_) | CutReason::Nothing, .. });
        prop_assert!(is_cut, "{:?}", ending);
    }
}

#[test]
fn a_long_trace_is_written_and_read_block_by_block() {
    let count = 200_000;
    let mut writer = TraceWriter::new(Vec::new(), &any::plain()).unwrap();
    for n in 0..count {
        writer.write_item(&reads(n)).unwrap();
        assert!(writer.unwritten_items() < 64 << 10);
    }
    let bytes = writer.finish().unwrap();
    assert!(
        bytes.len() < 20 * count as usize,
        "an event takes less than 20 bytes: {}",
        bytes.len()
    );
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    assert!(
        reader
            .by_ref()
            .map(Result::unwrap)
            .eq((0..count).map(reads))
    );
    assert_eq!(reader.ending(), Some(&TraceEnding::Complete));
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_no_trace() {
    let mut writer = TraceWriter::new(Vec::new(), &any::plain()).unwrap();
    writer.write_item(&reads(5)).unwrap();
    assert!(matches!(
        writer.write_item(&reads(4)),
        Err(WriteError::Backwards { .. })
    ));
    let TraceItem::Event(event) = reads(6) else {
        unreachable!()
    };
    let block = TraceItem::Event(TraceEvent {
        action: Action::Flush {},
        ..event
    });
    assert!(matches!(
        writer.write_item(&block),
        Err(WriteError::Level { word: "bflush" })
    ));
    writer.write_item(&reads(5)).unwrap();
    assert_eq!(
        read(&writer.finish().unwrap()),
        (vec![reads(5), reads(5)], TraceEnding::Complete)
    );
}

/// Takes so many bytes and then has no room.
struct Full(Vec<u8>, usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = bytes.len().min(self.1 - self.0.len());
        if room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.extend_from_slice(&bytes[..room]);
        Ok(room)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn after_a_failed_write_nothing_is_taken_and_what_is_whole_is_read() {
    let mut full = Full(Vec::new(), 100_000);
    let mut writer = TraceWriter::new(&mut full, &any::plain()).unwrap();
    let failed = (0..100_000)
        .map(|n| writer.write_item(&reads(n)))
        .find_map(Result::err)
        .unwrap();
    assert!(matches!(failed, WriteError::Io(e) if e.kind() == io::ErrorKind::StorageFull));
    assert!(matches!(
        writer.write_item(&reads(200_000)),
        Err(WriteError::Failed)
    ));
    assert!(matches!(writer.finish(), Err(WriteError::Failed)));
    let (items, ending) = read(&full.0);
    assert!(items.len() > 1000 && items.iter().cloned().eq((0..items.len() as u64).map(reads)));
    assert!(
        matches!(
            ending,
            TraceEnding::CutOff {
                blocks: 1,
                why: CutReason::Part,
                ..
            }
        ),
        "{ending}"
    );
}

#[test]
fn foreign_and_newer_files_are_refused_with_a_reason() {
    let said = |bytes: &[u8]| TraceReader::new(bytes).unwrap_err().to_string();
    assert!(said(b"").contains("begins with []"));
    assert!(said(b"#!/bin/sh\n").contains("not a TealFS trace"));
    let good = write(&any::plain(), &[reads(1)]);
    assert!(
        said(&good[..20]).contains("byte 20"),
        "{}",
        said(&good[..20])
    );
    let mut newer = good.clone();
    newer[8] = 2;
    assert!(said(&newer).contains("version 2"));
    let two = [&good[..], &good].concat();
    assert!(
        matches!(read(&two), (items, TraceEnding::CutOff { why: CutReason::Foreign, .. }) if items == [reads(1)])
    );
}

#[test]
fn what_is_wrong_with_a_text_is_said_with_its_line() {
    let said = |text: &str| {
        let all = TextReader::new(BufReader::new(text.as_bytes()))
            .and_then(|r| r.collect::<Result<Vec<_>, _>>());
        match all {
            Ok(items) => panic!("{text}: {items:?}"),
            Err(error @ LineError::Wrong { .. }) => error.to_string(),
            Err(error) => panic!("{error}"),
        }
    };
    assert!(said("").starts_with("line 1: a trace begins with"));
    assert!(said("1.0 1 1 stat\n").starts_with("line 1: a trace begins with"));
    let begin = "teal-trace 1 file\n# a remark\n\n1.5 1 1 stat = 0 in 0.1\n";
    for (line, words) in [
        ("2 1 1 frobnicate", "'frobnicate' is no action"),
        ("2 1 1 read offset=1", "needs length="),
        ("2 1 1 read offset=1 length=2 size=3", "no such field"),
        ("2 1 1 read offset=1 offset=1 length=2", "twice"),
        ("2 1 1 read offset=-1 length=2", "'-1' is no number"),
        ("2 1 1 fsync data=maybe", "neither yes nor no"),
        ("2 1 1 lookup name=plain", "not in quotes"),
        ("2 1 1 lookup name=\"open", "a quote is not closed"),
        ("2 1 1 stat = 1 in", "means nothing here"),
        ("2 1 1 stat ! 0", "no errno"),
        ("2.0123456789 1 1 stat", "nine decimals"),
        ("99999999999999 1 1 stat", "too long a time"),
        ("2 1", "is no item"),
    ] {
        let error = said(&format!("{begin}{line}\n"));
        assert!(
            error.starts_with("line 5: ") && error.contains(words),
            "{line}: {error}"
        );
    }
    let long = said(&format!(
        "{begin}2 1 1 mark text=\"{}\"",
        "x".repeat(70_000)
    ));
    assert!(long.starts_with("line 5: longer than"), "{long}");
}
