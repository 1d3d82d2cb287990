//! `which`: the servers of a key, in the order in which clients try them, also with
//! `--hash-slots`. With it, many keys share a limited number of locks, as MediaWiki's `slots`.

use super::output::{print, print_error};
use super::status;
use connect::ServerName;
use poolcounter::order;
use protocol::key_from_text;
use std::process::ExitCode;

/// Prints a server a line, the first choice first. A space in the key stays one: clients
/// choose the server before they write it as `%20`.
pub(super) fn which(servers: &[ServerName], key: &[u8], hash_slots: Option<u32>) -> ExitCode {
    let key = key_from_text(key).unwrap_or_else(|| key.to_vec());
    let key = match hash_slots {
        None => Some(key),
        Some(slots) => key_in_slots(&key, slots),
    };
    let Some(key) = key else {
        print_error("--hash-slots: expected a key of the form TYPE:REST");
        return ExitCode::from(status::USAGE);
    };
    let names: Vec<&str> = order(servers, &key).into_iter().map(ServerName::as_str).collect();
    if print(&names.join("\n")) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The lock's key for a key `TYPE:REST`: `TYPE:` and a number below `slots`, from the
/// first four hexadecimal digits of the SHA-1 of `REST`. `None` without a colon.
pub(super) fn key_in_slots(key: &[u8], slots: u32) -> Option<Vec<u8>> {
    let colon = key.iter().position(|&byte| byte == b':')?;
    let (kind, rest) = (&key[..=colon], &key[colon + 1..]);
    let digest = sha1_smol::Sha1::from(rest).digest().bytes();
    let slot = u32::from(u16::from_be_bytes([digest[0], digest[1]])) % slots;
    Some([kind, slot.to_string().as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf %s REST | sha1sum | cut -c1-4` gives the digits.
    #[test]
    fn a_slot_is_that_of_sha1sum() {
        for (key, slots, expected) in [
            ("Thumb:Cat.jpg", 10, "Thumb:0"),
            ("Thumb:a", 10, "Thumb:1"),
            ("job:Example.jpg", 8, "job:5"),
            ("job:a", 65_536, "job:34551"),
        ] {
            let found = key_in_slots(key.as_bytes(), slots).expect("a key");
            assert_eq!(String::from_utf8(found).unwrap(), expected);
        }
        assert_eq!(key_in_slots(b"no-colon", 10), None);
    }
}
