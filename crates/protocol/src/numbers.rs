//! Numbers as clients write them.

use core::slice::Iter;

/// Takes the next field from `bytes`, and the space behind it. Fields are separated by runs
/// of spaces. Decimal digits are a number; anything else counts as 0. A number that is too
/// large becomes the largest one (the reference wraps at 32 bits).
pub(super) fn next_number(bytes: &mut Iter<'_, u8>) -> u64 {
    let mut number: u64 = 0;
    let mut are_digits = true;
    for &byte in bytes.skip_while(|&&byte| byte == b' ').take_while(|&&byte| byte != b' ') {
        are_digits &= byte.is_ascii_digit();
        number = number.saturating_mul(10).saturating_add(byte.wrapping_sub(b'0').into());
    }
    if are_digits { number } else { 0 }
}

pub(super) fn saturating_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
