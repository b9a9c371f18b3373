//! SimGrid's time-independent traces: the messages that a rank sends and receives, without their times.
//!
//! ```
//! use bruckner_algorithms::{Task, plan};
//! use bruckner_model::steps_of;
//! use bruckner_render::ti;
//! use bruckner_schedule::{Collective, Rank};
//!
//! let task = Task::new(Collective::Allgather, "2x1".parse().unwrap()).bytes(8);
//! let plan = plan(&task, &"bruck(2)".parse().unwrap()).unwrap();
//! let trace = ti(Rank(0), &steps_of(&plan, Rank(0)));
//! assert_eq!(trace, "0 init\n0 isend 1 0 8 6\n0 irecv 1 0 8 6\n0 wait 0 1 0\n0 wait 1 0 0\n0 finalize\n");
//! ```

use std::fmt::Write;

use bruckner_model::steps::{CostStep, Steps};
use bruckner_schedule::Rank;

/// Returns a rank's trace. Message sizes are in bytes (SimGrid's datatype code 6); local work is left out. The steps must not use shared
/// memory: ranks of a node have to exchange messages.
pub fn ti(rank: Rank, steps: &Steps) -> String {
    let me = rank.0;
    let mut text = format!("{me} init\n");
    let mut partners = steps.partners.iter();
    let mut requests = Vec::new();
    for step in &steps.steps {
        let partner = if step.has_partner() { partners.next() } else { None };
        // Writing to a `String` cannot fail.
        let _ = match (step, partner) {
            (CostStep::Send { bytes, .. }, Some(to)) => {
                requests.push((me, to.rank.0, to.tag.0));
                writeln!(text, "{me} isend {} {} {bytes} 6", to.rank.0, to.tag.0)
            }
            (CostStep::Recv { bytes, .. }, Some(from)) => {
                requests.push((from.rank.0, me, from.tag.0));
                writeln!(text, "{me} irecv {} {} {bytes} 6", from.rank.0, from.tag.0)
            }
            (CostStep::Finish { request }, _) => {
                let (from, to, tag) = requests[*request as usize];
                writeln!(text, "{me} wait {from} {to} {tag}")
            }
            _ => Ok(()),
        };
    }
    text.push_str(&format!("{me} finalize\n"));
    text
}
