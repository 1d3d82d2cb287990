//! The daemon as its clients and operators see it: its input and output.

mod addresses;
mod admission;
mod command_line;
mod control;
mod crowds;
mod dead_peers;
mod denied_calls;
mod drain;
mod faults_from_below;
mod free_port;
mod http;
mod inherited;
mod listeners;
mod logs;
mod max_hold;
mod names;
mod newcomers;
mod passed;
mod process;
mod reloads;
mod reports;
mod rules;
#[path = "../support/mod.rs"]
mod support;
mod terminals;
mod unread_output;
