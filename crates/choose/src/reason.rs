//! Why an algorithm is chosen.

use std::fmt;

use bruckner_algorithms::Expression;

/// Why an algorithm, or the MPI's own function, serves a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The user named it.
    Asked,
    /// The user named another one, which lacks something that the call needs.
    Lacking {
        /// What the user named.
        asked: Expression,
        /// What it lacks.
        lack: Lack,
        /// Why this one serves instead.
        instead: Box<Reason>,
    },
    /// The user named another one, which cannot be planned here.
    Unfit {
        /// What the user named.
        asked: Expression,
        /// Why this one serves instead.
        instead: Box<Reason>,
    },
    /// A barrier on one node.
    BarrierOnNode,
    /// Little data, on one node.
    ShortOnNode,
    /// Little data, on several nodes.
    ShortBetweenNodes,
    /// Every call is to be served (`BRUCKNER=always`).
    Always,
    /// Only an algorithm can do it: the MPI has no function for such counts.
    BeyondMpi,
    /// No algorithm for the call can be planned.
    NothingFits,
    /// A broadcast: receivers may expect more than is sent.
    BroadcastForgives,
    /// A reduction to a root: ranks may run ahead of it.
    RunsAhead,
    /// Each rank knows only its own sizes.
    LocalSizes,
    /// The operation is not commutative.
    NotCommutative,
    /// Much data, on one node.
    LongOnNode,
    /// Much data, on several nodes.
    LongBetweenNodes,
    /// Every rank has a node of its own.
    OnePerNode,
    /// A rank may have buffers in device memory.
    Device,
}

/// What an algorithm lacks that a call needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// A bound on the work of planning it.
    Bound,
    /// It does not keep the order of ranks.
    Order,
    /// Ranks may round differently.
    Consistency,
}

impl Reason {
    /// The same, after a user named an algorithm that lacks something.
    pub(crate) fn instead_of(self, refused: Option<&(Expression, Lack)>) -> Reason {
        match refused {
            Some((asked, lack)) => {
                Reason::Lacking { asked: asked.clone(), lack: *lack, instead: Box::new(self) }
            }
            None => self,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Lacking { asked, lack, instead } => {
                return write!(f, "`{asked}` was asked for, but {lack}; {instead}");
            }
            Reason::Unfit { asked, instead } => {
                return write!(f, "`{asked}` was asked for, but does not fit; {instead}");
            }
            Reason::Asked => "asked for",
            Reason::BarrierOnNode => "on one node: by shared memory",
            Reason::ShortOnNode => "short, on one node: by shared memory",
            Reason::ShortBetweenNodes => "short, on several nodes: few messages between them",
            Reason::Always => "BRUCKNER=always",
            Reason::BeyondMpi => "the MPI has no function for so many",
            Reason::NothingFits => "no algorithm fits",
            Reason::BroadcastForgives => "receivers may expect more than is sent: the MPI forgives that",
            Reason::RunsAhead => "ranks may run any number of calls ahead of the root",
            Reason::LocalSizes => "sizes are known only locally: nothing is known to be better",
            Reason::NotCommutative => "the operation is not commutative: nothing is known to be better",
            Reason::LongOnNode => "long, on one node: the MPI copies straight from process to process",
            Reason::LongBetweenNodes => "long, on several nodes: nothing is known to be better",
            Reason::OnePerNode => "one rank on each node: nothing is known to be better",
            Reason::Device => "a rank has a GPU runtime loaded: buffers may be in device memory",
        })
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lack::Bound => "planning it for so many ranks would take too long",
            Lack::Order => "it does not keep the order of ranks, and the operation is not commutative",
            Lack::Consistency => "its floating-point results may differ between ranks",
        })
    }
}
