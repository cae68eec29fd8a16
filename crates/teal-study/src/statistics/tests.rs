//! The methods against worked examples and what must hold.

use super::*;
use proptest::prelude::*;

#[test]
fn an_interval_is_students() {
    // Of 9, 10, 11: deviation 1, t(2) = 4.303.
    let interval = ConfidenceInterval::from_samples(&[9.0, 10.0, 11.0]).unwrap();
    assert_eq!((interval.n, interval.mean), (3, 10.0));
    assert!((interval.half_width - 4.303 / 3_f64.sqrt()).abs() < 1e-9);
    assert!((interval.relative_half_width() - 0.2484).abs() < 1e-3);
    assert_eq!(ConfidenceInterval::from_samples(&[1.0]), None);
    assert_eq!(
        ConfidenceInterval::from_samples(&[0.0, 0.0])
            .unwrap()
            .relative_half_width(),
        0.0
    );
}

#[test]
fn quantiles_between_the_tables_points_are_near_the_true_ones() {
    for (degrees, t) in [
        (1, 12.706),
        (30, 2.042),
        (35, 2.030),
        (50, 2.009),
        (80, 1.990),
        (200, 1.972),
        (10_000, 1.960),
    ] {
        assert!(
            (student_t95(degrees) - t).abs() < 0.0015,
            "{degrees}: {}",
            student_t95(degrees)
        );
    }
}

#[test]
fn wilcoxons_test_gives_the_published_probabilities() {
    // All six of one sign: 2 / 2^6. Of ten, the sum of the negative ranks 8: p = 0.048828125
    // (tables: 8 is significant at 5 %).
    assert_eq!(
        signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        Some(2.0 / 64.0)
    );
    let ten = [1.0, 2.0, -3.0, 4.0, -5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
    assert_eq!(signed_rank(&ten), Some(0.048828125));
    assert_eq!(signed_rank(&[1.0; 5]), None);
    assert_eq!(
        signed_rank(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        None,
        "a difference of zero is none"
    );
    // Where counting ends, the normal distribution takes over at nearly the same place.
    let of = |n: usize| -> Vec<f64> {
        (1..=n)
            .map(|i| if i % 3 == 0 { -(i as f64) } else { i as f64 })
            .collect()
    };
    let (counted, normal) = (signed_rank(&of(25)).unwrap(), signed_rank(&of(26)).unwrap());
    assert!(
        (counted - normal).abs() < 0.06 && normal < 0.3,
        "{counted} {normal}"
    );
}

#[test]
fn an_outlier_moves_the_mean_and_not_the_middle() {
    let mut pairs = vec![(2.0, 1.0); 7];
    pairs.push((200.0, 1.0));
    let comparison = PairedComparison::from_pairs(&pairs).unwrap();
    assert_eq!(comparison.middle, 2.0);
    assert!(comparison.ratio > 3.0 && comparison.is_tie() == (comparison.low <= 1.0));
    assert_eq!(
        PairedComparison::from_pairs(&[(1.0, 0.0), (1.0, 1.0)]),
        None
    );
}

#[test]
fn a_warm_up_is_cut_off_and_a_run_that_only_grows_is_not_steady() {
    let mut rates = vec![10.0; 10];
    rates.extend((0..50).map(|i| 100.0 + f64::from(i % 3)));
    assert_eq!(steady_from(&rates), Some(10));
    let grows: Vec<f64> = (0..60).map(|i| 1.2_f64.powi(i)).collect();
    assert_eq!(steady_from(&grows), None);
    assert_eq!(steady_from(&[1.0; 19]), None);
    assert_eq!(steady_from(&[5.0; 20]), Some(0));
}

#[test]
fn correlation_is_one_on_a_line() {
    let line: Vec<(f64, f64)> = (0..9)
        .map(|i| (f64::from(i), 3.0 - 2.0 * f64::from(i)))
        .collect();
    assert!((pearson_correlation(&line).unwrap() + 1.0).abs() < 1e-12);
    assert_eq!(
        pearson_correlation(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]),
        None
    );
}

proptest! {
    #[test]
    fn a_comparison_the_other_way_round_is_the_reciprocal(
        pairs in proptest::collection::vec((0.01_f64..100.0, 0.01_f64..100.0), 2..30)
    ) {
        let swapped: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
        let (there, back) = (PairedComparison::from_pairs(&pairs).unwrap(), PairedComparison::from_pairs(&swapped).unwrap());
        prop_assert!((there.ratio * back.ratio - 1.0).abs() < 1e-9);
        prop_assert!((there.middle * back.middle - 1.0).abs() < 1e-9);
        prop_assert!((there.low * back.high - 1.0).abs() < 1e-9);
        prop_assert_eq!(there.p.is_some(), back.p.is_some());
        prop_assert!(there.p.is_none_or(|p| (p - back.p.unwrap()).abs() < 1e-9 && (0.0..=1.0).contains(&p)));
    }
}

#[test]
fn a_trend_is_the_line_through_the_logarithms() {
    // Doubles every two steps, exactly.
    let exact: Vec<(f64, f64)> = (0..5)
        .map(|n| (f64::from(n), 3.0 * 2_f64.powf(f64::from(n) / 2.0)))
        .collect();
    let trend = LinearTrend::fit_points(&exact).unwrap();
    assert!(
        (trend.ratio - 4.0).abs() < 1e-9
            && (trend.high - trend.low).abs() < 1e-6
            && !trend.is_inconclusive(),
        "{trend:?}"
    );
    // By hand: logarithms 0, 0.1, -0.1, 0 at 0, 1, 2, 4. Means 1.75 and 0; spread 8.75; rise -0.1 /
    // 8.75; rest (0.02 - 0.01 / 8.75) / 2; t(2) = 4.303.
    let logs = [(0.0, 0.0_f64), (1.0, 0.1), (2.0, -0.1), (4.0, 0.0)].map(|(x, y)| (x, y.exp()));
    let trend = LinearTrend::fit_points(&logs).unwrap();
    let half = 4.303 * ((0.02_f64 - 0.01 / 8.75) / 2.0 / 8.75).sqrt() * 4.0;
    assert!((trend.ratio.ln() + 0.4 / 8.75).abs() < 1e-9, "{trend:?}");
    assert!(
        (trend.high.ln() - trend.low.ln() - 2.0 * half).abs() < 1e-9 && trend.is_inconclusive(),
        "{trend:?}"
    );
    assert_eq!(LinearTrend::fit_points(&exact[..2]), None);
    assert_eq!(
        LinearTrend::fit_points(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]),
        None,
        "all at once"
    );
    assert_eq!(
        LinearTrend::fit_points(&[(1.0, 1.0), (2.0, 0.0), (3.0, 3.0)]),
        None,
        "nothing has no logarithm"
    );
}

proptest! {
    #[test]
    fn a_trend_of_noise_is_none_nearly_always(noise in prop::collection::vec(prop::collection::vec(0.9_f64..1.1, 8), 200)) {
        let seen = noise.iter().filter(|of| {
            let points: Vec<(f64, f64)> = (0..).zip(of.iter()).map(|(at, y)| (f64::from(at), *y)).collect();
            !LinearTrend::fit_points(&points).unwrap().is_inconclusive()
        });
        // Ten are expected; thirty would be six deviations more.
        prop_assert!(seen.count() <= 30);
    }
}
