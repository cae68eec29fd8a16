//! Times and joules of a drive, by hand, and their sums.

use super::*;
use proptest::prelude::*;
use teal_energy::Profile;
use teal_energy::ledger::WorkPhase;
use teal_energy::profile::DriveElectronics;
use teal_types::{Bytes, Power as Watts, Sector};

fn drive(electronics: DriveElectronics, spin_down: Option<TimeSpan>) -> ModelledDrive {
    let setup = EmulationSetup::new(
        Profile::find_shipped("ibm-microdrive-1gb").unwrap(),
        512 << 20,
    )
    .unwrap();
    ModelledDrive::new(
        &setup
            .with_electronics(electronics)
            .with_spin_down(spin_down),
    )
    .unwrap()
}

fn read(at: u64) -> SectorRequest {
    SectorRequest::Read {
        at: Sector::new(at),
        count: 8,
    }
}

fn write(at: u64) -> SectorRequest {
    SectorRequest::Write {
        at: Sector::new(at),
        count: 8,
        fua: false,
    }
}

#[test]
fn an_idle_drive_spins_down_when_it_is_due_and_the_next_request_pays() {
    let mut drive = drive(DriveElectronics::default(), Some(TimeSpan::from_secs(5)));
    drive.advance(Time::after_start(TimeSpan::from_secs(4)));
    assert_eq!(drive.power(), RestState::Ready);
    drive.advance(Time::after_start(TimeSpan::from_secs(105)));
    assert_eq!(drive.power(), RestState::Asleep);
    // 5 s at 222 mW, 100 s at 61 mW.
    assert_eq!(
        drive.ledger().total_energy(),
        Energy::from_millijoules(5 * 222 + 6100)
    );
    let asked = Time::after_start(TimeSpan::from_secs(105));
    let work = drive.serve_request(asked, read(100_000));
    assert_eq!(work.start.since(asked), TimeSpan::from_millis(800));
    let events = drive.take_events();
    assert_eq!(
        events.iter().map(|e| e.to).collect::<Vec<_>>(),
        [RestState::Asleep, RestState::Ready]
    );
    assert_eq!(events[0].at, Time::after_start(TimeSpan::from_secs(5)));
    assert_eq!(
        (events[1].at, events[1].energy),
        (asked, Energy::from_millijoules(605))
    );
    assert_eq!(drive.used_cycles(), 1);
}

#[test]
fn what_the_cache_holds_is_on_the_surface_before_the_drive_sleeps() {
    let cache = DriveElectronics {
        write_cache: Bytes::new(1 << 20),
        ..DriveElectronics::default()
    };
    let mut drive = drive(cache, None);
    let quick = drive.serve_request(Time::ZERO, write(1_000_000));
    assert_eq!((quick.done, drive.unwritten_bytes()), (Time::ZERO, 4096));
    let asleep = drive.go_to_sleep(Time::ZERO);
    assert_eq!(drive.unwritten_bytes(), 0);
    assert!(
        asleep > Time::after_start(TimeSpan::from_millis(12)),
        "a seek and a write: {asleep}"
    );
    assert_eq!(
        drive.ledger().entry(EnergyUse::Work(WorkPhase::Seek)).count,
        1
    );
    assert_eq!(
        drive.go_to_sleep(asleep + TimeSpan::from_secs(1)),
        asleep + TimeSpan::from_secs(1),
        "asleep already"
    );
    let awake = drive.wake_up(asleep + TimeSpan::from_secs(2));
    assert_eq!(
        awake,
        asleep + TimeSpan::from_secs(2) + TimeSpan::from_millis(800)
    );
}

#[test]
fn a_request_while_the_drive_goes_down_waits_for_both_ways() {
    let setup = EmulationSetup::new(
        Profile::find_shipped("desktop-7200rpm-composed").unwrap(),
        1 << 30,
    )
    .unwrap();
    let mut drive =
        ModelledDrive::new(&setup.with_spin_down(Some(TimeSpan::from_secs(1)))).unwrap();
    // It takes 12 s to come to rest and 5.4 s to come up again.
    let work = drive.serve_request(Time::after_start(TimeSpan::from_secs(3)), read(0));
    assert_eq!(
        work.start,
        Time::after_start(TimeSpan::from_millis(1000 + 12_000 + 5_400))
    );
}

#[test]
fn a_drive_left_alone_puts_its_cache_on_the_surface() {
    let cache = DriveElectronics {
        write_cache: Bytes::new(1 << 20),
        ..DriveElectronics::default()
    };
    let mut drive = drive(cache, None);
    drive.serve_request(Time::ZERO, write(1_000_000));
    drive.advance(Time::after_start(TimeSpan::from_secs(1)));
    assert_eq!(drive.unwritten_bytes(), 0);
    assert_eq!(drive.ledger().total_time(), TimeSpan::from_secs(1));
}

proptest! {
    #[test]
    fn time_and_joules_are_the_sum_of_their_parts(
        acts in prop::collection::vec((0_u64..4_000_000, 0_u64..900_000, 0_u8..8), 1..80),
        is_cached in any::<bool>(),
        patience in prop::option::of(10_u64..2_000),
    ) {
        let electronics = DriveElectronics {
            overhead: TimeSpan::from_micros(300),
            track_buffer: Bytes::new(64 << 10),
            write_cache: Bytes::new(if is_cached { 64 << 10 } else { 0 }),
            interface: None,
        };
        let mut drive = drive(electronics, patience.map(TimeSpan::from_millis));
        let (mut now, mut spent) = (Time::ZERO, Energy::ZERO);
        let (half, mut before) = (acts.len() / 2, EnergyLedger::default());
        for (n, (gap, at, act)) in acts.into_iter().enumerate() {
            if n == half {
                drive.begin_series();
                before = drive.ledger().clone();
            }
            now = now + TimeSpan::from_micros(gap);
            match act {
                0..=2 => { let work = drive.serve_request(now, read(at)); prop_assert!(work.start >= now); now = work.done; }
                3..=5 => { let work = drive.serve_request(now, write(at)); prop_assert!(work.done >= work.start); now = work.done; }
                6 => { now = drive.serve_request(now, SectorRequest::Flush).done; prop_assert_eq!(drive.unwritten_bytes(), 0); }
                _ => { drive.go_to_sleep(now); }
            }
            prop_assert_eq!(drive.ledger().total_time(), drive.accounted_until().since(Time::ZERO));
            prop_assert!(drive.ledger().total_energy() >= spent);
            spent = drive.ledger().total_energy();
        }
        // The same since the middle, over time.
        let by_use: Vec<_> = drive.ledger().entries().collect();
        let since = by_use.iter().map(|(used, entry)| entry.energy().saturating_sub(before.entry(*used).energy())).sum::<Energy>();
        let bins = drive.series().bins(since);
        prop_assert_eq!(bins.iter().copied().sum::<Energy>(), since);
        prop_assert_eq!(drive.series().passed(), drive.ledger().total_time().saturating_sub(before.total_time()));
        // Without what each use rounds, there is nothing to share out.
        let exact = drive.series().bins(Energy::from_microjoules(u64::MAX)).iter().rev().skip(1).copied().sum::<Energy>();
        prop_assert!(exact <= since + Energy::from_microjoules(by_use.len() as u64));
        // Nothing draws less than standby or more than writing, but the way up.
        let elapsed = drive.accounted_until().since(Time::ZERO);
        let ups = drive.take_events().iter().filter(|e| e.to == RestState::Ready).count() as u64;
        let most = Watts::from_milliwatts(756) * elapsed + Energy::from_millijoules(605) * ups + Energy::from_microjoules(20);
        prop_assert!(spent <= most && spent + Energy::from_microjoules(20) >= Watts::from_milliwatts(61) * elapsed.saturating_sub(TimeSpan::from_millis(800) * ups));
    }
}
