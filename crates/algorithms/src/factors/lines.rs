//! All lines (partial sums of fractions) that Jocksch et al. 2021 list for a factorization, dead or alive; used for its listing, not for
//! its schedule. There may be p² lines, so this is for few ranks; [`super::live`] computes the live lines in closed form.

use std::ops::Range;

use rustc_hash::FxHashMap as HashMap;

use super::form::{Form, Phase, Shift};

/// Source of a line that an allgather step adds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// Shift from the rank to the peer that sends the line.
    pub(super) peer: Shift,
    /// Number of the line at the peer that sends it.
    pub(super) peer_line: usize,
    /// This rank's line that is combined with the received line: the rank's last line of the same fraction, if it has one.
    pub(super) parent: Option<usize>,
}

/// A line: one fraction, summed over some ranks.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) offset: u64,
    /// Whether any result depends on the line.
    pub(super) live: bool,
    /// Whether this partial sum is the rank's final sum of its fraction.
    pub(super) result: bool,
    source: Option<Source>,
}

/// One port of a reduce_scatter step: the lines sent to one peer, and this rank's lines to which the lines of another peer are added.
#[derive(Clone, Debug)]
pub(super) struct Moves {
    pub(super) forward: Shift,
    pub(super) backward: Shift,
    /// Pairs of line numbers: a line sent, and this rank's line to which the corresponding received line is added.
    pub(super) pairs: Vec<(usize, usize)>,
}

/// One port of an allgather step, and all lines received through it, including lines that no result needs.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) backward: Shift,
    pub(super) lines: Range<usize>,
}

/// One step, the same for all ranks in numbers relative to the rank.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Scatter { ports: Vec<Moves>, kept: Vec<usize> },
    Gather { ports: Vec<Port> },
}

/// All lines and steps of a factorization.
pub(super) struct Lines {
    pub(super) all: Vec<Line>,
    /// Number of input lines; these come first in `all`.
    pub(super) initial: usize,
    pub(super) steps: Vec<Step>,
}

impl Lines {
    pub(super) fn new(form: &Form) -> Lines {
        let p = u64::from(form.ranks());
        let line = |offset| Line { offset, live: true, result: false, source: None };
        let mut lines = Lines { all: (0..p).map(line).collect(), initial: p as usize, steps: Vec::new() };
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
        lines
    }

    /// Returns the source of a line that an allgather step added.
    ///
    /// # Panics
    /// If the line is an input line.
    pub(super) fn source(&self, line: usize) -> &Source {
        self.all[line].source.as_ref().expect("gathered lines have a source")
    }

    /// Adds a reduce_scatter step, in which a rank keeps the first `next` of its `window` fractions of a group; returns the lines that it
    /// keeps.
    fn scatter(&mut self, form: &Form, digit: usize, current: &[usize], window: u32, next: u32) -> Vec<usize> {
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
        self.steps.push(Step::Scatter { ports, kept: kept.clone() });
        kept
    }

    /// Adds the allgather steps of a group, before which each rank holds `window` fractions of the group. Returns the complete lines,
    /// which combine the values of `window` ranks.
    fn gather(&mut self, form: &Form, phase: &Phase, base: &[usize], window: u32) -> Vec<usize> {
        let d = form.digits[phase.digit];
        let f = d.factor;
        // Lines of the group in order: line number, distance to the furthest rank included, number of values combined.
        let mut group: Vec<(usize, u32, u32)> = base.iter().map(|&l| (l, 0, 1)).collect();
        let mut last: HashMap<u64, (usize, u32)> = base.iter().map(|&l| (self.all[l].offset, (l, 1))).collect();
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
                    self.all.push(Line { offset, live: false, result: false, source: Some(source) });
                }
                for &(line, _, count) in &group[group.len() - (self.all.len() - first)..] {
                    last.insert(self.all[line].offset, (line, count));
                }
                let shift = |by| Shift { digit: phase.digit, by };
                ports.push(Port { backward: shift(f - by), lines: first..self.all.len() });
            }
            self.steps.push(Step::Gather { ports });
            covered = covered.saturating_mul(q + 1).min(f);
        }
        let mut seen = rustc_hash::FxHashSet::default();
        let complete = group.into_iter().filter(|(_, _, count)| *count == window);
        complete.map(|(l, ..)| l).filter(|&l| seen.insert(self.all[l].offset)).collect()
    }

    /// Marks the live lines (Jocksch et al. 2021, Algorithm 1): goes backwards from the results and marks every line that contributes.
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
}
