//! Why an algorithm is chosen.

use std::fmt;

use bruckner_algorithms::Expression;

use crate::knowledge::{Origin, Verdict};

/// What the model says of an algorithm beside the MPI's own function.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Forecast {
    /// At this size.
    pub bytes: u64,
    /// How many times as fast it is.
    pub times: f64,
    /// By which figures.
    pub origin: Origin,
}

/// Why an algorithm, or the MPI's own function, serves a call.
#[derive(Clone, PartialEq, Debug)]
pub enum Reason {
    /// The user named it.
    Asked,
    /// The user named another one.
    Instead {
        /// What the user named.
        asked: Expression,
        /// What it lacks that the call needs; nothing if it cannot be planned here.
        lack: Option<Lack>,
        /// Why this one serves instead.
        reason: Box<Reason>,
    },
    /// A barrier on one node.
    BarrierOnNode,
    /// A barrier on several nodes.
    BarrierBetweenNodes,
    /// It won a race.
    Raced {
        /// At this size, or at this one and the next.
        bytes: u64,
        /// Its time as a part of the MPI's.
        ratio: f64,
        /// The interval of that.
        interval: [f64; 2],
    },
    /// The model says that it is faster.
    Predicted(Forecast),
    /// The model does not say that the best of all algorithms is so much faster that one can rely on it.
    NotWorth {
        /// The best.
        best: Expression,
        /// What the model says of it.
        forecast: Forecast,
    },
    /// It was faster than another in this run.
    Watched {
        /// The other.
        before: Expression,
        /// Its time as a part of the other's.
        ratio: f64,
    },
    /// It was tried beside another.
    Tried {
        /// The other.
        beside: Expression,
    },
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
    /// That it won a race.
    pub fn of(verdict: &Verdict) -> Reason {
        Reason::Raced { bytes: verdict.bytes, ratio: verdict.ratio, interval: verdict.interval }
    }

    /// The same, after a user named an algorithm that cannot serve.
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
