//! Hot restart: the old image hands everything to a new one, which continues where it was.
//! `serving` calls it, for an order and at the start. It may know every part that hands
//! something over.
//!
//! | image | files |
//! |---|---|
//! | old | [`old_image`] (two phases: tries the new binary, hands over), [`trial`] (asks it in a child), [`launcher`] (executes it) |
//! | new | [`new_image`] (answers in the trial; restores what is handed over) |
//! | both | [`snapshot`] (what is handed over) |

pub(crate) mod launcher;
pub(crate) mod new_image;
pub(crate) mod old_image;
pub mod snapshot;
pub(crate) mod trial;
