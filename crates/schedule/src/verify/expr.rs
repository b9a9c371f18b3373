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

/// All expressions of a run.
pub(super) struct Exprs {
    nodes: Vec<Node>,
    numbers: HashMap<Node, Expr>,
}

impl Exprs {
    pub(super) fn new() -> Exprs {
        let mut exprs = Exprs { nodes: Vec::new(), numbers: HashMap::default() };
        assert_eq!(exprs.number(Node::Unknown), Expr::UNKNOWN);
        assert_eq!(exprs.number(Node::Empty), Expr::EMPTY);
        exprs
    }

    fn number(&mut self, node: Node) -> Expr {
        *self.numbers.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            Expr(self.nodes.len() as u32 - 1)
        })
    }

    pub(super) fn input(&mut self, rank: Rank, chunk: u64) -> Expr {
        self.number(Node::Input(rank, chunk))
    }

    pub(super) fn combine(&mut self, left: Expr, right: Expr) -> Expr {
        if left == Expr::UNKNOWN || right == Expr::UNKNOWN {
            return Expr::UNKNOWN;
        }
        self.number(Node::Combine(left, right))
    }

    pub(super) fn node(&self, expr: Expr) -> Node {
        self.nodes[expr.0 as usize]
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
