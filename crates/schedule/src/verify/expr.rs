//! Expressions, the values of the symbolic execution. Each distinct tree is stored once, so equal trees have equal numbers.

use rustc_hash::FxHashMap as HashMap;

use crate::Rank;

/// Number of an expression: equal expressions have equal numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Expr(u32);

/// Root node of an expression.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Node {
    /// Value that is unknown because of an error, which was already reported.
    Unknown,
    /// Value of a chunk without elements.
    Empty,
    /// Chunk of a rank's input.
    Input(Rank, u64),
    /// Reduction of two expressions: left ⊕ right.
    Combine(Expr, Expr),
}

impl Expr {
    pub(super) const UNKNOWN: Expr = Expr(0);
    pub(super) const EMPTY: Expr = Expr(1);
}

/// All expressions of a symbolic execution. Inputs are numbered by rank and chunk, followed by reductions in order of creation.
pub(super) struct Exprs {
    chunks: u64,
    inputs: u32,
    combined: Vec<(Expr, Expr)>,
    numbers: HashMap<(Expr, Expr), Expr>,
}

impl Exprs {
    /// Exclusive upper bound of the number of inputs.
    pub(super) const MOST: u64 = 1 << 31;

    /// Creates the inputs of `ranks` ranks with `chunks` chunks each.
    pub(super) fn new(ranks: u64, chunks: u64) -> Exprs {
        let inputs = (ranks * chunks) as u32 + 2;
        Exprs { chunks, inputs, combined: Vec::new(), numbers: HashMap::default() }
    }

    pub(super) fn input(&self, rank: Rank, chunk: u64) -> Expr {
        Expr((u64::from(rank.0) * self.chunks + chunk) as u32 + 2)
    }

    pub(super) fn combine(&mut self, left: Expr, right: Expr) -> Expr {
        if left == Expr::UNKNOWN || right == Expr::UNKNOWN {
            return Expr::UNKNOWN;
        }
        *self.numbers.entry((left, right)).or_insert_with(|| {
            self.combined.push((left, right));
            Expr(self.inputs + self.combined.len() as u32 - 1)
        })
    }

    pub(super) fn node(&self, expr: Expr) -> Node {
        match expr {
            Expr::UNKNOWN => Node::Unknown,
            Expr::EMPTY => Node::Empty,
            Expr(number) if number < self.inputs => {
                let at = u64::from(number - 2);
                Node::Input(Rank((at / self.chunks) as u32), at % self.chunks)
            }
            Expr(number) => {
                let (left, right) = self.combined[(number - self.inputs) as usize];
                Node::Combine(left, right)
            }
        }
    }

    /// If a value is a chunk of an alltoall, returns its source and destination rank, which identify its length.
    pub(super) fn length(&self, expr: Expr) -> Option<(u32, u32)> {
        match self.node(expr) {
            Node::Input(rank, chunk) => Some((rank.0, chunk as u32)),
            _ => None,
        }
    }

    /// Returns the inputs of an expression from left to right, at most `most` of them, because a tree with shared subtrees can have
    /// exponentially many.
    pub(super) fn inputs(&self, expr: Expr, most: usize) -> Vec<(Rank, u64)> {
        let (mut inputs, mut stack) = (Vec::new(), vec![expr]);
        while let Some(expr) = stack.pop() {
            if inputs.len() >= most {
                break;
            }
            match self.node(expr) {
                Node::Unknown | Node::Empty => {}
                Node::Input(rank, chunk) => inputs.push((rank, chunk)),
                Node::Combine(left, right) => stack.extend([right, left]),
            }
        }
        inputs
    }
}
