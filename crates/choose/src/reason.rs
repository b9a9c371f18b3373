//! Reasons for selecting an algorithm.

use std::fmt;

use bruckner_algorithms::Expression;

use crate::knowledge::{Origin, Verdict};

/// Speedup of an algorithm over the MPI's own function, as the cost model predicts it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Forecast {
    /// Message size in bytes.
    pub bytes: u64,
    /// Predicted speedup over the MPI's own function; greater than 1 is faster.
    pub times: f64,
    /// Origin of the machine parameters used for the prediction.
    pub origin: Origin,
}

/// Reason why an algorithm, or the MPI's own function, handles a call.
#[derive(Clone, PartialEq, Debug)]
pub enum Reason {
    /// The user selected this algorithm.
    Asked,
    /// The user selected another algorithm, which cannot handle the call.
    Instead {
        /// Algorithm that the user selected.
        asked: Expression,
        /// Property that the user's algorithm lacks; `None` if it has all required properties but cannot be planned for this communicator.
        lack: Option<Lack>,
        /// Reason for the algorithm that replaces the user's.
        reason: Box<Reason>,
    },
    /// The call is a barrier on one node.
    BarrierOnNode,
    /// The call is a barrier on several nodes.
    BarrierBetweenNodes,
    /// The algorithm was the fastest in a tuning run.
    Raced {
        /// Measured message size in bytes: the size of the call, or the next smaller one, if the next larger one has the same winner.
        bytes: u64,
        /// Time of the algorithm divided by the time of the MPI's own function.
        ratio: f64,
        /// Confidence interval of `ratio`: its lower and upper end.
        interval: [f64; 2],
    },
    /// The cost model predicts that the algorithm is faster than the MPI's own function by more than the error margin.
    Predicted(Forecast),
    /// No algorithm is predicted to be faster than the MPI's own function by more than the error margin.
    NotWorth {
        /// Fastest algorithm by the cost model.
        best: Expression,
        /// Predicted speedup of `best`.
        forecast: Forecast,
    },
    /// The algorithm replaced another one during online tuning in this run.
    Watched {
        /// Algorithm that was replaced.
        before: Expression,
        /// Time of the new algorithm divided by the time of the replaced one.
        ratio: f64,
    },
    /// The algorithm was compared with the current one in a trial of online tuning.
    Tried {
        /// Current algorithm.
        beside: Expression,
    },
    /// The user set `BRUCKNER=always`: the library handles every call that it supports.
    Always,
    /// The MPI has no function for counts that exceed C integers, so only an algorithm of the library can handle the call.
    BeyondMpi,
    /// No algorithm for the call can be planned.
    NothingFits,
    /// The call is a broadcast. Receivers may give larger counts than the root, so ranks could select different algorithms.
    BroadcastForgives,
    /// The call is a reduction to a root. Other ranks may be any number of calls ahead of the root.
    RunsAhead,
    /// Each rank knows only its own message sizes.
    LocalSizes,
    /// A rank may have buffers in device memory.
    Device,
}

/// A required property that an algorithm does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// Planning the algorithm for this number of ranks would take too long.
    Bound,
    /// The algorithm does not reduce in rank order, which a non-commutative operation requires.
    Order,
    /// The algorithm may round the same floating-point result differently on different ranks.
    Consistency,
}

impl Reason {
    /// Makes the reason [`Reason::Raced`] from the result of a tuning run.
    pub fn of(verdict: &Verdict) -> Reason {
        Reason::Raced { bytes: verdict.bytes, ratio: verdict.ratio, interval: verdict.interval }
    }

    /// Wraps the reason in [`Reason::Instead`], because the algorithm `asked` that the user selected cannot handle the call.
    pub(crate) fn instead_of(self, asked: &Expression, lack: Option<Lack>) -> Reason {
        Reason::Instead { asked: asked.clone(), lack, reason: Box::new(self) }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Instead { asked, lack: Some(lack), reason } => {
                return write!(f, "`{asked}` was asked for, but {lack}; {reason}");
            }
            Reason::Instead { asked, lack: None, reason } => {
                return write!(f, "`{asked}` was asked for, but does not fit; {reason}");
            }
            Reason::Asked => "asked for",
            Reason::BarrierOnNode => "on one node: by shared memory",
            Reason::BarrierBetweenNodes => "between nodes: nothing is known to be better",
            Reason::Raced { bytes, ratio, interval: [low, high] } => {
                return write!(
                    f,
                    "{ratio:.2} ({low:.2} to {high:.2}) of the MPI's time at {bytes} B, measured"
                );
            }
            Reason::Predicted(forecast) => return write!(f, "{forecast}"),
            Reason::NotWorth { best, forecast } => {
                let margin = forecast.origin.margin();
                return write!(f, "nothing is sure to be faster (by {margin} times); {best}: {forecast}");
            }
            Reason::Watched { before, ratio } => {
                return write!(f, "{ratio:.2} of the time of {before}, measured in this run");
            }
            Reason::Tried { beside } => return write!(f, "tried beside {beside}"),
            Reason::Always => "BRUCKNER=always",
            Reason::BeyondMpi => "the MPI has no function for so many",
            Reason::NothingFits => "no algorithm fits",
            Reason::BroadcastForgives => "receivers may expect more than is sent: the MPI forgives that",
            Reason::RunsAhead => "ranks may run any number of calls ahead of the root",
            Reason::LocalSizes => "sizes are known only locally: nothing is known to be better",
            Reason::Device => "a rank has a GPU runtime loaded: buffers may be in device memory",
        })
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.origin {
            Origin::Nominal => "a usual machine",
            Origin::ThisRun => "what was measured at the start",
            Origin::Crowded => "what was measured at the start on crowded cores",
            Origin::Profile => "the profile",
        };
        write!(f, "{:.1} times as fast at {} B, predicted by {by}", self.times, self.bytes)
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
