//! Selection of the algorithm for a collective call: a ranked list of algorithms with reasons, computed from parameters that are equal on
//! all ranks.
//!
//! The crate uses no MPI, no clock and no environment variables. The engine calls [`choose`] for each new [`Kind`] of call, and `bruckner
//! explain` calls it to show the result to a user; both get the same answer.
//!
//! Results of tuning runs (`bruckner tune`) come first. For calls without such a result, the cost model selects the fastest algorithm if
//! its predicted speedup over the MPI's own function exceeds an error margin; otherwise the MPI's own function is selected. The message
//! sizes at which the selection changes are computed once for each communicator and stored in its [`DecisionTables`].
//!
//! ```
//! use std::sync::Arc;
//! use bruckner_choose::{Ability, DecisionTables, Knowledge, Name, Policy, Question, Rules, Vendor, choose};
//! use bruckner_schedule::{Collective, Counts, Problem, Topology};
//!
//! let topology: Arc<Topology> = Arc::new("4x16".parse()?);
//! let known = Arc::new(Knowledge::defaults(Vendor::OpenMpi));
//! let tables = DecisionTables::new(topology, known, Policy::default(), Ability::default());
//! let problem = Problem::new(Collective::Allreduce, 64, Counts::Equal(1), 8)?;
//! let question = Question { name: Name::Allreduce, problem: &problem, is_order_sensitive: true };
//! let choices = choose(&tables.kind(&question), &tables, &Rules::default());
//! assert_eq!(choices[0].expression.to_string(), "locality(node)");
//! assert!(choices[0].reason.to_string().contains("at 8 B, predicted from the default machine model"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod alternatives;
mod answer;
mod calibration;
mod candidates;
mod choice;
mod guidelines;
mod kind;
mod knowledge;
mod name;
mod natives;
mod online;
mod profile;
mod reason;
mod rules;
mod table;

pub use answer::choose;
pub use bruckner_model::Shape;
pub use calibration::{Calibration, LongMessage};
pub use choice::{Choice, Policy};
pub use guidelines::{Alternative, GuidelineViolation, violations};
pub use kind::{Kind, Question, SizeClass};
pub use knowledge::{Knowledge, Origin, ShapeResults, Source, TuningResult, Vendor};
pub use name::Name;
pub use natives::{NativeAlgorithm, SourceLine, native_algorithm, native_reduce_scatter};
pub use online::{Assignment, KindId, OnlineTuning, size_class};
pub use profile::{InvalidLine, MAX_BYTES, NativeSetting, NativeSettings, Profile, Provenance, VERSION};
pub use reason::{Forecast, MissingProperty, Reason};
pub use rules::{BadRule, Rules};
pub use table::{Ability, DecisionTables, Ranked};
