//! Pseudo-random numbers that are reproducible from a seed.

/// Generator SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Makes a generator from a seed.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number in `0..below`; `below` is at least 1.
    pub fn below(&mut self, below: usize) -> usize {
        ((u128::from(self.next_u64()) * below as u128) >> 64) as usize
    }

    /// Returns the numbers `0..count` in random order.
    pub fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_about_as_frequent_as_any_other() {
        let mut random = SplitMix64::new(7);
        let mut seen = std::collections::BTreeMap::new();
        (0..60_000).for_each(|_| *seen.entry(random.order(3)).or_insert(0) += 1);
        assert_eq!(seen.len(), 6);
        assert!(seen.values().all(|n| (9_500..10_500).contains(n)), "{seen:?}");
    }
}
