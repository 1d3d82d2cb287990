//! Tests that read documents: whether they agree with the program, with the clients and with
//! each other. `run` beside this file executes their commands.

#[path = "../support/command_line.rs"]
mod command_line;
#[path = "../support/files.rs"]
mod files;
mod keys;
mod links;
mod options;
