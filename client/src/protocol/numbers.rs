//! Numbers as clients write them.

/// Reads decimal digits; anything else counts as 0. A number that is too large
/// becomes the largest one (the reference wraps at 32 bits).
pub(super) fn parse_number(field: &[u8]) -> u64 {
    let mut number: u64 = 0;
    for byte in field {
        if !byte.is_ascii_digit() {
            return 0;
        }
        let digit = u64::from(byte - b'0');
        number = number.saturating_mul(10).saturating_add(digit);
    }
    number
}

pub(super) fn saturating_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
