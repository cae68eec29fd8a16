//! Medians and spreads of a few numbers.

/// The middle of several numbers and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MedianSpread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

/// Returns the median and the extremes of the finite numbers; `None` when there are none.
pub(super) fn median_spread(numbers: impl IntoIterator<Item = f64>) -> Option<MedianSpread> {
    let mut sorted: Vec<f64> = numbers
        .into_iter()
        .filter(|number| number.is_finite())
        .collect();
    debug_assert!(
        sorted.iter().all(|number| number.is_finite()),
        "others were left out"
    );
    sorted.sort_by(f64::total_cmp);
    let (least, most) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    // The mean of the two middle numbers, if there are two.
    let median = if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    };
    Some(MedianSpread {
        median,
        least,
        most,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(
            median_spread([3.0, 1.0, 2.0]),
            Some(MedianSpread {
                median: 2.0,
                least: 1.0,
                most: 3.0
            })
        );
        assert_eq!(median_spread([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(
            median_spread([7.0]),
            Some(MedianSpread {
                median: 7.0,
                least: 7.0,
                most: 7.0
            })
        );
    }

    #[test]
    fn what_is_no_number_does_not_count() {
        assert_eq!(
            median_spread([f64::NAN, 1.0, f64::INFINITY])
                .unwrap()
                .median,
            1.0
        );
        assert_eq!(median_spread([f64::NAN]), None);
        assert_eq!(median_spread([]), None);
    }
}
