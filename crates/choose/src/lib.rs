//! Which algorithm serves a call: what all ranks share goes in, a ranked list of algorithms with reasons comes out.
//!
//! Pure: no MPI, no clock, no environment. The engine asks when it meets a new [`Kind`] of call, `bruckner explain` asks
//! for people, and both get the same answer.
//!
//! ```
//! use bruckner_choose::{Circumstances, Name, Policy, Question, Rules, Thresholds, Vendor, choose};
//! use bruckner_schedule::{Collective, Counts, Problem, Topology};
//!
//! let topology: Topology = "4x16".parse()?;
//! let problem = Problem::new(Collective::Allreduce, 64, Counts::Equal(1), 8)?;
//! let question = Question { name: Name::Allreduce, problem: &problem, shows_order: true };
//! let kind = Thresholds::new(&topology, Vendor::OpenMpi, false).kind(&question);
//! let (rules, policy) = (Rules::default(), Policy::default());
//! let choices = choose(&kind, &Circumstances { topology: &topology, rules: &rules, policy });
//! assert_eq!(choices[0].expression.to_string(), "locality(node)");
//! assert_eq!(choices[0].reason.to_string(), "short, on several nodes: few messages between them");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod choice;
mod kind;
mod name;
mod reason;
mod rules;

pub use choice::{Choice, Circumstances, Policy, choose};
pub use kind::{Kind, Question, Size, Thresholds, Vendor};
pub use name::Name;
pub use reason::{Lack, Reason};
pub use rules::{BadRule, Rules};
