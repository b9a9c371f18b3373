//! Cost of a schedule on a machine: machine files, closed formulas and a simulator.
//!
//! ```
//! use bruckner_algorithms::{Task, plan};
//! use bruckner_model::{Machine, Simulation};
//! use bruckner_schedule::Collective;
//!
//! let task = Task::new(Collective::Allgather, "8x1".parse().unwrap()).bytes(8);
//! let plan = plan(&task, &"bruck(2)".parse().unwrap()).unwrap();
//! // Three rounds of one latency each, and 7 blocks of 8 bytes.
//! let time = Simulation::of(&plan).unwrap().run(&Machine::postal(1e-6, 1e-9)).unwrap().last();
//! assert!((time - (3e-6 + 56e-9)).abs() < 1e-15);
//! ```

mod classes;
mod cost;
pub mod fit;
pub mod machine;
mod simulate;
mod simulation;
mod sketch;
pub mod steps;

pub use classes::Unmatched;
pub use cost::Model;
pub use machine::Machine;
pub use simulate::Deadlock;
pub use simulation::{Outcome, Simulation, program_steps, steps_of};
pub use sketch::{Shape, Sketch};
pub use steps::LinkClass;
