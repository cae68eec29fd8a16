//! Bins by hand, and that nothing gets lost or out of order when they are merged.

use super::*;
use proptest::prelude::*;

fn watts(milli: u64) -> Power {
    Power::from_milliwatts(milli)
}

fn series(parts: &[(u64, u64)]) -> EnergySeries {
    let mut series = EnergySeries::default();
    parts.iter().for_each(|(milli, millis)| {
        series.add_power(watts(*milli), TimeSpan::from_millis(*millis))
    });
    series
}

fn micro(bins: &[Energy]) -> Vec<u64> {
    bins.iter().map(|bin| bin.get()).collect()
}

#[test]
fn what_was_spent_lies_in_the_bins_of_its_time() {
    // 2 ms at 1 W, 3 ms at 0.1 W: a millijoule in each of the first, a tenth in the others.
    let mut of = series(&[(1000, 2), (100, 3)]);
    assert_eq!(
        (of.width(), of.passed()),
        (TimeSpan::from_millis(1), TimeSpan::from_millis(5))
    );
    assert_eq!(
        micro(&of.bins(Energy::from_microjoules(2300))),
        [1000, 1000, 100, 100, 100]
    );
    // Half a millisecond, and one and a half: two bins share what was paid for 2 ms.
    of.add_power(watts(100), TimeSpan::from_micros(500));
    of.add_energy(TimeSpan::from_millis(2), Energy::from_microjoules(4000));
    assert_eq!(
        micro(&of.bins(Energy::from_microjoules(6350))),
        [1000, 1000, 100, 100, 100, 1050, 2000, 1000]
    );
    // What takes no time belongs to what was before it.
    of.add_energy(TimeSpan::ZERO, Energy::from_microjoules(7));
    assert_eq!(micro(&of.bins(Energy::from_microjoules(6357)))[7], 1007);
    assert_eq!(of.passed(), TimeSpan::from_micros(7500));
}

#[test]
fn bins_are_merged_by_twos_when_time_goes_beyond_the_last() {
    let mut of = series(&[(1000, 1), (0, 1), (500, 62)]);
    assert_eq!(
        (of.bins.len(), of.width()),
        (64, TimeSpan::from_millis(1)),
        "just full"
    );
    of.add_power(watts(500), TimeSpan::from_nanos(1));
    assert_eq!((of.bins.len(), of.width()), (33, TimeSpan::from_millis(2)));
    let bins = micro(&of.bins(Energy::from_microjoules(32_000)));
    assert_eq!((bins[0], bins[1], bins[32]), (1000, 1000, 0));
    // A year at once.
    of.add_power(watts(1), TimeSpan::from_hours(24 * 365));
    assert!(
        of.bins.len() <= EnergySeries::BINS_MAX && of.bins.len() > EnergySeries::BINS_MAX / 2,
        "{}",
        of.bins.len()
    );
}

#[test]
fn what_rounds_by_use_is_shared_out_all_the_same() {
    let of = series(&[(1000, 3)]);
    assert_eq!(
        micro(&of.bins(Energy::from_microjoules(3002))),
        [1000, 1000, 1002]
    );
    assert_eq!(
        micro(&of.bins(Energy::from_microjoules(1999))),
        [1000, 999, 0]
    );
    assert!(EnergySeries::default().bins(Energy::ZERO).is_empty());
}

proptest! {
    #[test]
    fn nothing_is_lost_or_out_of_order_in_merges(
        parts in prop::collection::vec((0_u64..20_000, 0_u64..3_000_000_000, any::<bool>()), 1..200),
    ) {
        let mut of = EnergySeries::default();
        // Each part with its time; bin by bin once more, from the definition.
        let mut known: Vec<(u64, u64, u128)> = Vec::new();
        for (milli, nanos, is_paid) in parts {
            let (power, time, from) = (watts(milli), TimeSpan::from_nanos(nanos), of.passed().get());
            let all = if is_paid { u128::from(milli) * PER_MICROJOULE } else { u128::from(power.get()) * u128::from(nanos) };
            if is_paid { of.add_energy(time, Energy::from_microjoules(milli)) } else { of.add_power(power, time) }
            known.push((from, from + nanos, all));
            prop_assert!(of.bins.len() <= EnergySeries::BINS_MAX);
            prop_assert_eq!(of.passed().get(), from + nanos);
        }
        let all: u128 = known.iter().map(|(.., energy)| energy).sum();
        prop_assert_eq!(of.bins.iter().sum::<u128>(), all, "to the femtojoule");
        prop_assert_eq!(of.bins.len() as u64, of.passed().get().div_ceil(of.width().get()).max(u64::from(all > 0)));
        for (at, bin) in of.bins.iter().enumerate() {
            let (begin, end) = (at as u64 * of.width().get(), (at as u64 + 1) * of.width().get());
            let overlap = |from: u64, until: u64| until.min(end).saturating_sub(from.max(begin));
            let expected: f64 = known.iter().map(|(from, until, energy)| match until - from {
                0 if (begin..end).contains(&from.saturating_sub(1)) => *energy as f64,
                0 => 0.0,
                time => *energy as f64 * overlap(*from, *until) as f64 / time as f64,
            }).sum();
            // A division that was rounded down at each merge of each part.
            prop_assert!((*bin as f64 - expected).abs() <= expected * 1e-9 + 1e3, "bin {}: {} {}", at, bin, expected);
        }
        let total = Energy::from_microjoules(u64::try_from((all + PER_MICROJOULE / 2) / PER_MICROJOULE).unwrap());
        prop_assert_eq!(of.bins(total).into_iter().sum::<Energy>(), total);
    }
}
