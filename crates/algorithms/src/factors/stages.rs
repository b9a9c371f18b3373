//! Listing of a factorization in the notation of the paper's Figures 8 and 9: STAGE, FRAC, TO and FROM.
//!
//! A stage lists the lines that a rank has after a step. TO names the ranks to which the next step sends a line, FROM the sources of the
//! line in the last step, as `rank|line`. Live lines (those that a result depends on) are numbered without gaps. Dead lines are commented
//! out with `#`, and, as in the paper, listed only for factorizations with one group.

use std::fmt::Write;

use bruckner_schedule::Rank;

use super::Factored;
use super::form::Form;
use super::lines::{Lines, Step};

/// A line in the listing of one stage, with its FROM entries.
struct Entry {
    line: usize,
    from: Vec<String>,
}

impl Factored {
    /// Returns the listing for one rank. All lines are computed, including lines that no result needs, so this is for small numbers of
    /// ranks.
    pub fn stages(&self, rank: Rank) -> String {
        Listing { form: &self.form, lines: Lines::new(&self.form) }.stages(rank)
    }
}

struct Listing<'a> {
    form: &'a Form,
    lines: Lines,
}

impl Listing<'_> {
    fn stages(&self, rank: Rank) -> String {
        let me = rank.0;
        let mut text = String::new();
        let mut number = vec![None; self.lines.all.len()];
        let mut entries: Vec<Entry> =
            (0..self.lines.initial).map(|line| Entry { line, from: vec![format!("-1|{line}")] }).collect();
        let _ = writeln!(text, "# initial data");
        for stage in 0..=self.lines.steps.len() {
            let live = entries.iter().filter(|e| self.lines.all[e.line].live);
            for (count, entry) in live.enumerate() {
                number[entry.line] = Some(count);
            }
            self.list(&mut text, me, stage, &entries);
            let Some(step) = self.lines.steps.get(stage) else { break };
            let _ = writeln!(text, "# {}", self.heading(stage));
            entries = match step {
                Step::Scatter { ports, kept } => kept
                    .iter()
                    .map(|&line| {
                        let peers = ports.iter().filter_map(|moves| {
                            let (given, _) = moves.pairs.iter().find(|(_, k)| *k == line)?;
                            let peer = self.form.shift(me, moves.backward);
                            Some(format!("{peer}|{}", number[*given].unwrap_or(*given)))
                        });
                        let own = format!("{me}|{}", number[line].unwrap_or(line));
                        Entry { line, from: std::iter::once(own).chain(peers).collect() }
                    })
                    .collect(),
                Step::Gather { ports } => self.gathered(me, &entries, ports, &number),
            };
        }
        text
    }

    fn gathered(
        &self,
        me: u32,
        entries: &[Entry],
        ports: &[super::lines::Port],
        number: &[Option<usize>],
    ) -> Vec<Entry> {
        let mut number = number.to_vec();
        let mut next: Vec<Entry> = entries
            .iter()
            .enumerate()
            .map(|(raw, Entry { line, .. })| Entry {
                line: *line,
                from: vec![format!("{me}|{}", number[*line].unwrap_or(raw))],
            })
            .collect();
        let mut live = entries.iter().filter(|e| self.lines.all[e.line].live).count();
        for line in ports.iter().flat_map(|port| port.lines.clone()) {
            let source = self.lines.source(line);
            let is_live = self.lines.all[line].live;
            // A dead line was never sent, so it has no number at the peer: print the next free number.
            let theirs = if is_live { number[source.peer_line].unwrap_or(live) } else { live };
            let mut from = vec![format!("{}|{theirs}", self.form.shift(me, source.peer))];
            from.extend(source.parent.map(|parent| format!("{me}|{}", number[parent].unwrap_or(live))));
            next.push(Entry { line, from });
            if is_live {
                number[line] = Some(live);
                live += 1;
            }
        }
        next
    }

    fn list(&self, text: &mut String, me: u32, stage: usize, entries: &[Entry]) {
        let next = self.lines.steps.get(stage);
        for Entry { line, from } in entries {
            let found = &self.lines.all[*line];
            if !found.live && self.form.grouped() {
                continue;
            }
            let mut to = Vec::new();
            let given = match next {
                Some(Step::Scatter { kept, .. }) => !kept.contains(line),
                _ => false,
            };
            if !given {
                to.push(me.to_string());
            }
            match next {
                Some(Step::Scatter { ports, .. }) => {
                    for moves in ports.iter().filter(|m| m.pairs.iter().any(|(g, _)| g == line)) {
                        to.push(self.form.shift(me, moves.forward).to_string());
                    }
                }
                Some(Step::Gather { ports }) => {
                    for port in ports {
                        let mut brought = port.lines.clone().filter(|&l| self.lines.all[l].live);
                        if brought.any(|l| self.lines.source(l).peer_line == *line) {
                            to.push(self.form.shift(me, port.backward).to_string());
                        }
                    }
                }
                None if found.result => to.push("-1".to_owned()),
                None => {}
            }
            let _ = writeln!(
                text,
                "{}STAGE {stage} FRAC {} TO {} FROM {}{}",
                if found.live { "" } else { "#" },
                self.form.fraction(me, found.offset),
                to.join(" "),
                from.join(" "),
                if next.is_none() && found.result { " # result" } else { "" },
            );
        }
    }

    /// Returns the comment above a stage, in the paper's wording.
    fn heading(&self, step: usize) -> String {
        let is_scatter = |s: &Step| matches!(s, Step::Scatter { .. });
        let steps = &self.lines.steps;
        let kind = is_scatter(&steps[step]);
        let total = steps.iter().filter(|s| is_scatter(s) == kind).count();
        let nth = steps[..=step].iter().filter(|s| is_scatter(s) == kind).count();
        let name = if kind { "reduce_scatter" } else { "allgather" };
        let mut heading = if total == 1 { format!("{name} step") } else { format!("{} {name} step", ordinal(nth)) };
        if self.form.grouped() {
            let _ = write!(heading, ", group {}", self.form.group_of(step));
        }
        heading
    }
}

fn ordinal(n: usize) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}
