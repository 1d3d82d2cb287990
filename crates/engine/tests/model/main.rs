//! The engine in virtual time, compared with a model and with snapshots of itself.

mod against_model;
mod explore;
mod new_rules;
mod shrink;
mod simulation;
