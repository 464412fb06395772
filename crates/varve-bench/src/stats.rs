//! What a few figures say: their median, and how far off it may be.

use std::fmt::{self, Display};

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

/// Median, least and greatest of a few figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub greatest: f64,
}

impl Spread {
    pub fn of(figures: &[f64]) -> Self {
        let figures = figures.iter().copied();
        Self {
            median: median(figures.clone()),
            least: figures.clone().fold(f64::NAN, f64::min),
            greatest: figures.fold(f64::NAN, f64::max),
        }
    }
}

impl Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            median,
            least,
            greatest,
        } = self;
        f.pad(&format!("{median:.0} ({least:.0}-{greatest:.0})"))
    }
}

/// What each engine came to in several runs.
pub struct Runs<T>(Vec<Vec<T>>);

impl<T> Runs<T> {
    pub fn new(engines: usize) -> Self {
        Self((0..engines).map(|_| Vec::new()).collect())
    }

    pub fn add(&mut self, engine: usize, run: T) {
        self.0[engine].push(run);
    }

    /// Adds what the same engines came to in more runs.
    pub fn append(&mut self, more: Self) {
        for (runs, more) in self.0.iter_mut().zip(more.0) {
            runs.extend(more);
        }
    }

    pub fn of(&self, engine: usize) -> &[T] {
        &self.0[engine]
    }

    pub fn figures(&self, engine: usize, figure: impl Fn(&T) -> f64) -> Vec<f64> {
        self.0[engine].iter().map(figure).collect()
    }

    pub fn median(&self, engine: usize, figure: impl Fn(&T) -> f64) -> f64 {
        median(self.0[engine].iter().map(figure))
    }

    /// The first engine's median in that of the second, if there are two.
    pub fn ratio(&self, figure: impl Fn(&T) -> f64) -> Option<f64> {
        let is_pair = self.0.len() == 2;
        is_pair.then(|| self.median(0, &figure) / self.median(1, &figure))
    }

    /// The first engine's figure in that of the second, run by run, if there are two. What is nothing has no
    /// ratio.
    pub fn paired_ratio(&self, figure: impl Fn(&T) -> f64) -> Option<Estimate> {
        let [first, second] = &self.0[..] else {
            return None;
        };
        let pairs = first
            .iter()
            .zip(second)
            .map(|(a, b)| (figure(a), figure(b)));
        let pairs = pairs.filter(|(a, b)| *a > 0.0 && *b > 0.0);
        let ratios: Vec<f64> = pairs.map(|(a, b)| a / b).collect();
        Some(paired_ratio(&ratios))
    }
}

/// As it stands in a table.
pub fn ratio_text(ratio: Option<f64>) -> String {
    ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"))
}

/// The share of the figures that are below `limit`.
pub fn share_below(figures: &[f64], limit: f64) -> f64 {
    let below = figures.iter().filter(|figure| **figure < limit).count();
    below as f64 / figures.len() as f64
}

/// An estimate, and between which values it lies with a probability of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// `None`: there are fewer than six figures, which never say so much.
    pub interval: Option<(f64, f64)>,
}

impl Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.interval {
            Some((least, greatest)) => {
                f.pad(&format!("{:.2} ({least:.2}-{greatest:.2})", self.value))
            }
            None => f.pad(&format!("{:.2}", self.value)),
        }
    }
}

/// The median of paired ratios after Hodges and Lehmann: the median of the means of every two of their
/// logarithms (and of each with itself). The interval is that of Wilcoxon's signed-rank test, from its exact
/// distribution: it supposes that the logarithms lie symmetrically about their median, and nothing about how
/// they are distributed otherwise.
pub fn paired_ratio(ratios: &[f64]) -> Estimate {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let mut means = Vec::new();
    for (n, a) in logs.iter().enumerate() {
        means.extend(logs[n..].iter().map(|b| (a + b) / 2.0));
    }
    means.sort_by(f64::total_cmp);
    let cut = lower_quantile(logs.len());
    Estimate {
        value: median(means.iter().copied()).exp(),
        interval: (cut > 0).then(|| (means[cut - 1].exp(), means[means.len() - cut].exp())),
    }
}

/// The least `w` for which the sum of positive ranks of `n` signs tossed by a coin is `w` or less with a
/// probability of 2.5 % at least.
fn lower_quantile(n: usize) -> usize {
    // Which share of the outcomes has each sum.
    let mut shares = vec![0.0f64; n * (n + 1) / 2 + 1];
    shares[0] = 1.0;
    for rank in 1..=n {
        for sum in (0..shares.len()).rev() {
            let with_rank = sum.checked_sub(rank).map_or(0.0, |rest| shares[rest]);
            shares[sum] = (shares[sum] + with_rank) / 2.0;
        }
    }
    let mut below = 0.0;
    let reached = shares.iter().position(|share| {
        below += share;
        below >= 0.025
    });
    reached.expect("all outcomes together are enough")
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

    #[test]
    fn runs_of_two_engines_make_a_ratio() {
        let mut runs = Runs::new(2);
        for (engine, figure) in [(0, 3.0), (1, 4.0), (1, 9.0), (0, 1.0), (0, 2.0), (1, 1.0)] {
            runs.add(engine, figure);
        }
        assert_eq!(runs.ratio(|figure| *figure), Some(0.5));
        let spread = Spread::of(&runs.figures(1, |figure| *figure));
        assert_eq!(spread.to_string(), "4 (1-9)");
    }

    #[test]
    fn neighbouring_runs_make_a_ratio() {
        let mut runs = Runs::new(2);
        for (engine, figure) in [(0, 3.0), (1, 6.0), (0, 0.0), (1, 9.0)] {
            runs.add(engine, figure);
        }
        let mut more = Runs::new(2);
        more.add(0, 2.0);
        more.add(1, 4.0);
        runs.append(more);
        let ratio = runs.paired_ratio(|figure| *figure).expect("there are two");
        assert_eq!(ratio.to_string(), "0.50");
        let six = Estimate {
            value: 1.0,
            interval: Some((0.9, 1.13)),
        };
        assert_eq!(six.to_string(), "1.00 (0.90-1.13)");
        assert!(Runs::<f64>::new(1).paired_ratio(|figure| *figure).is_none());
    }

    /// From tables of the signed-rank test.
    #[test]
    fn quantiles_of_signed_ranks() {
        for (n, quantile) in [(5, 0), (6, 1), (8, 4), (10, 9), (15, 26), (20, 53)] {
            assert_eq!(lower_quantile(n), quantile, "{n}");
        }
        // Of so many the sum is distributed normally.
        let many = lower_quantile(1_095) as f64;
        let (mean, deviation) = (
            1_095.0 * 1_096.0 / 4.0,
            (1_095.0f64 * 1_096.0 * 2_191.0 / 24.0).sqrt(),
        );
        assert!(
            (many - (mean - 1.96 * deviation)).abs() < 0.01 * deviation,
            "{many}"
        );
    }

    #[test]
    fn an_interval_takes_six_pairs() {
        let ratios = [0.5, 1.0, 1.0, 1.0, 2.0];
        let five = paired_ratio(&ratios);
        assert!((five.value - 1.0).abs() < 1e-12 && five.interval.is_none());
        let six = paired_ratio(&[0.5, 0.9, 1.0, 1.0, 1.1, 2.0]);
        let (low, high) = six.interval.unwrap();
        assert!((low - 0.5).abs() < 1e-12 && (high - 2.0).abs() < 1e-12);
    }
}
