//! What a few figures say.

/// The middle one, or the mean of both in the middle.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    match (figures.len(), figures.len() / 2) {
        (0, _) => f64::NAN,
        (n, middle) if n % 2 == 1 => figures[middle],
        (_, middle) => (figures[middle - 1] + figures[middle]) / 2.0,
    }
}

/// The share of the figures that are below `limit`.
pub fn share_below(figures: &[f64], limit: f64) -> f64 {
    let below = figures.iter().filter(|figure| **figure < limit).count();
    below as f64 / figures.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_below_a_limit() {
        assert_eq!(share_below(&[1.0, 2.0, 3.0, 0.5], 2.0), 0.5);
        assert!(share_below(&[], 2.0).is_nan());
    }

    #[test]
    fn the_median_of_even_and_odd_numbers() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
    }
}
