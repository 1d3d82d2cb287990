//! The shape of answers whose values can't be predicted: times.

/// Whether the line matches the pattern, where `{n}` stands for any number and `{t}`
/// for any time.
pub(crate) fn matches(pattern: &str, line: &str) -> bool {
    let Some((before, after)) = pattern.split_once('{') else {
        return pattern == line;
    };
    let (kind, after) = after.split_once('}').expect("a closing brace");
    let Some(rest) = line.strip_prefix(before) else {
        return false;
    };
    let is_of_kind = match kind {
        "n" => is_number,
        "t" => is_duration,
        _ => panic!("{{{kind}}} is unknown"),
    };
    let mut ends = (1..=rest.len()).filter(|&end| rest.is_char_boundary(end));
    ends.any(|end| is_of_kind(&rest[..end]) && matches(after, &rest[end..]))
}

pub(crate) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// `%fs`, led by `Mm ` from a minute, `Hh Mm ` from an hour, `D days Hh Mm ` from a
/// day; six decimals, hours under 24, minutes and seconds under 60.
pub(crate) fn is_duration(text: &str) -> bool {
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        [s] => is_seconds(s),
        [m, s] => below(m, "m", 60) && is_seconds(s),
        [h, m, s] => below(h, "h", 24) && below(m, "m", 60) && is_seconds(s),
        [days, "days", h, m, s] => {
            is_number(days) && below(h, "h", 24) && below(m, "m", 60) && is_seconds(s)
        }
        _ => false,
    }
}

fn is_seconds(word: &str) -> bool {
    let Some((whole, decimals)) = word.split_once('.') else {
        return false;
    };
    let decimals = decimals.strip_suffix('s').unwrap_or_default();
    below(whole, "", 60) && decimals.len() == 6 && is_number(decimals)
}

fn below(word: &str, unit: &str, bound: u32) -> bool {
    let digits = word.strip_suffix(unit).unwrap_or_default();
    is_number(digits) && digits.parse().is_ok_and(|n: u32| n < bound)
}

/// The patterns of the lines of `STATS` with a time, in the order of `STATS FULL`.
pub(crate) const TIMES: [&str; 9] = [
    "uptime: {n} days, {n}h {n}m {n}s",
    "total processing time: {t}",
    "average processing time: {t}",
    "gained time: {t}",
    "waiting time: {t}",
    "waiting time for me: {t}",
    "waiting time for anyone: {t}",
    "waiting time for good: {t}",
    "wasted timeout time: {t}",
];

/// Replaces a line with a time by its pattern, so that two servers can be compared.
/// Returns any other line, including one with a malformed time, as it is.
pub(crate) fn without_times(line: &str) -> &str {
    // Every time ends in seconds: this rules out most lines at once.
    if !line.ends_with('s') {
        return line;
    }
    let pattern = TIMES.iter().find(|pattern| matches(pattern, line));
    pattern.unwrap_or(&line)
}

/// Seconds in a duration such as `2 days 3h 4m 5.000001s`.
pub(crate) fn seconds(duration: &str) -> f64 {
    assert!(is_duration(duration), "{duration:?} is not a duration");
    let mut seconds = 0.0;
    for word in duration.replace(" days", "d").split(' ') {
        let (number, unit) = word.split_at(word.len() - 1);
        let number: f64 = number.parse().expect("a number");
        seconds += number
            * match unit {
                "d" => 86400.0,
                "h" => 3600.0,
                "m" => 60.0,
                _ => 1.0,
            };
    }
    seconds
}
