//! Tests of the `bruckner` command as a user runs it.

mod commands;
mod docs;
mod figures;
mod words;
