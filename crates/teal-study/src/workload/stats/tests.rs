//! Counts, latencies and their percentiles.

use super::*;

#[test]
fn a_percentile_is_never_below_and_a_sixteenth_above_at_most() {
    for nanos in (0..2000)
        .chain((11..40).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) * 3 / 2]))
    {
        let shown = bucket_upper(bucket_of(nanos));
        assert!(
            shown >= nanos && shown as f64 <= nanos as f64 * (1.0 + 1.0 / 16.0),
            "{nanos} {shown}"
        );
    }
    assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
}

#[test]
fn figures_add_up_over_threads() {
    let tallies: Vec<FlowopTally> = (0..4).map(|_| FlowopTally::new()).collect();
    for (at, tally) in tallies.iter().take(3).enumerate() {
        (0..100).for_each(|n| tally.record(1000 * (at as u64 + 1) + n, 10));
    }
    let mut figures = LatencyFigures::default();
    tallies.iter().for_each(|tally| figures.add_tally(tally));
    assert_eq!(
        (figures.count, figures.bytes, figures.min, figures.max),
        (300, 3000, 1000, 3099)
    );
    let middle = figures.percentile(0.5);
    assert!((2000..2200).contains(&middle), "{middle}");
    assert_eq!(figures.percentile(1.0), 3099);
    assert!((figures.mean() - 2049.5).abs() < 1.0);
    assert_eq!(LatencyFigures::default().percentile(0.99), 0);
}

#[test]
fn a_thread_that_did_nothing_has_no_least_latency() {
    let (busy, idle) = (FlowopTally::new(), FlowopTally::new());
    busy.record(500, 0);
    let mut figures = LatencyFigures::default();
    figures.add_tally(&idle);
    assert_eq!(figures.min, 0);
    figures.add_tally(&busy);
    figures.add_tally(&idle);
    assert_eq!((figures.min, figures.max), (500, 500));
}

#[test]
fn what_has_been_added_since_is_the_difference() {
    let tally = FlowopTally::new();
    tally.record(1000, 1);
    let (mut before, mut after) = (LatencyFigures::default(), LatencyFigures::default());
    before.add_tally(&tally);
    tally.record(50, 2);
    after.add_tally(&tally);
    let since = after.since(&before);
    assert_eq!((since.count, since.bytes, since.nanos), (1, 2, 50));
    assert_eq!(
        (since.min, since.max),
        (50, 50),
        "one operation's extremes are its own"
    );
    let one = after.clone();
    tally.record(1_000_200, 0);
    tally.record(1_000_300, 0);
    let mut after = LatencyFigures::default();
    after.add_tally(&tally);
    let since = after.since(&one);
    let mean = since.mean();
    assert!(
        (since.min as f64) <= mean && mean <= since.max as f64 && since.max == 1_000_300,
        "{since:?}"
    );
}

#[test]
fn filebenchs_histogram_counts_by_powers_of_two() {
    let tally = FlowopTally::new();
    for nanos in [0, 1, 2, 3, 1023, 1024, 5000] {
        tally.record(nanos, 0);
    }
    let mut figures = LatencyFigures::default();
    figures.add_tally(&tally);
    let powers = figures.log2_histogram();
    let used: Vec<(usize, u64)> = powers
        .into_iter()
        .enumerate()
        .filter(|(_, n)| *n > 0)
        .collect();
    assert_eq!(used, [(0, 1), (1, 1), (2, 2), (10, 1), (11, 1), (13, 1)]);
}
