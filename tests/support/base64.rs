//! Base64 (RFC 4648).

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn from_base64(text: &str) -> Vec<u8> {
    let digits = text.bytes().filter_map(|byte| BASE64.iter().position(|&digit| digit == byte));
    let (mut bytes, mut bits, mut len) = (Vec::new(), 0usize, 0);
    for digit in digits {
        bits = (bits << 6 | digit) & 0xffff;
        len += 6;
        if len >= 8 {
            len -= 8;
            bytes.push((bits >> len) as u8);
        }
    }
    bytes
}

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    let chunk = |chunk: &[u8]| {
        let all = chunk.iter().fold(0usize, |all, &byte| all << 8 | usize::from(byte));
        let all = all << (8 * (3 - chunk.len()));
        let digit = |n: usize| {
            if n > chunk.len() { '=' } else { char::from(BASE64[all >> (18 - 6 * n) & 63]) }
        };
        (0..4).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(chunk).collect()
}
