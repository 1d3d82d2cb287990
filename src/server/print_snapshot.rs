//! `--print-snapshot`: a snapshot as lines of JSON, for an operator to read.

use super::snapshot::Snapshot;
use serde::Serialize;
use serde_json::ser::Formatter;
use std::io::{self, Write};

/// Prints a snapshot, one record a line. Bytes from clients become text: printable
/// ASCII is unchanged, the rest is escaped as `\xff`.
///
/// # Errors
/// Why the snapshot is refused, or the error of writing.
pub fn print(bytes: &[u8], mut out: impl Write) -> io::Result<()> {
    let snapshot =
        Snapshot::read(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    line(&mut out, "server", &snapshot.server)?;
    for connection in &snapshot.connections {
        line(&mut out, "connection", connection)?;
    }
    for pool in &snapshot.pools {
        line(&mut out, "pool", pool)?;
    }
    out.flush()
}

fn line(out: &mut impl Write, name: &str, record: &impl Serialize) -> io::Result<()> {
    write!(out, "{{\"{name}\":")?;
    record.serialize(&mut serde_json::Serializer::with_formatter(&mut *out, BytesAsText))?;
    out.write_all(b"}\n")
}

/// Prints bytes as text, because JSON has no type for them.
struct BytesAsText;

impl Formatter for BytesAsText {
    fn write_byte_array<W: ?Sized + Write>(&mut self, out: &mut W, bytes: &[u8]) -> io::Result<()> {
        serde_json::to_writer(out, &bytes.escape_ascii().to_string()).map_err(io::Error::from)
    }
}
