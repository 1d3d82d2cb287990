//! Hot restart: the old image hands everything to a new one, which continues where it was.
//! `serving` calls it, for an order and at the start. It may know every part that hands
//! something over, and the engine's state.
//!
//! | image | files |
//! |---|---|
//! | old | [`old_image`] (two phases: tries the new binary, hands over), [`trial`] (asks it in a child) |
//! | new | [`dry_run`] (answers in the trial), [`new_image`] (restores what is handed over; `serving::resume` continues), [`retry`] (waits for descriptors and memory) |
//! | both | [`parts`] (what is handed over), [`snapshot`] (its format), [`launcher`] (executes the next binary, finds what the last one left), [`restart_error`] (why it is refused) |

pub(crate) mod dry_run;
pub(crate) mod launcher;
pub(crate) mod new_image;
pub(crate) mod old_image;
pub(crate) mod parts;
pub(crate) mod restart_error;
pub(crate) mod retry;
pub mod snapshot;
pub(crate) mod trial;
