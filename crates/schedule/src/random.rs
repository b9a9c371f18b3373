//! A pseudo-random number generator (splitmix64) with the same sequence on every machine, for shuffled placements, the interpreter and
//! tests. Neither planning nor verification draws numbers from it.

/// State of the generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next 64 pseudo-random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Returns a pseudo-random number below `n`, which must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    /// Returns a randomly chosen element of `list`, or `None` if `list` is empty.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        if list.is_empty() { None } else { list.get(self.below(list.len() as u64) as usize) }
    }
}

/// Mixes 64 bits with the output function of splitmix64, which is a bijection.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
