//! Algorithms as a whole: planned, lowered, verified and interpreted.

mod by_node;
mod closed_forms;
mod random_tasks;
mod reference_cases;
