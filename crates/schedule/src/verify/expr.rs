//! Values as expressions: each distinct tree once, so that equal trees have equal numbers.

use rustc_hash::FxHashMap as HashMap;

use crate::Rank;

/// The number of a distinct expression.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Expr(u32);

/// An expression's root.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Node {
    /// Stands for what is unknown after an error, so that one error does not cause a hundred.
    Unknown,
    /// Nothing: the value of a chunk without elements.
    Empty,
    /// What a rank had in its input under this chunk number.
    Input(Rank, u64),
    /// Left ⊕ right.
    Combine(Expr, Expr),
}

impl Expr {
    pub(super) const UNKNOWN: Expr = Expr(0);
    pub(super) const EMPTY: Expr = Expr(1);
}

/// All expressions of a run. Inputs are numbered by rank and chunk, reductions behind them as they come.
pub(super) struct Exprs {
    chunks: u64,
    inputs: u32,
    combined: Vec<(Expr, Expr)>,
    numbers: HashMap<(Expr, Expr), Expr>,
}

impl Exprs {
    /// There are fewer inputs than this.
    pub(super) const MOST: u64 = 1 << 31;

    /// For so many ranks and chunks.
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

    /// Of a chunk that was only moved, from which rank to which it goes in an alltoall.
    pub(super) fn length(&self, expr: Expr) -> Option<(u32, u32)> {
        match self.node(expr) {
            Node::Input(rank, chunk) => Some((rank.0, chunk as u32)),
            _ => None,
        }
    }

    /// The inputs of an expression from left to right, until `most` of them: a tree of shared parts can have
    /// very many.
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
