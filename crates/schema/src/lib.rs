//! The reports in JSON and their rows, which the daemon writes and the command reads; rows as cells of a
//! table. The reports, the daemon and the command call it. It may know nothing of the protocol or the
//! engine; without std, it names no socket, file, clock or thread.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod reports;
pub mod rows;
pub mod table;
pub mod words;
