//! Streams have the totals of the papers, to the last operation and byte, whatever the gaps and the
//! seed.

use super::*;
use std::collections::BTreeMap;
use teal_trace::{TraceReader, TraceStatistics};

/// What can be counted in a stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    operations: u64,
    changes: u64,
    length: u64,
    bytes: u64,
    files: u64,
    /// By window of thirty seconds: changes and first reads.
    requests: Vec<u64>,
    ten_thousandth: u64,
}

fn totals(published: &'static PublishedTotals, gaps: GapModel, seed: u64) -> Totals {
    let mut totals = Totals::default();
    let mut sizes = BTreeMap::new();
    let mut before = Duration::ZERO;
    for event in published.generate_events(gaps, seed) {
        assert!(event.at >= before, "in order");
        before = event.at;
        totals.operations += 1;
        totals.length = event.at.as_nanos() as u64;
        let mut is_request = matches!(event.action, Action::Write { .. });
        totals.changes += u64::from(is_request);
        if let Action::Read { length, .. } = event.action {
            is_request |= sizes.insert(event.object, length).is_none();
        } else {
            assert!(
                sizes.contains_key(&event.object),
                "nothing is asked of a file that was not met"
            );
        }
        let window = (event.at.as_secs() / 30) as usize;
        totals.requests.resize(window + 1, 0);
        totals.requests[window] += u64::from(is_request);
        if totals.operations == 10_000 {
            totals.ten_thousandth = event.at.as_secs();
        }
    }
    totals.bytes = sizes.values().sum();
    totals.files = sizes.len() as u64;
    totals
}

#[test]
fn bluefs_streams_have_the_totals_of_figure_5() {
    let figure_5 = [
        ("purcell", 87_739, 2766, 6, 252),
        ("messiaen", 44_027, 2127, 2, 227),
        ("robin", 37_504, 1546, 7, 85),
        ("berlioz", 17_917, 785, 8, 57),
    ];
    for (name, operations, hundredths, percent, megabytes) in figure_5 {
        let published = PublishedTotals::by_name(name).unwrap();
        for gaps in GapModel::ALL {
            let seen = totals(published, gaps, 7);
            assert_eq!(seen.operations, operations, "{name}");
            assert_eq!(
                seen.length,
                hundredths * 36_000_000_000,
                "{name}, hours to two decimals"
            );
            assert!(
                (seen.changes * 100).abs_diff(operations * percent) <= 50,
                "{name}, the nearest whole operation"
            );
            assert_eq!(seen.bytes, megabytes * 1_000_000, "{name}");
            if name == "purcell" {
                assert_eq!(
                    seen.ten_thousandth,
                    42 * 60 + 36,
                    "5.5: the first 10,000 take 42:36 minutes"
                );
            }
        }
    }
}

#[test]
fn the_jeff_stream_has_the_totals_and_spikes_of_greenfs() {
    let published = PublishedTotals::by_name("jeff").unwrap();
    for (seed, gaps) in GapModel::ALL.into_iter().enumerate() {
        let seen = totals(published, gaps, seed as u64);
        assert_eq!(
            (seen.operations, seen.length),
            (1_987_982, 95_328_000_000_000),
            "26.48 hours"
        );
        assert_eq!(seen.changes, 111_327, "5.6 % to the nearest operation");
        assert_eq!((seen.bytes, seen.files), (649_000_000, 12_599));
        let within = |least, below| {
            seen.requests
                .iter()
                .filter(|count| (least..below).contains(*count))
                .count()
        };
        let classes = [
            within(10_000, 15_001),
            within(1_000, 10_000),
            within(100, 1_000),
        ];
        assert_eq!(classes, [3, 17, 505], "{gaps:?}");
        assert_eq!(within(15_001, u64::MAX), 0);
        // 1.3 requests a second.
        assert_eq!(seen.requests.iter().sum::<u64>(), 123_926);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_gaps_differ_as_they_should() {
    let published = PublishedTotals::by_name("berlioz").unwrap();
    let mut medians = Vec::new();
    for gaps in GapModel::ALL {
        let bytes = published.write_trace(gaps, 1, Vec::new()).unwrap();
        assert_eq!(bytes, published.write_trace(gaps, 1, Vec::new()).unwrap());
        assert_ne!(
            bytes,
            published.write_trace(gaps, 2, Vec::new()).unwrap(),
            "sizes are drawn"
        );
        let mut reader = TraceReader::new(&bytes[..]).unwrap();
        let mut stat = TraceStatistics::default();
        reader
            .by_ref()
            .for_each(|item| stat.add_item(&item.unwrap()));
        assert_eq!(
            stat.actions.values().map(|tally| tally.done).sum::<u64>(),
            published.operations
        );
        let mut pauses: Vec<_> = published
            .generate_events(gaps, 1)
            .map(|event| event.at)
            .collect();
        pauses = pauses.windows(2).map(|pair| pair[1] - pair[0]).collect();
        pauses.sort_unstable();
        medians.push(pauses[pauses.len() / 2].as_millis());
    }
    // 1.58 s on average; the median of a Poisson process is 0.69 of that; of sessions it is far
    // less.
    assert!(
        (1570..1590).contains(&medians[0])
            && (1040..1140).contains(&medians[1])
            && medians[2] < 300,
        "{medians:?}"
    );
}
