//! Importing: made-up records of every format, real output of `blktrace`, cut off, damaged and
//! foreign files.

use super::{MEMORY, READER_BYTES, read};
use proptest::prelude::*;
use std::time::Duration;
use teal_trace::import::{
    ImportError, ImportSummary, RequestStage, TraceOrigin, import_blktrace, import_oracle_general,
    import_vscsi,
};
use teal_trace::{Action, EventOutcome, Level, TraceEnding, TraceEvent, TraceItem, TraceReader};
use teal_types::Timestamp;

fn events(trace: &[u8]) -> Vec<TraceEvent> {
    let (items, ending) = read(trace);
    assert_eq!(ending, TraceEnding::Complete);
    items
        .into_iter()
        .filter_map(|item| {
            if let TraceItem::Event(event) = item {
                Some(event)
            } else {
                None
            }
        })
        .collect()
}

type Done = Result<(ImportSummary, Vec<u8>), ImportError>;

fn run(import: impl FnOnce(&mut Vec<u8>) -> Result<ImportSummary, ImportError>) -> Done {
    let mut out = Vec::new();
    import(&mut out).map(|done| (done, out))
}

fn oracle(input: &[u8], unit: Option<u64>) -> Done {
    run(|out| import_oracle_general(input, unit, TraceOrigin::default(), out))
}

fn scsi(input: &[u8]) -> Done {
    run(|out| import_vscsi(input, TraceOrigin::default(), out))
}

fn block(inputs: &[&[u8]], stage: RequestStage) -> Done {
    run(|out| import_blktrace(inputs.iter().copied(), stage, TraceOrigin::default(), out))
}

fn said(done: Done) -> String {
    done.map(|(imported, _)| imported).unwrap_err().to_string()
}

fn access(secs: u32, object: u64, size: u32, next: i64) -> Vec<u8> {
    [
        &secs.to_le_bytes()[..],
        &object.to_le_bytes(),
        &size.to_le_bytes(),
        &next.to_le_bytes(),
    ]
    .concat()
}

#[test]
fn accesses_of_caches_are_reads() {
    let input = [
        access(50, 7, 4096, 3),
        access(50, u64::MAX, 0, -1),
        access(52, 9, 100, -1),
        access(60, 7, 1, -1),
    ];
    let (done, trace) = oracle(&input.concat(), None).unwrap();
    assert_eq!(
        done,
        ImportSummary {
            records: 4,
            events: 3,
            skipped: 1
        }
    );
    let header = TraceReader::new(&trace[..]).unwrap().header().clone();
    assert_eq!(
        (header.level, header.start),
        (Level::File, Timestamp::new(50, 0))
    );
    let read: Vec<_> = events(&trace)
        .into_iter()
        .map(|e| (e.at.as_secs(), e.object, e.action))
        .collect();
    let whole = |length| Action::Read { offset: 0, length };
    assert_eq!(
        read,
        [(0, 7, whole(4096)), (2, 9, whole(100)), (10, 7, whole(1))]
    );

    let (_, trace) = oracle(&input[2], Some(4096)).unwrap();
    assert_eq!(
        TraceReader::new(&trace[..]).unwrap().header().level,
        Level::Block
    );
    assert_eq!(
        events(&trace)[0].action,
        Action::ReadSectors {
            sector: 72,
            bytes: 100
        }
    );
}

#[test]
fn what_is_no_trace_of_a_cache_is_refused() {
    let good = [
        access(50, 7, 4096, 2),
        access(51, 8, 1, -1),
        access(52, 7, 1, -1),
    ]
    .concat();
    assert_eq!(
        said(oracle(&good[..60], None)),
        "cut off: record 2, which begins at byte 48, is incomplete"
    );
    assert!(said(oracle(&[], None)).contains("empty"));
    assert!(said(oracle(b"\x28\xb5\x2f\xfd and twenty bytes more", None)).contains("zstd -d"));
    let text = "time,object,size\n1,2,3\n4,5,6\n7,8,9\n".repeat(4);
    assert!(said(oracle(text.as_bytes(), None)).starts_with("record 0 at byte 0: next access"));
    let back = [access(50, 7, 1, -1), access(49, 8, 1, -1)].concat();
    assert!(
        said(oracle(&back, None)).starts_with("record 1 at byte 24: time 49 s comes after 50 s")
    );
    let past = [access(50, 7, 1, 5), access(50, 8, 1, 1)].concat();
    assert!(said(oracle(&past, None)).starts_with("record 1 at byte 24: next access 1"));
    assert!(said(oracle(&access(0, u64::MAX, 1, -1), Some(512))).contains("beyond any device"));
}

fn v1(micros: u64, command: u16, sector: u64, bytes: u32) -> Vec<u8> {
    let mut out = [5_u32, bytes, 1].map(u32::to_le_bytes).concat();
    out.extend([command, 0x0100].map(u16::to_le_bytes).concat());
    out.extend([sector, micros].map(u64::to_le_bytes).concat());
    out
}

fn v2(micros: u64, command: u16, sector: u64, bytes: u32, response: u64) -> Vec<u8> {
    let mut out = [command, 0x0200].map(u16::to_le_bytes).concat();
    out.extend([5_u32, bytes, 1].map(u32::to_le_bytes).concat());
    out.extend([sector, micros, response].map(u64::to_le_bytes).concat());
    out
}

#[test]
fn commands_of_virtual_disks_are_requests() {
    // The second is a little late, the fourth reads nothing, the fifth is an inquiry.
    let of = [
        (2_000_000, 0x28, 8, 4096),
        (1_000_500, 0x2a, 16, 512),
        (2_000_001, 0x35, 0, 0),
        (3_000_000, 0x28, 0, 0),
        (3_000_000, 0x12, 0, 36),
    ];
    let first = of.map(|(t, c, s, b)| v1(t, c, s, b)).concat();
    let second = of.map(|(t, c, s, b)| v2(t, c, s, b, 77)).concat();
    for (input, latency) in [(first, None), (second, Some(Duration::from_micros(77)))] {
        let (done, trace) = scsi(&input).unwrap();
        assert_eq!(
            done,
            ImportSummary {
                records: 5,
                events: 3,
                skipped: 2
            }
        );
        let header = TraceReader::new(&trace[..]).unwrap().header().clone();
        assert_eq!(
            (header.level, header.start),
            (Level::Block, Timestamp::new(1, 500_000))
        );
        let got = events(&trace);
        assert!(got.iter().all(|e| e.latency == latency));
        let got: Vec<_> = got
            .into_iter()
            .map(|e| (e.at.as_micros(), e.action))
            .collect();
        let write = Action::WriteSectors {
            sector: 16,
            bytes: 512,
            flush: false,
            fua: false,
        };
        let read = Action::ReadSectors {
            sector: 8,
            bytes: 4096,
        };
        assert_eq!(
            got,
            [(0, write), (999_500, read), (999_501, Action::Flush {})]
        );
    }
}

#[test]
fn what_is_no_trace_of_a_virtual_disk_is_refused() {
    let good = [v1(1, 0x28, 8, 512), v1(2, 0x28, 8, 512)].concat();
    assert_eq!(
        said(scsi(&good[..50])),
        "cut off: record 1, which begins at byte 32, is incomplete"
    );
    assert!(said(scsi(&good[..20])).contains("neither version 1 nor 2"));
    assert!(said(scsi(b"")).contains("empty"));
    assert!(said(scsi(&[b'x'; 400])).contains("neither version 1 nor 2"));
    let mixed = [good.clone(), v2(2, 0x28, 8, 512, 0)].concat();
    assert!(said(scsi(&mixed)).starts_with("record 2 at byte 64: version"));
    let mut unsorted: Vec<u8> = (0..70_000)
        .flat_map(|n| v1(100 + n, 0x28, 8, 512))
        .collect();
    unsorted.extend(v1(50, 0x28, 8, 512));
    assert!(said(scsi(&unsorted)).starts_with("record 70000 at byte 2240000: 50 us is earlier"));
}

/// A record of `blktrace`, in the other byte order if asked for.
#[derive(Clone, Copy)]
struct Blk {
    time: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    error: u16,
    text: &'static [u8],
}

const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const SYSTEM: u32 = 1 << 24;
const PASSTHROUGH: u32 = 1 << 25;
const NOTIFY: u32 = 1 << 26;
const DISCARD: u32 = 1 << 29;
const FUA: u32 = 1 << 31;
const QUEUE: u32 = 1;
const REQUEUE: u32 = 6;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;

impl Blk {
    fn new(time: u64, action: u32, sector: u64, bytes: u32) -> Self {
        Self {
            time,
            sector,
            bytes,
            action,
            error: 0,
            text: b"",
        }
    }
    fn bytes(&self, big: bool) -> Vec<u8> {
        let four = |v: u32| {
            if big {
                v.to_be_bytes()
            } else {
                v.to_le_bytes()
            }
        };
        let eight = |v: u64| {
            if big {
                v.to_be_bytes()
            } else {
                v.to_le_bytes()
            }
        };
        let two = |v: u16| {
            if big {
                v.to_be_bytes()
            } else {
                v.to_le_bytes()
            }
        };
        let mut out = [four(0x6561_7407), four(1)].concat();
        out.extend([eight(self.time), eight(self.sector)].concat());
        out.extend(
            [self.bytes, self.action, 42, 0x0070_0001, 3]
                .map(four)
                .concat(),
        );
        out.extend([two(self.error), two(self.text.len() as u16)].concat());
        out.extend(self.text);
        out
    }
}

#[test]
fn requests_of_both_byte_orders_are_paired_with_their_completions() {
    for big in [false, true] {
        let clock: &[u8] = if big {
            b"\0\0\x03\xe8\x1d\xcd\x65\0"
        } else {
            b"\xe8\x03\0\0\0\x65\xcd\x1d"
        };
        let one = [
            Blk {
                text: b"fio\0",
                ..Blk::new(1000, NOTIFY, 0, 0)
            },
            Blk::new(2000, QUEUE | WRITE, 8, 4096),
            Blk::new(3000, ISSUE | WRITE | FUA, 8, 4096),
            Blk::new(3500, ISSUE | READ, 8, 512),
            Blk {
                error: -5_i16 as u16,
                ..Blk::new(5000, COMPLETE | READ, 8, 512)
            },
            // A command of a program for the drive itself.
            Blk::new(8000, ISSUE | READ | PASSTHROUGH, 0, 36),
            Blk::new(9000, ISSUE | WRITE | DISCARD | SYSTEM, 100, 1 << 20),
        ];
        let other = [
            Blk {
                text: clock,
                ..Blk::new(1500, NOTIFY | 1, 0, 0)
            },
            Blk::new(2500, ISSUE | WRITE | FLUSH, 0, 0),
            Blk::new(2600, REQUEUE | WRITE | FLUSH, 0, 0),
            Blk::new(2700, ISSUE | WRITE | FLUSH, 0, 0),
            Blk::new(4000, COMPLETE | WRITE, 8, 4096),
            // A control group's number in front, and a flush that ends at the place where the disk
            // thinks it is.
            Blk {
                text: b"12345678",
                ..Blk::new(6000, COMPLETE | WRITE | FLUSH | 1 << 8, 77, 0)
            },
            Blk {
                text: b"12345678phase 2",
                ..Blk::new(7000, NOTIFY | 2 | 1 << 8, 0, 0)
            },
        ];
        let [one, other] = [&one[..], &other[..]]
            .map(|all| all.iter().flat_map(|b| b.bytes(big)).collect::<Vec<u8>>());
        let (done, trace) = block(&[&one, &other], RequestStage::Issue).unwrap();
        assert_eq!((done.records, done.events), (14, 5));
        let header = TraceReader::new(&trace[..]).unwrap().header().clone();
        assert_eq!(
            (header.level, header.start),
            (Level::Block, Timestamp::new(1000, 500_000_000 - 500))
        );
        let lines: Vec<_> = read(&trace).0.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "process 42 42 0 \"fio\"",
                "0.000001700 42 7340033 bflush = 0 in 0.000003300",
                "0.000002000 42 7340033 bwrite sector=8 bytes=4096 flush=no fua=yes = 4096 in 0.000001000",
                "0.000002500 42 7340033 bread sector=8 bytes=512 ! 5 in 0.000001500",
                "0.000006000 42 7340033 mark text=\"phase 2\"",
                "0.000008000 42 7340033 bdiscard sector=100 bytes=1048576",
            ]
        );
        let (_, queued) = block(&[&one, &other], RequestStage::Queue).unwrap();
        let queued = events(&queued);
        assert_eq!(
            queued[0].latency,
            Some(Duration::from_nanos(2000)),
            "from the queue to the end"
        );
        assert_eq!(
            (queued.len(), queued[0].outcome),
            (2, EventOutcome::Done(4096)),
            "one write and the mark"
        );
    }
}

#[test]
fn what_is_no_output_of_blktrace_is_refused() {
    let one = Blk::new(1000, ISSUE | WRITE, 8, 512).bytes(false);
    let long = Blk {
        text: b"abcdef",
        ..Blk::new(1001, NOTIFY | 2, 0, 0)
    }
    .bytes(false);
    let two = [&one[..], &long].concat();
    for cut in [50, 95, 97, 101] {
        let error = said(block(&[&two[..cut]], RequestStage::Issue));
        assert_eq!(
            error, "cut off: record 1, which begins at byte 48, is incomplete",
            "{cut}"
        );
    }
    assert!(
        said(block(&[&[b'x'; 100]], RequestStage::Issue))
            .contains("no blktrace trace: it begins with")
    );
    assert!(
        said(block(
            &[b"\x1f\x8b\x08 and some more bytes, so that a record is full"],
            RequestStage::Issue
        ))
        .contains("gzip")
    );
    let junk = [&one[..], &[b'x'; 48]].concat();
    assert!(
        said(block(&[&junk], RequestStage::Issue))
            .starts_with("record 1 at byte 48: no record begins with")
    );
    let mixed = [one.clone(), Blk::new(1, ISSUE | READ, 8, 512).bytes(true)].concat();
    assert!(said(block(&[&mixed], RequestStage::Issue)).starts_with("record 1 at byte 48"));
    let mut old = one.clone();
    old[0] = 6;
    assert!(said(block(&[&old], RequestStage::Issue)).contains("version 6"));
    let queued = Blk::new(1, QUEUE | READ, 8, 512).bytes(false);
    assert!(said(block(&[&queued], RequestStage::Issue)).contains("--at queue"));
    assert!(said(block(&[], RequestStage::Issue)).contains("no request"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_imported_or_refused_but_never_panic(
        bytes in prop::collection::vec(prop_oneof![Just(0_u8), 0..3_u8, any::<u8>()], 0..400),
        unit in prop::option::of(any::<u64>()),
    ) {
        MEMORY.set_limit(MEMORY.allocated() + READER_BYTES).unwrap();
        for done in [oracle(&bytes, unit), scsi(&bytes), block(&[&bytes], RequestStage::Issue), block(&[&bytes], RequestStage::Queue)] {
            let (done, trace) = done.unwrap_or_else(|_| (ImportSummary::default(), super::write(&super::any::plain(), &[])));
            prop_assert_eq!(events(&trace).len() as u64, done.events);
        }
    }

    #[test]
    fn records_with_arbitrary_fields_never_panic(
        fields in prop::collection::vec(prop::collection::vec(prop_oneof![Just(0_u8), 0..9_u8, any::<u8>()], 44), 0..20),
        stage in prop::sample::select(vec![RequestStage::Issue, RequestStage::Queue]),
    ) {
        MEMORY.set_limit(MEMORY.allocated() + READER_BYTES).unwrap();
        let sound = |magic: &[u8], at: usize, size: usize| -> Vec<u8> {
            fields.iter().flat_map(|f| {
                let mut record = f[..size.min(44)].to_vec();
                record.resize(size, 0);
                record[at..at + magic.len()].copy_from_slice(magic);
                if size == 40 {
                    // Else the first two records could be of version 1 just as well.
                    record[15] = 0;
                }
                record
            }).collect()
        };
        let records = fields.len() as u64;
        for done in [scsi(&sound(b"\x00\x01", 14, 32)), scsi(&sound(b"\x00\x02", 2, 40))] {
            match done {
                Ok((done, trace)) => {
                    prop_assert_eq!((done.records, done.events + done.skipped), (records, records));
                    prop_assert_eq!(events(&trace).len() as u64, done.events);
                }
                Err(error) => prop_assert!(matches!(error, ImportError::Nothing(_)), "{}", error),
            }
        }
        if let Ok((done, trace)) = block(&[&sound(b"\x07\x74\x61\x65", 0, 48)], stage) {
            prop_assert_eq!(done.records, records);
            prop_assert_eq!(events(&trace).len() as u64, done.events);
        }
    }
}

/// What Linux 6.18 said of a loop device (`trace_pipe` of the tracer `blk`, option `bin`) when it
/// was written to, synced, read from, trimmed and written to with `O_DSYNC`. `blkparse` 1.2.0 shows
/// the same requests and times.
const LOOP: &[u8] = include_bytes!("loop.blktrace");

#[test]
fn what_a_real_kernel_says_is_understood() {
    let (done, trace) = block(&[LOOP], RequestStage::Issue).unwrap();
    assert_eq!((done.records, done.events), (50, 9));
    let got = events(&trace);
    let micros = |time: Duration| time.as_nanos() / 1000;
    let got: Vec<_> = got
        .iter()
        .map(|e| {
            (
                micros(e.at),
                e.action.describe().to_string(),
                micros(e.latency.unwrap()),
            )
        })
        .collect();
    let want = [
        (6263, "bwrite sector=16 bytes=4096 flush=no fua=no", 1079),
        (7556, "bwrite sector=2048 bytes=65536 flush=no fua=no", 8365),
        (20_002, "bflush", 61_185),
        (81_389, "bread sector=2048 bytes=4096", 1470),
        (82_954, "bread sector=8192 bytes=4096", 1664),
        (129_659, "bdiscard sector=16384 bytes=1048576", 2030),
        (
            131_845,
            "bwrite sector=32768 bytes=4096 flush=no fua=no",
            737,
        ),
        (132_614, "bflush", 1_822_864),
        (1_957_717, "bflush", 68_053),
    ];
    assert_eq!(
        got,
        want.map(|(at, what, latency)| (at, what.to_owned(), latency))
    );
    let (_, queued) = block(&[LOOP], RequestStage::Queue).unwrap();

    let queued: Vec<_> = events(&queued).into_iter().map(|e| e.action).collect();
    let durable = Action::WriteSectors {
        sector: 32768,
        bytes: 4096,
        flush: false,
        fua: true,
    };
    assert_eq!((queued.len(), &queued[6]), (8, &durable));
}
