//! Each line is a request to the control socket. It is accepted, or refused in one line; an
//! accepted command line equals the one that was sent. All bytes together are also a file of
//! rules: if accepted, its rules stay the same when they are printed and read again.

use engine::rules::rule::parse_file;
use poolcounterd::{ControlRequest, RuleOrder, parse_control_request};
use protocol::Command;

/// # Panics
/// When a request or a rule is misread.
pub(crate) fn check(data: &[u8]) {
    if let Ok(rules) = parse_file(data) {
        let text: String = rules.iter().map(|rule| format!("{rule}\n")).collect();
        assert_eq!(parse_file(text.as_bytes()), Ok(rules));
    }
    for line in data.split(|&byte| byte == b'\n') {
        check_line(line);
    }
}

fn parse(line: &str) -> Option<ControlRequest> {
    parse_control_request(line.as_bytes()).ok()
}

/// What follows `word`, without the ignored end.
fn rest<'a>(line: &'a [u8], word: &str) -> Option<&'a [u8]> {
    let mut line = line.strip_suffix(b"\r").unwrap_or(line);
    while let Some(shorter) = line.strip_suffix(b" ") {
        line = shorter;
    }
    line.strip_prefix(word.as_bytes())
}

fn check_line(line: &[u8]) {
    let word = match parse_control_request(line) {
        Ok(ControlRequest::Help) => "HELP",
        Ok(ControlRequest::Drain) => "DRAIN",
        Ok(ControlRequest::Drained) => "DRAINED",
        Ok(ControlRequest::Undrain) => "UNDRAIN",
        Ok(ControlRequest::Restart(None)) => "RESTART",
        Ok(ControlRequest::Log(None)) => "LOG",
        Ok(ControlRequest::Log(Some(filter))) => {
            let sent = rest(line, "LOG ").map(String::from_utf8_lossy);
            return assert_eq!(sent.as_deref(), Some(&*filter));
        }
        Ok(ControlRequest::Rules { as_json: false }) => "RULES",
        Ok(ControlRequest::Rules { as_json: true }) => "RULES --json",
        Ok(ControlRequest::Rule(order)) => {
            let again = match &order {
                RuleOrder::Set { rule, for_s: Some(seconds) } => {
                    let rule = rule.to_string();
                    let (name, rest) = rule.split_once(' ').expect("a name and a pattern");
                    format!("RULE SET {name} FOR {seconds}s {rest}")
                }
                RuleOrder::Set { rule, for_s: None } => format!("RULE SET {rule}"),
                RuleOrder::Off(name) => format!("RULE OFF {name}"),
                RuleOrder::Reset(name) => format!("RULE RESET {name}"),
            };
            return assert_eq!(parse(&again), Some(ControlRequest::Rule(order)), "{line:?}");
        }
        Ok(ControlRequest::Free(_)) => {
            return assert!(rest(line, "").is_some_and(|line| line.starts_with(b"FREE ")));
        }
        Ok(ControlRequest::Stats(query)) => {
            let sent = match rest(line, "STATS").expect("the word") {
                b"" => b" FULL",
                words => words,
            };
            let on_the_port = [b"STATS", sent].concat();
            assert_eq!(Command::parse(&on_the_port), Command::Stats(query), "{line:?}");
            return;
        }
        Ok(ControlRequest::Restart(Some(arguments))) => {
            let arguments: Vec<String> =
                arguments.into_iter().map(|word| word.into_string().expect("text")).collect();
            let list = serde_json::json!(arguments).to_string();
            let again = parse(&format!("RESTART {list}"));
            let expected = arguments.into_iter().map(Into::into).collect();
            assert_eq!(again, Some(ControlRequest::Restart(Some(expected))), "{line:?}");
            let sent = rest(line, "RESTART ").expect("the word").trim_ascii();
            assert!(sent.starts_with(b"[") && sent.ends_with(b"]"), "{line:?}");
            return;
        }
        Err(why) => {
            let why = why.to_string();
            assert!(!why.is_empty() && !why.contains('\n'), "{line:?}: {why:?}");
            return;
        }
    };
    assert_eq!(rest(line, word), Some(&b""[..]), "{line:?}");
}
