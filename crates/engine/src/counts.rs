//! Counts every event: counters, sums of time, histograms. Each is declared once, with its
//! name and its meaning.
//!
//! Called by the engine's decisions and by the server; decides nothing.

pub mod histogram;
pub mod measures;
pub mod statistics;
