//! The command `poolcounter`.

use std::process::ExitCode;

fn main() -> ExitCode {
    poolcounter_command::main()
}
