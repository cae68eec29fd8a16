//! Random variables: ranges, means, repeatable streams.

use super::*;

const DRAWS: u32 = 200_000;

fn random(spread: Distribution) -> RandomVariable {
    RandomVariable {
        name: "rr".into(),
        distribution: spread,
        min: 0.0,
        max: f64::INFINITY,
        mean: None,
        round: 0.0,
        seed: 1,
    }
}

/// Mean, least and largest of many draws.
fn drawn(random: &RandomVariable) -> (f64, f64, f64) {
    let mut stream = random.stream_for_thread(7, 0);
    let (mut sum, mut least, mut most) = (0.0, f64::INFINITY, 0.0_f64);
    for _ in 0..DRAWS {
        let value = random.draw(&mut stream);
        sum += value;
        least = least.min(value);
        most = most.max(value);
    }
    (sum / f64::from(DRAWS), least, most)
}

#[track_caller]
fn near(is: f64, wanted: f64) {
    assert!(
        (is - wanted).abs() <= wanted.abs() * 0.02,
        "{is} is not {wanted}"
    );
}

#[test]
fn uniform_reaches_from_min_to_as_far_above_the_mean() {
    let (mean, least, most) = drawn(&RandomVariable {
        min: 100.0,
        mean: Some(300.0),
        ..random(Distribution::Uniform)
    });
    near(mean, 300.0);
    assert!(
        (100.0..101.0).contains(&least) && (499.0..500.0).contains(&most),
        "{least} {most}"
    );
}

#[test]
fn gamma_has_its_mean_and_min_and_else_the_shape_as_mean() {
    let (mean, least, _) = drawn(&RandomVariable {
        min: 1000.0,
        mean: Some(16_384.0),
        ..random(Distribution::Gamma(1.5))
    });
    near(mean, 16_384.0);
    assert!(least >= 1000.0);
    near(drawn(&random(Distribution::Gamma(0.1))).0, 0.1);
    near(drawn(&random(Distribution::Gamma(1.5))).0, 1.5);
}

#[test]
fn tables_are_drawn_slot_by_slot_and_stretched() {
    let slots: Vec<(f64, f64)> = (0..100)
        .map(|slot| if slot < 75 { (0.0, 10.0) } else { (10.0, 50.0) })
        .collect();
    let table = random(Distribution::Tabular(slots));
    near(drawn(&table).0, 0.75 * 5.0 + 0.25 * 30.0);
    let (mean, least, most) = drawn(&RandomVariable {
        mean: Some(1000.0),
        min: 100.0,
        ..table
    });
    near(mean, 1000.0);
    assert!(least >= 100.0 && most > 3000.0, "{least} {most}");
}

#[test]
fn values_are_rounded_to_multiples() {
    let rounded = RandomVariable {
        mean: Some(10_000.0),
        round: 4096.0,
        ..random(Distribution::Uniform)
    };
    let mut stream = rounded.stream_for_thread(1, 1);
    assert!((0..1000).all(|_| rounded.draw(&mut stream) % 4096.0 == 0.0));
}

#[test]
fn custom_variables_have_the_means_of_their_kinds() {
    for (spread, mean) in [
        (Distribution::Between(10.0, 30.0), 20.0),
        (Distribution::Normal(100.0, 5.0), 100.0),
        (Distribution::LogNormal(0.5, 2.0), (2.0_f64 + 0.125).exp()),
        (Distribution::Exponential(50.0), 50.0),
        (Distribution::GammaOf(4096.0, 1.5), 4096.0),
        (Distribution::Erlang(3.0, 0.5), 6.0),
        (Distribution::Weibull(1.0, 9.0), 9.0),
        (Distribution::Triangular(0.0, 10.0, 5.0), 5.0),
        (Distribution::Triangular(0.0, 12.0, 0.0), 4.0),
    ] {
        near(drawn(&random(spread)).0, mean);
    }
}

#[test]
fn custom_variables_round_a_half_down_and_keep_their_bounds() {
    let fixed = |value, round| RandomVariable {
        round,
        ..random(Distribution::Between(value, value))
    };
    let mut stream = RandomStream::new(1, 1);
    assert_eq!(fixed(15.0, 10.0).draw(&mut stream), 10.0);
    assert_eq!(fixed(15.1, 10.0).draw(&mut stream), 20.0);
    let bounded = RandomVariable {
        min: 20.0,
        max: 30.0,
        ..random(Distribution::Between(0.0, 100.0))
    };
    let (_, least, most) = drawn(&bounded);
    assert_eq!((least, most), (20.0, 30.0));
}

#[test]
fn the_same_seed_draws_the_same_and_threads_draw_differently() {
    let gamma = random(Distribution::Gamma(1.5));
    let draw = |seed, thread| {
        let mut stream = gamma.stream_for_thread(seed, thread);
        std::array::from_fn::<f64, 8, _>(|_| gamma.draw(&mut stream))
    };
    assert_eq!(draw(1, 2), draw(1, 2));
    assert_ne!(draw(1, 2), draw(1, 3));
    assert_ne!(draw(1, 2), draw(2, 2));
    let other = RandomVariable {
        seed: 2,
        ..gamma.clone()
    };
    assert_ne!(
        other.draw(&mut other.stream_for_thread(1, 2)),
        draw(1, 2)[0]
    );
}

#[test]
fn nothing_negative_is_drawn() {
    let (_, least, _) = drawn(&random(Distribution::Normal(0.0, 10.0)));
    assert_eq!(least, 0.0);
}
