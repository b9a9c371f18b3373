//! Factorizations checked against a number of ranks, and the arithmetic of digits, offsets and shifts.
//!
//! Rank numbers and fraction numbers are written in digits, one digit for each factor. The fraction at *offset* 0 from a rank is the one
//! whose digits are the rank's own, and a shift goes towards higher ranks of a group. In these relative numbers all ranks do the same.

use crate::expression::Factor;

/// A digit of the rank number: the member number within the groups of one factor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digit {
    pub(super) factor: u32,
    /// Difference of the rank numbers of neighbours in a group.
    pub(super) stride: u32,
    /// Difference of the fraction numbers of neighbours in this digit.
    pub(super) weight: u64,
}

/// A shift by `by` members within the groups of one digit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shift {
    pub(super) digit: usize,
    pub(super) by: u32,
}

/// The steps of one group of a factorization: its digit, and the number of ports of each reduce_scatter step and each allgather step.
#[derive(Clone, Debug)]
pub(super) struct Phase {
    pub(super) digit: usize,
    pub(super) scatters: Vec<u32>,
    pub(super) gathers: Vec<u32>,
}

/// A factorization that was checked against a number of ranks.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) digits: Vec<Digit>,
    pub(super) phases: Vec<Phase>,
}

impl Form {
    /// Creates the form. Checks that the product of the factors is the number of ranks, that groups with reduce_scatter steps only come
    /// first and are gathered again in reverse order at the end, and that each group has exactly the steps that it needs.
    pub(super) fn new(factors: &[Factor], ranks: u32) -> Result<Form, String> {
        let (mut digits, mut phases, mut scattered) = (Vec::<Digit>::new(), Vec::new(), Vec::new());
        let mut product = 1u32;
        let mut reducing = false;
        for group in factors {
            let negative = group.ports.iter().take_while(|&&q| q < 0).count();
            let (scatters, gathers) = group.ports.split_at(negative);
            if gathers.iter().any(|&q| q < 0) {
                return Err(format!(
                    "`{group}`: reduce_scatter steps (negative ports) must come before allgather steps"
                ));
            }
            let ports = |steps: &[i32]| steps.iter().map(|q| q.unsigned_abs()).collect::<Vec<_>>();
            let (scatters, gathers) = (ports(scatters), ports(gathers));
            let digit = if product == ranks && !scattered.is_empty() {
                // Groups that were only scattered are gathered again, the last one first.
                let digit: usize = scattered.pop().expect("not empty");
                if digits[digit].factor != group.factor || !scatters.is_empty() {
                    let factor = digits[digit].factor;
                    return Err(format!(
                        "`{group}`: expected only allgather steps of factor {factor}, which was scattered and must be gathered here"
                    ));
                }
                digit
            } else {
                let next = product.checked_mul(group.factor).filter(|&n| n <= ranks && ranks.is_multiple_of(n));
                let Some(next) = next else {
                    return Err(format!("`{group}`: the product of the factors is not the number of ranks ({ranks})"));
                };
                if gathers.is_empty() {
                    if reducing {
                        return Err(format!("`{group}`: groups with only reduce_scatter steps must come first"));
                    }
                    scattered.push(digits.len());
                } else {
                    reducing = true;
                }
                digits.push(Digit { factor: group.factor, stride: product, weight: 0 });
                product = next;
                digits.len() - 1
            };
            check_steps(group, &scatters, &gathers)?;
            phases.push(Phase { digit, scatters, gathers });
        }
        if product != ranks {
            return Err(format!("the product of the factors is {product}, but there are {ranks} ranks"));
        }
        if let Some(&digit) = scattered.last() {
            return Err(format!("factor {} is scattered but never gathered", digits[digit].factor));
        }
        let mut weight = u64::from(ranks);
        for digit in &mut digits {
            weight /= u64::from(digit.factor);
            digit.weight = weight;
        }
        Ok(Form { digits, phases })
    }

    /// Returns whether there are several groups, as in the paper's Fig. 9.
    pub(super) fn grouped(&self) -> bool {
        self.phases.len() > 1
    }

    /// Returns the number, from 1, of the group that a step belongs to.
    pub(super) fn group_of(&self, step: usize) -> usize {
        let steps = |phase: &Phase| phase.scatters.len() + phase.gathers.len();
        let ends = self.phases.iter().scan(0, |end, phase| {
            *end += steps(phase);
            Some(*end)
        });
        ends.take_while(|&end| end <= step).count() + 1
    }

    /// Returns the number of ranks, which is also the number of fractions.
    pub(super) fn ranks(&self) -> u32 {
        self.digits.iter().map(|d| d.factor).product()
    }

    /// Returns the number of the fraction at an offset from the own fraction of `rank`.
    pub(super) fn fraction(&self, rank: u32, offset: u64) -> u64 {
        let in_digit = |d: &Digit| {
            let own = u64::from(rank / d.stride % d.factor);
            (own + self.part(*d, offset)) % u64::from(d.factor) * d.weight
        };
        self.digits.iter().map(in_digit).sum()
    }

    /// Returns the number of digits.
    pub(super) fn digits(&self) -> usize {
        self.digits.len()
    }

    /// Returns the number of ranks in each group of a digit.
    pub(super) fn factor(&self, digit: usize) -> u64 {
        self.digits[digit].factor.into()
    }

    /// Returns whether a digit has a group with reduce_scatter steps only, whose fractions are gathered again at the end.
    pub(super) fn is_scattered(&self, digit: usize) -> bool {
        self.phases.iter().any(|phase| phase.digit == digit && phase.gathers.is_empty())
    }

    /// Returns the largest number of ports of any reduce_scatter step.
    pub(super) fn most_ports(&self) -> u32 {
        self.phases.iter().flat_map(|phase| &phase.scatters).copied().max().unwrap_or(0)
    }

    /// Returns the value of one digit of an offset.
    pub(super) fn part(&self, digit: Digit, offset: u64) -> u64 {
        offset / digit.weight % u64::from(digit.factor)
    }

    /// Returns the rank that a shift reaches from `rank`.
    pub(super) fn shift(&self, rank: u32, shift: Shift) -> u32 {
        let digit = self.digits[shift.digit];
        let own = rank / digit.stride % digit.factor;
        rank - own * digit.stride + (own + shift.by) % digit.factor * digit.stride
    }
}

/// Checks that the steps of a factor scatter and gather all fractions of its group, and that no step is superfluous.
fn check_steps(group: &Factor, scatters: &[u32], gathers: &[u32]) -> Result<(), String> {
    let f = group.factor;
    let mut window = f;
    for &q in scatters {
        if window == 1 {
            return Err(format!("`{group}`: the last reduce_scatter steps have nothing to scatter"));
        }
        window = window.div_ceil(q.saturating_add(1));
    }
    if gathers.is_empty() && window > 1 {
        return Err(format!("`{group}`: each rank still has {window} fractions, so a reduce_scatter step is missing"));
    }
    let mut covered = 1u32;
    for &q in gathers {
        if covered >= f {
            return Err(format!("`{group}`: the last allgather steps have nothing to gather"));
        }
        covered = covered.saturating_mul(q.saturating_add(1));
    }
    if !gathers.is_empty() && covered < f {
        return Err(format!("`{group}`: the allgather steps cover {covered} of {f} ranks; a step or port is missing"));
    }
    Ok(())
}
