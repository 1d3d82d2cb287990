//! Hot restart.
//!
//! | image | files |
//! |---|---|
//! | old | [`phases`] (its two phases), [`trial`] (asks the new binary), [`launcher`] (executes it) |
//! | new | [`rehearsal`] (answers), [`resume`] (continues; why no step can fail) |
//! | both | [`snapshot`] (what is handed over) |
//!
//! Called by operators' orders and by the start; may know every room that hands something over.

pub(crate) mod launcher;
pub(crate) mod phases;
pub(crate) mod rehearsal;
pub(crate) mod resume;
pub mod snapshot;
pub(crate) mod trial;
