//! Medians, confidence intervals without assumptions about distributions, and ratios.

use crate::random::SplitMix64;

/// A confidence interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

fn sorted(of: &[f64]) -> Vec<f64> {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns the median of some values, and reorders them.
fn median_of(values: &mut [f64]) -> f64 {
    let half = values.len() / 2;
    let odd = values.len() % 2 == 1;
    let (below, &mut middle, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    match odd {
        true => middle,
        false => (below.iter().copied().fold(f64::NEG_INFINITY, f64::max) + middle) / 2.0,
    }
}

/// Returns the quantile at `part` (0 to 1), interpolated between neighbouring values; NaN without values.
pub fn quantile(of: &[f64], part: f64) -> f64 {
    let sorted = sorted(of);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = part.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

/// Returns the median; NaN without values.
pub fn median(of: &[f64]) -> f64 {
    quantile(of, 0.5)
}

/// Returns the confidence interval of the median for any distribution. The ends of the interval are two of the values, found by the
/// binomial distribution of the number of values below the median. With too few values the interval is the range of all values.
pub fn median_interval(of: &[f64], confidence: f64) -> Interval {
    let sorted = sorted(of);
    let n = sorted.len();
    if n == 0 {
        return Interval { low: f64::NAN, high: f64::NAN };
    }
    // Finds the largest k for which fewer than k of n values lie below the median with a probability of at most `tail`.
    let tail = (1.0 - confidence) / 2.0;
    let (mut k, mut below) = (0, 0.0);
    let mut log_choose = 0.0f64;
    for j in 0..n / 2 {
        below += (log_choose - n as f64 * std::f64::consts::LN_2).exp();
        if below > tail {
            break;
        }
        k = j + 1;
        log_choose += ((n - j) as f64 / (j + 1) as f64).ln();
    }
    let at = k.saturating_sub(1);
    Interval { low: sorted[at], high: sorted[n - 1 - at] }
}

/// Returns the Hodges-Lehmann estimate of the centre of `values`, which are differences of pairs, and a confidence interval by Wilcoxon's
/// signed-rank test, for any symmetric distribution. The interval has at least this confidence; with too few values, it is the range of
/// all values. Returns `None` without values.
pub fn wilcoxon_interval(values: &[f64], confidence: f64) -> Option<(f64, Interval)> {
    let n = values.len();
    let each = |a: usize| (a..n).map(move |b| (values[a] + values[b]) / 2.0);
    let means = sorted(&(0..n).flat_map(each).collect::<Vec<_>>());
    let (first, last) = (*means.first()?, *means.last()?);
    // For each sum, the number of the 2^n sign assignments in which the positive ranks have that sum.
    let mut ways = vec![0.0f64; means.len() + 1];
    ways[0] = 1.0;
    for rank in 1..=n {
        for sum in (rank..ways.len()).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let tail = (1.0 - confidence) / 2.0 * 2f64.powi(n as i32);
    // Finds the largest number of means of two values that may be cut off at each end.
    let mut below = 0.0;
    let cut = ways
        .iter()
        .take_while(|ways| {
            below += **ways;
            below <= tail
        })
        .count();
    let interval = match cut {
        0 => Interval { low: first, high: last },
        cut => Interval { low: means[cut - 1], high: means[means.len() - cut] },
    };
    Some((median(&means), interval))
}

/// Statistics of one contender's times, in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Times {
    /// Median of all times, in seconds.
    pub median: f64,
    /// Confidence interval of the median, at 95 %.
    pub interval: Interval,
    /// Shortest time, in seconds.
    pub min: f64,
    /// 95th percentile of the times, in seconds.
    pub p95: f64,
    /// Number of measured times.
    pub samples: usize,
}

/// Returns the statistics of the times in all blocks; `None` if there are no times. The times of a block are correlated, so the interval
/// is computed from the medians of the blocks.
pub fn times(blocks: &[Vec<f64>]) -> Option<Times> {
    let all: Vec<f64> = blocks.iter().flatten().copied().collect();
    let medians: Vec<f64> = blocks.iter().filter(|block| !block.is_empty()).map(|block| median(block)).collect();
    (!all.is_empty()).then(|| Times {
        median: median(&all),
        interval: median_interval(&medians, 0.95),
        min: quantile(&all, 0.0),
        p95: quantile(&all, 0.95),
        samples: all.len(),
    })
}

/// Comparison of two contenders: the time of the first divided by the time of the second in the same block.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Comparison {
    /// Median over launches of the median over blocks of the time ratio.
    pub ratio: f64,
    /// Confidence interval of the ratio, by bootstrap.
    pub interval: Interval,
    /// Number of launches that measured both contenders.
    pub launches: usize,
    /// Number of blocks with both contenders, in all launches.
    pub blocks: usize,
    /// Whether there are too few blocks for an interval of the requested confidence.
    pub too_few: bool,
}

/// Result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ComparisonResult {
    /// The first contender is faster: the interval of the time ratio lies below 1.
    Faster,
    /// The first contender is slower: the interval of the time ratio lies above 1.
    Slower,
    /// Neither contender is significantly faster: the interval of the time ratio contains 1.
    NoDifference,
    /// There are too few blocks for a result.
    TooFew,
}

impl Comparison {
    /// Returns the result of the comparison.
    pub fn result(&self) -> ComparisonResult {
        if self.too_few {
            return ComparisonResult::TooFew;
        }
        match (self.interval.high < 1.0, self.interval.low > 1.0) {
            (true, _) => ComparisonResult::Faster,
            (_, true) => ComparisonResult::Slower,
            _ => ComparisonResult::NoDifference,
        }
    }

    /// Returns the comparison with the contenders exchanged, whose ratio is the speedup: the time of the second contender divided by that
    /// of the first.
    pub fn swapped(&self) -> Comparison {
        let interval = Interval { low: 1.0 / self.interval.high, high: 1.0 / self.interval.low };
        Comparison { ratio: 1.0 / self.ratio, interval, ..*self }
    }
}

/// Returns the median over launches of the median over blocks of the time ratio; `None` if there are no blocks.
pub(crate) fn ratio(launches: &[Vec<f64>]) -> Option<f64> {
    let of_launches: Vec<f64> =
        launches.iter().filter(|blocks| !blocks.is_empty()).map(|blocks| median(blocks)).collect();
    (!of_launches.is_empty()).then(|| median(&of_launches))
}

/// Number of blocks from which on the bootstrap interval alone has the requested confidence.
const MIN_BOOTSTRAP_BLOCKS: usize = 30;

/// Number of bootstrap samples.
const BOOTSTRAP_SAMPLES: usize = 4000;

/// Compares two contenders by the ratios of their times in the blocks of each launch. The bootstrap draws launches with replacement, and
/// blocks within each launch, because times vary more between launches than within one. Returns `None` if there are no blocks.
///
/// The contenders of a block run shortly after each other, so disturbances that affect both cancel out.
pub fn compare(launches: &[Vec<f64>], confidence: f64) -> Option<Comparison> {
    let ratio = ratio(launches)?;
    let launches: Vec<&Vec<f64>> = launches.iter().filter(|blocks| !blocks.is_empty()).collect();
    // The seed is fixed, so the same data always give the same interval.
    let mut random = SplitMix64::new(0x6272_7563_6b6e_6572);
    let mut drawn = Vec::new();
    let mut launch = || {
        let from = launches[random.below(launches.len())];
        drawn.clear();
        drawn.extend((0..from.len()).map(|_| from[random.below(from.len())]));
        median_of(&mut drawn)
    };
    let mut some = vec![0.0; launches.len()];
    let mut all = || {
        some.fill_with(&mut launch);
        median_of(&mut some)
    };
    let medians: Vec<f64> = (0..BOOTSTRAP_SAMPLES).map(|_| all()).collect();
    let tail = (1.0 - confidence) / 2.0;
    let mut interval = Interval { low: quantile(&medians, tail), high: quantile(&medians, 1.0 - tail) };
    let all: Vec<f64> = launches.iter().flat_map(|blocks| blocks.iter().copied()).collect();
    if all.len() < MIN_BOOTSTRAP_BLOCKS {
        // With few blocks, the bootstrap interval alone is too narrow.
        let plain = median_interval(&all, confidence);
        interval = Interval { low: interval.low.min(plain.low), high: interval.high.max(plain.high) };
    }
    // With so few blocks, all ratios may lie on one side of the true median by chance more often than the confidence allows.
    let too_few = 0.5f64.powi(all.len() as i32) > tail;
    Some(Comparison { ratio, interval, launches: launches.len(), blocks: all.len(), too_few })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a normally distributed number, by the sum of twelve uniform ones.
    fn normal(random: &mut SplitMix64) -> f64 {
        (0..12).map(|_| random.next_u64() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
    }

    /// By tables of the signed-rank test, the interval of 10 pairs at 95 % leaves out eight means at each end; the intervals of 8 pairs at
    /// 99 % and of 5 pairs at 95 % leave out none.
    #[test]
    fn pairs_are_cut_as_the_tables_say() {
        let values: Vec<f64> = (1..=10).map(|n| f64::from(n * n)).collect();
        let mut means: Vec<f64> =
            (0..10).flat_map(|a| (a..10).map(move |b| (a, b))).map(|(a, b)| (values[a] + values[b]) / 2.0).collect();
        means.sort_by(f64::total_cmp);
        let (_, interval) = wilcoxon_interval(&values, 0.95).unwrap();
        assert_eq!((interval.low, interval.high), (means[8], means[means.len() - 9]));
        let (_, interval) = wilcoxon_interval(&values[..8], 0.99).unwrap();
        assert_eq!((interval.low, interval.high), (1.0, 64.0));
        let (middle, interval) = wilcoxon_interval(&values[..5], 0.95).unwrap();
        assert_eq!((interval.low, interval.high), (1.0, 25.0));
        assert!(interval.low < middle && middle < interval.high);
        assert_eq!(wilcoxon_interval(&[], 0.95), None);
    }

    #[test]
    fn quantiles_fall_between_neighbours() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(quantile(&[0.0, 10.0], 0.95), 9.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_interval_of_a_median_is_that_of_the_tables() {
        // Conover, Practical Nonparametric Statistics: for n = 20 at 95 %, the interval is from the 6th to the 15th value.
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(median_interval(&values, 0.95), Interval { low: 6.0, high: 15.0 });
        // For n = 10, the interval is from the 2nd to the 9th value. For n = 6 and below, it is the whole range.
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(median_interval(&values, 0.95), Interval { low: 2.0, high: 9.0 });
        assert_eq!(median_interval(&[1.0, 2.0, 3.0], 0.95), Interval { low: 1.0, high: 3.0 });
    }

    #[test]
    fn the_interval_of_a_median_holds_it_as_often_as_it_says() {
        let mut random = SplitMix64::new(1);
        let held = (0..4000).filter(|_| {
            let values: Vec<f64> = (0..25).map(|_| normal(&mut random).exp()).collect();
            let interval = median_interval(&values, 0.95);
            interval.low <= 1.0 && 1.0 <= interval.high
        });
        let held = held.count();
        assert!((3800..3920).contains(&held), "{held} of 4000");
    }

    /// Returns how many of 200 comparisons find a difference, if the true ratio is `difference` and launches vary by `between`.
    fn found(difference: f64, launches: usize, between: f64) -> usize {
        let mut random = SplitMix64::new(2);
        let mut one = || {
            let launch = |random: &mut SplitMix64| {
                let shift = between * normal(random);
                (0..30).map(|_| (shift + 0.04 * normal(random)).exp() * difference).collect::<Vec<_>>()
            };
            let launches: Vec<_> = (0..launches).map(|_| launch(&mut random)).collect();
            compare(&launches, 0.99).unwrap().result() != ComparisonResult::NoDifference
        };
        (0..200).filter(|_| one()).count()
    }

    #[test]
    fn equal_contenders_differ_rarely_and_unequal_ones_nearly_always() {
        assert!(found(1.0, 1, 0.0) <= 8, "{}", found(1.0, 1, 0.0));
        assert!(found(1.0, 5, 0.02) <= 8, "{}", found(1.0, 5, 0.02));
        assert!(found(1.05, 1, 0.0) >= 190, "{}", found(1.05, 1, 0.0));
    }

    #[test]
    fn a_few_blocks_show_nothing() {
        let comparison = |blocks: usize| compare(&[vec![0.5; blocks]], 0.99).unwrap();
        assert_eq!(comparison(2).result(), ComparisonResult::TooFew);
        assert_eq!(comparison(7).result(), ComparisonResult::TooFew);
        assert_eq!(comparison(8).result(), ComparisonResult::Faster);
    }

    /// Comparisons of equal contenders with few blocks rarely find a difference.
    #[test]
    fn with_few_blocks_equal_contenders_differ_rarely_too() {
        let mut random = SplitMix64::new(3);
        for blocks in [8, 10, 15, 20] {
            let mut one = || {
                let ratios: Vec<f64> = (0..blocks).map(|_| (0.04 * normal(&mut random)).exp()).collect();
                compare(&[ratios], 0.99).unwrap().result() != ComparisonResult::NoDifference
            };
            let found = (0..300).filter(|_| one()).count();
            assert!(found <= 9, "{found} of 300 with {blocks} blocks");
        }
    }

    proptest! {
        #[test]
        fn a_comparison_the_other_way_round_says_the_same(ratios in prop::collection::vec(0.1f64..10.0, 8..40)) {
            let one = compare(&[ratios], 0.99).unwrap();
            let other = one.swapped();
            prop_assert!((one.ratio * other.ratio - 1.0).abs() < 1e-12);
            let opposite = match one.result() {
                ComparisonResult::Faster => ComparisonResult::Slower,
                ComparisonResult::Slower => ComparisonResult::Faster,
                other => other,
            };
            prop_assert_eq!(other.result(), opposite);
        }
    }
}
