//! Reasons for selecting an algorithm.

use std::fmt;

use bruckner_algorithms::Expression;

use crate::knowledge::{Origin, TuningResult};

/// Speedup of an algorithm over the MPI's own function, as the cost model predicts it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Forecast {
    /// Message size for which the speedup is predicted, in bytes.
    pub bytes: u64,
    /// Predicted speedup over the MPI's own function; greater than 1 is faster.
    pub speedup: f64,
    /// Origin of the machine parameters used for the prediction.
    pub origin: Origin,
}

/// Reason why an algorithm, or the MPI's own function, handles a call.
#[derive(Clone, PartialEq, Debug)]
pub enum Reason {
    /// The user selected this algorithm.
    Requested,
    /// The user selected another algorithm, which cannot handle the call.
    InsteadOf {
        /// Algorithm that the user selected.
        asked: Expression,
        /// Property that the user's algorithm lacks; `None` if it has all required properties but cannot be planned for this communicator.
        lack: Option<MissingProperty>,
        /// Reason for the algorithm that replaces the user's.
        reason: Box<Reason>,
    },
    /// The call is a barrier on one node.
    BarrierOnNode,
    /// The call is a barrier on several nodes.
    BarrierBetweenNodes,
    /// The algorithm was the fastest in a tuning run.
    Measured {
        /// Message size in bytes that the tuning run measured: the size of the call or, between two measured sizes with the same winner,
        /// the smaller of them.
        bytes: u64,
        /// Time of the algorithm divided by the time of the MPI's own function.
        ratio: f64,
        /// Lower and upper end of the confidence interval of `ratio`.
        interval: [f64; 2],
    },
    /// The cost model predicts that the algorithm is faster than the MPI's own function by more than the error margin.
    Predicted(Forecast),
    /// No algorithm is predicted to be faster than the MPI's own function by more than the error margin.
    BelowMargin {
        /// Fastest algorithm by the cost model.
        best: Expression,
        /// Predicted speedup of `best`.
        forecast: Forecast,
    },
    /// The algorithm replaced another one during online tuning in this run.
    Replaced {
        /// Algorithm that was replaced.
        before: Expression,
        /// Time of the new algorithm divided by the time of the replaced one.
        ratio: f64,
    },
    /// The algorithm was compared with the current one in a trial of online tuning.
    InTrial {
        /// Algorithm in use, with which the trial compares this algorithm.
        beside: Expression,
    },
    /// The user set `BRUCKNER=always`: the library handles every call that it supports.
    Always,
    /// The MPI has no function for counts that exceed C integers, so only an algorithm of the library can handle the call.
    BeyondMpi,
    /// No algorithm for the call can be planned.
    NothingFits,
    /// The call is a broadcast. Receivers may give larger counts than the root, so ranks could select different algorithms.
    BroadcastSizesDiffer,
    /// The call is a reduction to a root. Other ranks may be any number of calls ahead of the root.
    RootedReduction,
    /// The call is an alltoallv, in which each rank knows only its own message sizes.
    LocalSizes,
    /// A rank has loaded a GPU runtime, so its buffers may be in device memory.
    Device,
}

/// A required property that an algorithm does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MissingProperty {
    /// Planning the algorithm for this number of ranks would take too long.
    Bound,
    /// The algorithm does not reduce in rank order, which a non-commutative operation requires.
    Order,
    /// The algorithm may round the same floating-point result differently on different ranks.
    Consistency,
}

impl Reason {
    /// Makes the reason [`Reason::Measured`] from the result of a tuning run.
    pub fn of(result: &TuningResult) -> Reason {
        Reason::Measured { bytes: result.bytes, ratio: result.ratio, interval: result.interval }
    }

    /// Wraps the reason in [`Reason::InsteadOf`], because the algorithm `asked` that the user selected cannot handle the call.
    pub(crate) fn instead_of(self, asked: &Expression, lack: Option<MissingProperty>) -> Reason {
        Reason::InsteadOf { asked: asked.clone(), lack, reason: Box::new(self) }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::InsteadOf { asked, lack: Some(lack), reason } => {
                return write!(f, "`{asked}` was selected by the user, but {lack}; {reason}");
            }
            Reason::InsteadOf { asked, lack: None, reason } => {
                return write!(
                    f,
                    "`{asked}` was selected by the user, but cannot be planned for this communicator; {reason}"
                );
            }
            Reason::Requested => "selected by the user",
            Reason::BarrierOnNode => "barrier on one node: always handled by shm",
            Reason::BarrierBetweenNodes => "barrier between nodes: no algorithm is known to be faster than the MPI",
            Reason::Measured { bytes, ratio, interval: [low, high] } => {
                let [ratio, low, high] = [ratio, low, high].map(|time| 1.0 / time);
                return write!(f, "measured by bruckner tune: speedup {ratio:.2} ({high:.2} to {low:.2}) over the MPI at {bytes} B");
            }
            Reason::Predicted(forecast) => return write!(f, "{forecast}"),
            Reason::BelowMargin { best, forecast } => {
                let margin = forecast.origin.margin();
                return write!(
                    f,
                    "no algorithm is predicted to be at least {margin}x faster than the MPI; the fastest is {best}: {forecast}"
                );
            }
            Reason::Replaced { before, ratio } => {
                return write!(f, "speedup {:.2} over {before}, measured in this run", 1.0 / ratio);
            }
            Reason::InTrial { beside } => return write!(f, "compared with {beside} in a trial of online tuning"),
            Reason::Always => "BRUCKNER=always",
            Reason::BeyondMpi => "the MPI has no function for counts that exceed a C int, so the library handles the call",
            Reason::NothingFits => "no algorithm of the library can handle this call",
            Reason::BroadcastSizesDiffer => {
                "broadcast: receivers may give larger counts than the root, so ranks could select different algorithms"
            }
            Reason::RootedReduction => {
                "reduction to a root: the library would limit how many calls ranks may run ahead of the root"
            }
            Reason::LocalSizes => {
                "each rank knows only its own message sizes: no algorithm is known to be faster than the MPI"
            }
            Reason::Device => "some rank has loaded a GPU runtime: buffers may be in device memory",
        })
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.origin {
            Origin::Default => "the default machine model",
            Origin::Calibrated => "calibration at first use",
            Origin::Oversubscribed => "calibration at first use on oversubscribed nodes",
            Origin::Profile => "the profile",
        };
        write!(f, "speedup {:.1} at {} B, predicted from {by}", self.speedup, self.bytes)
    }
}

impl fmt::Display for MissingProperty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MissingProperty::Bound => "planning it for this number of ranks would take too long",
            MissingProperty::Order => "it does not reduce in rank order, and the operation is not commutative",
            MissingProperty::Consistency => "its floating-point results may differ between ranks",
        })
    }
}
