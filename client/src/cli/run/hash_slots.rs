//! `--hash-slots`: many keys share a limited number of locks, as MediaWiki's `slots`.

/// The lock's key for a key `TYPE:REST`: `TYPE:` and a number below `slots`, from the
/// first four hexadecimal digits of the SHA-1 of `REST`. `None` without a colon.
pub(in crate::cli) fn key_in_slots(key: &[u8], slots: u32) -> Option<Vec<u8>> {
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
            ("ArticleView:enwiki:1", 10, "ArticleView:0"),
            ("ArticleView:a", 65_536, "ArticleView:34551"),
        ] {
            let found = key_in_slots(key.as_bytes(), slots).expect("a key");
            assert_eq!(String::from_utf8(found).unwrap(), expected);
        }
        assert_eq!(key_in_slots(b"no-colon", 10), None);
    }
}
