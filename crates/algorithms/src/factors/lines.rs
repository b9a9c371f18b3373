//! Which lines there are, where each comes from, and which of them live.
//!
//! Everything here is relative to a rank: the line of *offset* 0 is the fraction that the rank itself would
//! keep, and "forward" is towards higher ranks of a group. Ranks differ only in where they start, so what is
//! true of one is true of all.

use std::ops::Range;

use rustc_hash::FxHashMap as HashMap;

use crate::expression::Factor;

/// A digit of the rank: the groups of one factor.
#[derive(Clone, Copy, Debug)]
struct Digit {
    factor: u32,
    /// The distance in ranks between members of a group.
    stride: u32,
    /// The distance in fractions between neighbours in this digit.
    weight: u64,
}

/// A move within the groups of one digit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shift {
    digit: usize,
    by: u32,
}

/// A group's part in the form: its digit, and its steps' ports.
#[derive(Clone, Debug)]
struct Phase {
    digit: usize,
    scatters: Vec<u32>,
    gathers: Vec<u32>,
}

/// Factors and ports that fit a number of ranks.
#[derive(Clone, Debug)]
pub(super) struct Form {
    digits: Vec<Digit>,
    phases: Vec<Phase>,
}

impl Form {
    /// Checks the factors: those that reduce come first and multiply to the ranks, those that only gather
    /// mirror those that only scatter, and each has the steps that it needs and no more.
    pub(super) fn new(factors: &[Factor], ranks: u32) -> Result<Form, String> {
        let (mut digits, mut phases, mut scattered) = (Vec::<Digit>::new(), Vec::new(), Vec::new());
        let mut product = 1u32;
        let mut reducing = false;
        for group in factors {
            let negative = group.ports.iter().take_while(|&&q| q < 0).count();
            let (scatters, gathers) = group.ports.split_at(negative);
            if gathers.iter().any(|&q| q < 0) {
                return Err(format!("`{group}`: reduce_scatter steps come before allgather steps"));
            }
            let ports = |steps: &[i32]| steps.iter().map(|q| q.unsigned_abs()).collect::<Vec<_>>();
            let (scatters, gathers) = (ports(scatters), ports(gathers));
            let digit = if product == ranks && !scattered.is_empty() {
                // The last phase undoes the first.
                let digit: usize = scattered.pop().expect("not empty");
                if digits[digit].factor != group.factor || !scatters.is_empty() {
                    let factor = digits[digit].factor;
                    return Err(format!("`{group}`: here the groups of {factor} must be gathered again"));
                }
                digit
            } else {
                let next =
                    product.checked_mul(group.factor).filter(|&n| n <= ranks && ranks.is_multiple_of(n));
                let Some(next) = next else {
                    return Err(format!("`{group}`: the factors do not multiply to {ranks} ranks"));
                };
                if gathers.is_empty() {
                    if reducing {
                        return Err(format!("`{group}`: groups that only scatter come first"));
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
            return Err(format!("the factors multiply to {product}, but there are {ranks} ranks"));
        }
        if let Some(&digit) = scattered.last() {
            return Err(format!("the groups of {} are scattered and never gathered", digits[digit].factor));
        }
        let mut weight = u64::from(ranks);
        for digit in &mut digits {
            weight /= u64::from(digit.factor);
            digit.weight = weight;
        }
        Ok(Form { digits, phases })
    }

    /// Whether there are several groups, as in the paper's Fig. 9.
    pub(super) fn grouped(&self) -> bool {
        self.phases.len() > 1
    }

    /// Whether it starts with a reduce_scatter step.
    pub(super) fn scatters(&self) -> bool {
        self.phases.first().is_some_and(|phase| !phase.scatters.is_empty())
    }

    /// The group, counted from 1, that a step belongs to.
    pub(super) fn group_of(&self, step: usize) -> usize {
        let steps = |phase: &Phase| phase.scatters.len() + phase.gathers.len();
        let ends = self.phases.iter().scan(0, |end, phase| {
            *end += steps(phase);
            Some(*end)
        });
        ends.take_while(|&end| end <= step).count() + 1
    }

    /// The number of ranks, and of fractions.
    pub(super) fn ranks(&self) -> u32 {
        self.digits.iter().map(|d| d.factor).product()
    }

    /// The fraction at an offset of a rank.
    pub(super) fn fraction(&self, rank: u32, offset: u64) -> u64 {
        let in_digit = |d: &Digit| {
            let own = u64::from(rank / d.stride % d.factor);
            (own + self.part(*d, offset)) % u64::from(d.factor) * d.weight
        };
        self.digits.iter().map(in_digit).sum()
    }

    /// An offset's part in one digit.
    fn part(&self, digit: Digit, offset: u64) -> u64 {
        offset / digit.weight % u64::from(digit.factor)
    }

    /// The rank that a shift leads to.
    pub(super) fn shift(&self, rank: u32, shift: Shift) -> u32 {
        let digit = self.digits[shift.digit];
        let own = rank / digit.stride % digit.factor;
        rank - own * digit.stride + (own + shift.by) % digit.factor * digit.stride
    }
}

/// Whether a group's steps do the whole of their work, and no more.
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
        return Err(format!("`{group}`: {window} fractions are left, so a reduce_scatter step is missing"));
    }
    let mut covered = 1u32;
    for &q in gathers {
        if covered >= f {
            return Err(format!("`{group}`: the last allgather steps have nothing to gather"));
        }
        covered = covered.saturating_mul(q.saturating_add(1));
    }
    if !gathers.is_empty() && covered < f {
        return Err(format!("`{group}`: covers {covered} of {f}, so an allgather step or port is missing"));
    }
    Ok(())
}

/// Where a gathered line comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// The peer from which it comes.
    pub(super) peer: Shift,
    /// The peer's line.
    pub(super) peer_line: usize,
    /// The own line that is combined with it: the last one of the same fraction.
    pub(super) parent: Option<usize>,
}

/// A value of one fraction.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) offset: u64,
    /// Whether any result needs it.
    pub(super) live: bool,
    /// Whether it is the result for its fraction.
    pub(super) result: bool,
    /// Which of the live lines of its fraction it is; 0 is the input, or what was made of it.
    pub(super) copy: u32,
    /// Sent away by the first step, so never changed here.
    pub(super) given_first: bool,
    source: Option<Source>,
}

/// One port of a reduce_scatter step: lines given away, and the lines to which the same are added here.
#[derive(Clone, Debug)]
pub(super) struct Moves {
    pub(super) forward: Shift,
    pub(super) backward: Shift,
    /// (given, kept).
    pub(super) pairs: Vec<(usize, usize)>,
}

/// One port of an allgather step, and the lines that it brings, dead ones too.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) forward: Shift,
    pub(super) backward: Shift,
    pub(super) lines: Range<usize>,
}

/// One step of all ranks.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Scatter { ports: Vec<Moves>, kept: Vec<usize> },
    Gather { ports: Vec<Port> },
}

/// All lines of a form.
pub(super) struct Lines {
    pub(super) all: Vec<Line>,
    /// The first so many are the input's.
    pub(super) initial: usize,
    pub(super) steps: Vec<Step>,
    /// How many private lines of slots they need.
    pub(super) copies: u32,
}

impl Lines {
    pub(super) fn new(form: &Form) -> Lines {
        let p = u64::from(form.ranks());
        let line =
            |offset| Line { offset, live: true, result: false, copy: 0, given_first: false, source: None };
        let mut lines =
            Lines { all: (0..p).map(line).collect(), initial: p as usize, steps: Vec::new(), copies: 1 };
        let mut current: Vec<usize> = (0..lines.initial).collect();
        for phase in &form.phases {
            let mut window = form.digits[phase.digit].factor;
            if phase.gathers.is_empty() || !phase.scatters.is_empty() {
                for &q in &phase.scatters {
                    let next = window.div_ceil(q + 1);
                    current = lines.scatter(form, phase.digit, &current, window, next);
                    window = next;
                }
            } else if form.phases.iter().any(|other| other.digit == phase.digit && other.gathers.is_empty()) {
                window = 1;
            }
            if !phase.gathers.is_empty() {
                current = lines.gather(form, phase, &current, window);
            }
        }
        for &line in &current {
            lines.all[line].result = true;
        }
        lines.mark_live();
        lines.number_copies();
        lines
    }

    /// Where a gathered line comes from.
    ///
    /// # Panics
    /// For a line of the input.
    pub(super) fn source(&self, line: usize) -> &Source {
        self.all[line].source.as_ref().expect("gathered lines have a source")
    }

    /// One reduce_scatter step: of a window of fractions only the first `next` stay.
    fn scatter(
        &mut self,
        form: &Form,
        digit: usize,
        current: &[usize],
        window: u32,
        next: u32,
    ) -> Vec<usize> {
        let d = form.digits[digit];
        let part = |line: usize| form.part(d, self.all[line].offset) as u32;
        let at: HashMap<u64, usize> = current.iter().map(|&l| (self.all[l].offset, l)).collect();
        let kept: Vec<usize> = current.iter().copied().filter(|&l| part(l) < next).collect();
        let mut ports = Vec::new();
        for by in (next..window).step_by(next as usize) {
            let given = current.iter().filter(|&&l| (by..by + next).contains(&part(l)));
            let pairs = given.map(|&l| (l, at[&(self.all[l].offset - u64::from(by) * d.weight)])).collect();
            let shift = |by| Shift { digit, by };
            ports.push(Moves { forward: shift(by), backward: shift(d.factor - by), pairs });
        }
        if self.steps.is_empty() {
            for &(given, _) in ports.iter().flat_map(|moves| &moves.pairs) {
                self.all[given].given_first = true;
            }
        }
        self.steps.push(Step::Scatter { ports, kept: kept.clone() });
        kept
    }

    /// The allgather steps of a group: a fraction is complete once `window` values of it are combined.
    fn gather(&mut self, form: &Form, phase: &Phase, base: &[usize], window: u32) -> Vec<usize> {
        let d = form.digits[phase.digit];
        let f = d.factor;
        // The group's lines in order: line, how far on its values reach, how many are combined.
        let mut group: Vec<(usize, u32, u32)> = base.iter().map(|&l| (l, 0, 1)).collect();
        let mut last: HashMap<u64, (usize, u32)> =
            base.iter().map(|&l| (self.all[l].offset, (l, 1))).collect();
        let mut covered = 1;
        for &q in &phase.gathers {
            let before = group.len();
            let mut ports = Vec::new();
            for by in (1..=q).map(|j| j.saturating_mul(covered)).take_while(|&by| by < f) {
                let first = self.all.len();
                for at in (0..before).filter(|&at| group[at].1 < f - by).collect::<Vec<_>>() {
                    let (line, reach, count) = group[at];
                    let offset = self.all[line].offset;
                    let part = form.part(d, offset);
                    let moved = (part + u64::from(by)) % u64::from(f);
                    let offset = offset - part * d.weight + moved * d.weight;
                    let parent = last.get(&offset).copied();
                    let peer = Shift { digit: phase.digit, by };
                    let source = Source { peer, peer_line: line, parent: parent.map(|(l, _)| l) };
                    group.push((self.all.len(), reach + by, count + parent.map_or(0, |(_, n)| n)));
                    self.all.push(Line {
                        offset,
                        live: false,
                        result: false,
                        copy: 0,
                        given_first: false,
                        source: Some(source),
                    });
                }
                for &(line, _, count) in &group[group.len() - (self.all.len() - first)..] {
                    last.insert(self.all[line].offset, (line, count));
                }
                let shift = |by| Shift { digit: phase.digit, by };
                ports.push(Port {
                    forward: shift(by),
                    backward: shift(f - by),
                    lines: first..self.all.len(),
                });
            }
            self.steps.push(Step::Gather { ports });
            covered = covered.saturating_mul(q + 1).min(f);
        }
        let mut seen = rustc_hash::FxHashSet::default();
        let complete = group.into_iter().filter(|(_, _, count)| *count == window);
        complete.map(|(l, ..)| l).filter(|&l| seen.insert(self.all[l].offset)).collect()
    }

    /// The paper's Algorithm 1: from the results back to whatever contributes to them.
    fn mark_live(&mut self) {
        for step in &self.steps {
            if let Step::Scatter { ports, kept } = step {
                let given = ports.iter().flat_map(|moves| moves.pairs.iter().map(|&(given, _)| given));
                for line in given.chain(kept.iter().copied()) {
                    self.all[line].live = true;
                }
            }
        }
        for line in (self.initial..self.all.len()).rev() {
            let Line { live, result, source, .. } = self.all[line];
            if live || result {
                self.all[line].live = true;
                let source = source.expect("gathered lines have a source");
                self.all[source.peer_line].live = true;
                if let Some(parent) = source.parent {
                    self.all[parent].live = true;
                }
            }
        }
    }

    fn number_copies(&mut self) {
        let mut of_offset: HashMap<u64, u32> = HashMap::default();
        for line in self.all[self.initial..].iter_mut().filter(|l| l.live && !l.result) {
            let copy = of_offset.entry(line.offset).or_insert(0);
            *copy += 1;
            line.copy = *copy;
            self.copies = self.copies.max(*copy + 1);
        }
    }
}
