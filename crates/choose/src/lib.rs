//! Selects the algorithm for a collective call: from the parameters that all ranks share, it makes a ranked list of algorithms with
//! reasons.
//!
//! Pure: no MPI, no clock, no environment. The engine calls it for each new [`Kind`] of call, and `bruckner explain` calls it to show the
//! result to a user; both get the same answer.
//!
//! Measured results of tuning runs come first. Without one, the cost model decides if its predicted speedup exceeds its error margin;
//! otherwise the MPI's own function is used. For each communicator, the message sizes at which the selection changes are found once and
//! stored in its decision tables, [`Menus`].
//!
//! ```
//! use std::sync::Arc;
//! use bruckner_choose::{Ability, Knowledge, Menus, Name, Policy, Question, Rules, Vendor, choose};
//! use bruckner_schedule::{Collective, Counts, Problem, Topology};
//!
//! let topology: Arc<Topology> = Arc::new("4x16".parse()?);
//! let known = Arc::new(Knowledge::nominal(Vendor::OpenMpi));
//! let menus = Menus::new(topology, known, Policy::default(), Ability::default());
//! let problem = Problem::new(Collective::Allreduce, 64, Counts::Equal(1), 8)?;
//! let question = Question { name: Name::Allreduce, problem: &problem, shows_order: true };
//! let choices = choose(&menus.kind(&question), &menus, &Rules::default());
//! assert_eq!(choices[0].expression.to_string(), "locality(node)");
//! assert!(choices[0].reason.to_string().contains("times as fast at 8 B"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod candidates;
mod choice;
mod gauge;
mod guidelines;
mod kind;
mod knowledge;
mod menu;
mod name;
mod online;
mod profile;
mod reason;
mod rivals;
mod rules;

pub use answer::choose;
pub use bruckner_model::Shape;
pub use choice::{Choice, Policy};
pub use gauge::{Gauged, Long};
pub use guidelines::{Breach, Instead, breaches};
pub use kind::{Kind, Question, Size};
pub use knowledge::{Knowledge, Origin, Raced, Source, Vendor, Verdict};
pub use menu::{Ability, Menus, Ranked};
pub use name::Name;
pub use online::{Assignment, KindId, OnlineTuning, size_class};
pub use profile::{Dropped, LONGEST, Made, Natives, Profile, Setting, VERSION};
pub use reason::{Forecast, Lack, Reason};
pub use rules::{BadRule, Rules};
