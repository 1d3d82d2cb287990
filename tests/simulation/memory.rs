//! Rules about memory: docs/operations.md, "Memory".

use super::oracle::Violation;
use super::play::Play;

/// What a connection may use for unread answers.
const OUTPUT_BYTES_MAX: usize = 68 * 1024;

/// A connection uses memory for answers only while some are unsent, and never too much.
pub(crate) fn check(play: &Play) -> Result<(), Violation> {
    let server = play.server.as_ref().expect("it runs");
    for (slot, connection) in server.serving.clients.iter() {
        let (unsent, kept) = (connection.stream.unsent().len(), connection.stream.output_bytes());
        if kept > OUTPUT_BYTES_MAX || unsent == 0 && kept > 0 {
            return Err(format!("slot {slot} keeps {kept} bytes for {unsent} bytes to send"));
        }
    }
    Ok(())
}
