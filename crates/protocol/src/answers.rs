//! Answers to orders by which programs decide. What else an answer says is for people.

/// The first word of the answer to an order that is carried out, a report apart.
pub const OK: &str = "OK ";

/// The first word of a refusal. `STATS`, of which clients ask, begins its refusals so too.
pub const ERROR: &str = "ERROR ";

/// To `DRAINED`: the last client has left, and the daemon exits.
pub const DRAINED: &str = "OK drained";

/// To `DRAINED`: there is no drain, or it was undone.
pub const NOT_DRAINING: &str = "ERROR not draining";

/// To `DRAINED`: the operator does not wait for the end of the drain.
pub const STILL_DRAINING: &str = "ERROR still draining";

/// To an operator whose place another one gets.
pub const TOO_MANY: &str = "ERROR too many control connections";

/// To an operator whose orders the daemon has not read, and will not.
pub const NOT_HEARD: &str = "ERROR this control socket is closed; nothing was done";
