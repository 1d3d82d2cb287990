//! `which`: the servers of a key, in the order in which clients try them, also with
//! `--hash-slots`. With it, many keys share a limited number of locks, as MediaWiki's `slots`.

use super::ask::CUT;
use super::order::order;
use super::output::{print, print_error};
use super::shown_key::shown;
use super::status;
use connect::ServerName;
use protocol::{key_from_text, key_text};
use std::process::ExitCode;

/// Prints a server a line, the first choice first. A space in the key stays one: clients
/// choose the server before they write it as `%20`. A key that was copied from a list has `%20`
/// where the client had a space, or `%20` itself: if that makes a difference, prints both.
pub(super) fn which(servers: &[ServerName], key: &[u8], hash_slots: Option<u32>) -> ExitCode {
    if key.ends_with(CUT.as_bytes()) {
        print_error("a list has cut this key: keys PATTERN shows it whole");
    }
    let key = key_from_text(key).unwrap_or_else(|| key.to_vec());
    let in_slots = |key: &[u8]| match hash_slots {
        None => Some(key.to_vec()),
        Some(slots) => key_in_slots(key, slots),
    };
    let choice = |key: Vec<u8>| {
        let servers = order(servers, &in_slots(&key)?).into_iter().map(ServerName::as_str);
        Some(Choice { servers: servers.collect(), key })
    };
    let choices: Option<Vec<Choice<'_>>> = forms(&key).into_iter().map(choice).collect();
    let Some(mut choices) = choices else {
        print_error("--hash-slots: expected a key of the form POOL:KEY");
        return ExitCode::from(status::USAGE);
    };
    choices.dedup_by(|other, first| other.servers == first.servers);
    let lines: Vec<String> = match &choices[..] {
        [only] => vec![only.servers.join("\n")],
        several => several.iter().map(Choice::lines).collect(),
    };
    if print(&lines.join("\n")) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A form of the key, and its servers in their order.
struct Choice<'a> {
    key: Vec<u8>,
    servers: Vec<&'a str>,
}

impl Choice<'_> {
    /// The form and its servers.
    fn lines(&self) -> String {
        // A space is no byte of a key in a list, and shown as it is.
        let words = self.key.split(|&byte| byte == b' ').map(key_text);
        let key = words.collect::<Vec<_>>().join(" ");
        format!("{}:\n  {}", shown(&key), self.servers.join("\n  "))
    }
}

/// The keys that a client may have had: with spaces, and as it was typed.
fn forms(key: &[u8]) -> Vec<Vec<u8>> {
    let mut spaced = Vec::with_capacity(key.len());
    let mut rest = key;
    while let Some((&byte, after_byte)) = rest.split_first() {
        let after_space = rest.strip_prefix(b"%20");
        spaced.push(if after_space.is_some() { b' ' } else { byte });
        rest = after_space.unwrap_or(after_byte);
    }
    if spaced == key { vec![spaced] } else { vec![spaced, key.to_vec()] }
}

/// The lock's key for a key `POOL:KEY`: `POOL:` and a number below `slots`, from the
/// first four hexadecimal digits of the SHA-1 of `KEY`. `None` without a colon.
fn key_in_slots(key: &[u8], slots: u32) -> Option<Vec<u8>> {
    let colon = key.iter().position(|&byte| byte == b':')?;
    let (kind, rest) = (&key[..=colon], &key[colon + 1..]);
    let digest = sha1_smol::Sha1::from(rest).digest().bytes();
    let slot = u32::from(u16::from_be_bytes([digest[0], digest[1]])) % slots;
    Some([kind, slot.to_string().as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_a_list_may_have_had_spaces() {
        for (key, expected) in [
            ("a b", &["a b"][..]),
            ("a%20b", &["a b", "a%20b"]),
            ("%20%2", &[" %2", "%20%2"]),
            ("%2%20", &["%2 ", "%2%20"]),
            ("a%c3", &["a%c3"]),
            ("", &[""]),
        ] {
            let forms: Vec<String> = forms(key.as_bytes())
                .into_iter()
                .map(|form| String::from_utf8(form).unwrap())
                .collect();
            assert_eq!(forms, expected);
        }
    }

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
