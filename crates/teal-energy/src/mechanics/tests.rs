//! Table 3.1 of the scherlfs thesis, buffers and caches, and a second computation of the same
//! requests in floating point.

use super::*;
use crate::ledger::{EnergyLedger, EnergyUse};
use proptest::prelude::*;
use teal_types::Energy;

const MICRODRIVE: &str = include_str!("../../profiles/ibm-microdrive-1gb.toml");
const TRAVELSTAR: &str = include_str!("../../profiles/hitachi-travelstar-5k320.toml");

fn disk(text: &str, electronics: &str) -> Mechanics {
    let text = format!("{text}\n[electronics]\n{electronics}\nsource = \"a test\"\n");
    Mechanics::new(&Profile::parse(&text).unwrap()).unwrap()
}

fn book(ledger: &mut EnergyLedger, job: &Job) {
    job.parts().iter().for_each(|part| {
        ledger.book(
            EnergyUse::Work(part.phase),
            1,
            part.time,
            part.exact_energy(),
        )
    });
}

/// Sectors all over the disk, the same ones each time.
fn scattered(sectors: u64, n: u64) -> impl Iterator<Item = u64> {
    (1..=n).map(move |i: u64| {
        let mixed = (i ^ i << 31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) % sectors
    })
}

fn read(at: u64, count: u64) -> SectorRequest {
    SectorRequest::Read {
        at: Sector::new(at),
        count,
    }
}

fn write(at: u64, count: u64) -> SectorRequest {
    SectorRequest::Write {
        at: Sector::new(at),
        count,
        fua: false,
    }
}

fn durable(at: u64, count: u64) -> SectorRequest {
    SectorRequest::Write {
        at: Sector::new(at),
        count,
        fua: true,
    }
}

/// Within two percent.
#[track_caller]
fn near(ours: Energy, paper: u64) {
    assert!(
        ours.get().abs_diff(paper) * 50 <= paper,
        "{ours} here, {paper} uJ in the paper"
    );
}

#[test]
fn table_3_1() {
    let mut disk = disk(MICRODRIVE, "");
    let (mut ledger, mut now, n) = (EnergyLedger::default(), Time::ZERO, 2000);
    for (i, at) in scattered(disk.sector_count() - 2, n).enumerate() {
        // Two sectors are 1 KB; times that do not beat with the rotation.
        let request = if i % 2 == 0 {
            read(at, 2)
        } else {
            durable(at, 2)
        };
        let served = disk.serve_request(now, request);
        book(&mut ledger, &served.job);
        now = served.done + TimeSpan::from_micros(1_234_567);
    }
    let each = |phase, count| {
        Energy::from_microjoules(ledger.entry(EnergyUse::Work(phase)).energy().get() / count)
    };
    near(each(WorkPhase::Seek, n), 7_640);
    near(each(WorkPhase::Rotate, n), 4_950);
    near(each(WorkPhase::Read, n / 2), 190);
    near(each(WorkPhase::Write, n / 2), 230);
    // "With the energy of an average seek and rotational delay 66 KB can be read."
    let position = each(WorkPhase::Seek, n) + each(WorkPhase::Rotate, n);
    let kilobytes = position.get() * 100 / each(WorkPhase::Read, n / 2).get();
    assert!(
        kilobytes.abs_diff(6600) * 50 <= 6600,
        "{kilobytes} hundredths of a KB"
    );
}

#[test]
fn a_stream_costs_no_seek_and_no_turn() {
    for (text, seeks) in [(MICRODRIVE, false), (TRAVELSTAR, true)] {
        let mut disk = disk(text, "");
        let mut now = disk.serve_request(Time::ZERO, read(1000, 8)).done;
        let mut ledger = EnergyLedger::default();
        for i in 1..2000 {
            let served = disk.serve_request(now, read(1000 + i * 8, 8));
            assert_eq!(served.start, now);
            book(&mut ledger, &served.job);
            now = served.done;
        }
        assert_eq!(
            ledger.entry(EnergyUse::Work(WorkPhase::Rotate)).time,
            TimeSpan::ZERO
        );
        assert_eq!(
            ledger.entry(EnergyUse::Work(WorkPhase::Seek)).time > TimeSpan::ZERO,
            seeks,
            "track switches where they are known"
        );
    }
}

#[test]
fn an_append_that_just_misses_its_sector_costs_ten_times_one_that_meets_it() {
    let cost = |gap: u64| {
        let mut disk = disk(MICRODRIVE, "overhead = \"1 ms\"");
        let mut now = disk.serve_request(Time::ZERO, durable(5000, 8)).done;
        let mut spent = Energy::ZERO;
        for i in 1..=100 {
            let served = disk.serve_request(now, durable(5000 + i * (8 + gap), 8));
            spent += served.job.total_energy();
            now = served.done;
        }
        Energy::from_microjoules(spent.get() / 100)
    };
    // Eight sectors are 4 KiB. Track switches of the gapped log are within both figures.
    assert!(cost(0).get().abs_diff(10_400) < 600, "{}", cost(0));
    assert!((950..1_900).contains(&cost(8).get()), "{}", cost(8));
}

#[test]
fn what_is_in_the_track_buffer_needs_no_surface() {
    let mut disk = disk(MICRODRIVE, "track_buffer = \"64 KiB\"");
    let first = disk.serve_request(Time::ZERO, read(10_000, 8));
    // Long enough to fill the buffer: 128 sectors are 64 KiB.
    let later = first.done + TimeSpan::from_secs(1);
    let second = disk.serve_request(later, read(10_008, 100));
    assert_eq!(second.done, later, "all of it was read ahead");
    let ahead: Vec<_> = second
        .background
        .parts()
        .iter()
        .map(|part| part.phase)
        .collect();
    assert_eq!(ahead, [WorkPhase::ReadAhead]);
    let third = disk.serve_request(second.done, read(10_108, 200));
    assert!(third.done > second.done, "half of it was not");
    let away = disk.serve_request(third.done + TimeSpan::from_millis(1), read(10_000, 8));
    assert!(
        away.job
            .parts()
            .iter()
            .any(|part| part.phase == WorkPhase::Rotate),
        "it has left the buffer"
    );
}

#[test]
fn a_flush_puts_on_the_surface_what_the_cache_took_in() {
    let electronics = "write_cache = \"64 KiB\"\ninterface = \"10 MB/s\"";
    let mut disk = disk(MICRODRIVE, electronics);
    let quick = disk.serve_request(Time::ZERO, write(70_000, 8));
    assert_eq!(quick.job.total_time(), TimeSpan::from_nanos(409_600));
    let more = disk.serve_request(quick.done, write(900_000, 8));
    assert_eq!(disk.unwritten_bytes(), 2 * 4096);
    let flushed = disk.serve_request(more.done, SectorRequest::Flush);
    assert!(
        flushed.done.since(more.done) > TimeSpan::from_millis(12),
        "{:?}",
        flushed.job
    );
    assert_eq!(disk.unwritten_bytes(), 0);
    let idle = disk.serve_request(flushed.done, SectorRequest::Flush);
    assert_eq!(idle.done, flushed.done);
    // Left alone, it writes on its own.
    let alone = disk.serve_request(idle.done, write(70_000, 8));
    let did = disk.run_background(alone.done + TimeSpan::from_secs(1));
    assert!(
        did.parts()
            .iter()
            .any(|part| part.phase == WorkPhase::Write)
            && disk.unwritten_bytes() == 0
    );
    let honest = disk.serve_request(alone.done + TimeSpan::from_secs(2), durable(70_000, 8));
    assert!(
        honest
            .job
            .parts()
            .iter()
            .any(|part| part.phase == WorkPhase::Write)
    );
}

#[test]
fn a_full_cache_holds_up_the_writer() {
    let mut disk = disk(MICRODRIVE, "write_cache = \"8 KiB\"");
    let mut now = Time::ZERO;
    for i in 0..10 {
        now = disk.serve_request(now, write(i * 100_000, 8)).done;
        assert!(disk.unwritten_bytes() <= 8192);
    }
    assert!(
        now > Time::ZERO + TimeSpan::from_millis(7 * 12),
        "eight of ten went to the surface by {now}"
    );
    let huge = disk.serve_request(now, write(0, 1000));
    assert!(
        huge.job
            .parts()
            .iter()
            .any(|part| part.phase == WorkPhase::Write),
        "larger than the cache"
    );
}

#[test]
fn requests_beyond_the_end_are_cut_off() {
    let mut disk = disk(MICRODRIVE, "track_buffer = \"64 KiB\"");
    let end = disk.sector_count();
    let last = disk.serve_request(Time::ZERO, read(end - 4, 100));
    let beyond = disk.serve_request(last.done, durable(end + 7, 100));
    assert_eq!(beyond.job.total_time(), TimeSpan::ZERO);
}

/// Without buffers: the end of each request, once more, in floating point and from the definitions.
fn second_computation(requests: &[(u64, u64, u64, bool)]) -> Vec<f64> {
    let (turn, capacity, rate) = (60.0 / 5400.0, 320e9, 44e6);
    let per_track = (rate * turn / 512.0_f64).floor();
    let tracks = (capacity / 512.0 / per_track).ceil();
    let (track, average, full) = (1e-3, 12e-3, 20e-3);
    let root = 5.0 * ((average - track) - (full - track) / 3.0);
    let (mut arm, mut free, mut ends) = (0.0, 0.0_f64, Vec::new());
    for &(gap, at, count, _) in requests {
        let mut now = free + gap as f64 * 1e-6;
        let (mut next, end) = (at as f64, (at + count) as f64);
        while next < end {
            let here = (next / per_track).floor();
            let distance: f64 = (here - arm).abs() / tracks;
            let steps = (here - arm).abs();
            now += if steps == 0.0 {
                0.0
            } else if steps == 1.0 {
                track
            } else {
                track + root * distance.sqrt() + (full - track - root) * distance
            };
            arm = here;
            let sector = next - here * per_track;
            let begins = (here * track + sector / per_track * turn) / turn;
            let wait = (begins - now / turn).rem_euclid(1.0) * turn;
            // A wait of a whole turn but for rounding is none.
            now += if turn - wait < 2e-7 { 0.0 } else { wait };
            let run = (end - next).min(per_track - sector);
            now += run / per_track * turn;
            next += run;
        }
        free = now;
        ends.push(now);
    }
    ends
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_second_computation_agrees(
        requests in prop::collection::vec((0_u64..100_000, 0_u64..600_000_000, 1_u64..4000, any::<bool>()), 1..20),
    ) {
        let mut disk = disk(TRAVELSTAR, "");
        let mut ends = Vec::new();
        for &(gap, at, count, is_read) in &requests {
            let request = if is_read { read(at, count) } else { durable(at, count) };
            let now = disk.free_at() + TimeSpan::from_micros(gap);
            ends.push(disk.serve_request(now, request).done.get());
        }
        for (ours, second) in ends.into_iter().zip(second_computation(&requests)) {
            let off = (ours as f64 / 1e9 - second).abs();
            // Rounding adds up to less than a microsecond; a sector just met or just missed, to a
            // turn.
            let turn = 60.0 / 5400.0;
            prop_assert!(off < 2e-5 || (off - turn).abs() < 2e-5, "{ours} ns here, {second} s there");
        }
    }

    #[test]
    fn parts_fill_the_time_and_the_same_requests_give_the_same_answers(
        requests in prop::collection::vec((0_u64..40_000, 0_u64..2_000, 1_u64..300, 0_u8..5), 1..60),
    ) {
        let electronics = "track_buffer = \"32 KiB\"\nwrite_cache = \"64 KiB\"\ninterface = \"20 MB/s\"\noverhead = \"300 us\"";
        let (mut disk, mut twin) = (disk(TRAVELSTAR, electronics), self::disk(TRAVELSTAR, electronics));
        let (mut now, mut accounted) = (Time::ZERO, TimeSpan::ZERO);
        for (gap, at, count, kind) in requests {
            let asked = now + TimeSpan::from_micros(gap);
            let request = match kind { 0 | 1 => read(at, count), 2 => write(at, count), 3 => durable(at, count), _ => SectorRequest::Flush };
            let served = disk.serve_request(asked, request);
            prop_assert_eq!(&served, &twin.serve_request(asked, request));
            prop_assert!(served.start >= asked && served.done >= served.start);
            prop_assert_eq!(served.job.total_time(), served.done.since(served.start));
            // Background work lies between the end of the last request and the beginning of this
            // one.
            prop_assert!(served.background.total_time() <= served.start.since(now), "{served:?}");
            accounted += served.job.total_time() + served.background.total_time();
            now = served.done;
            prop_assert!(accounted <= now.since(Time::ZERO));
            let is_durable = matches!(request, SectorRequest::Flush);
            prop_assert!(!is_durable || disk.unwritten_bytes() == 0);
        }
    }
}
