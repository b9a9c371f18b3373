//! The command as its user meets it.

mod commands;
mod docs;
mod figures;
