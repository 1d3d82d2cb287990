//! Each line is a request to the control socket. It is understood, or refused in one
//! line; a command line that is understood equals the one that was sent.

use poolcounterd::server::{ControlRequest, parse_control_request};

/// # Panics
/// When a request is understood as another one.
pub(crate) fn check(data: &[u8]) {
    for line in data.split(|&byte| byte == b'\n') {
        // As the daemon reads it.
        check_line(&String::from_utf8_lossy(line));
    }
}

fn check_line(line: &str) {
    let word = match parse_control_request(line) {
        Ok(ControlRequest::Help) => "HELP",
        Ok(ControlRequest::Drain) => "DRAIN",
        Ok(ControlRequest::Drained) => "DRAINED",
        Ok(ControlRequest::Undrain) => "UNDRAIN",
        Ok(ControlRequest::Restart(None)) => "RESTART",
        Ok(ControlRequest::Log(None)) => "LOG",
        Ok(ControlRequest::Log(Some(filter))) => {
            return assert_eq!(line.strip_prefix("LOG ").map(str::trim), Some(&*filter));
        }
        Ok(ControlRequest::MaxHold(None)) => "MAX-HOLD",
        Ok(ControlRequest::MaxHold(Some(limits))) if limits.is_empty() => {
            return assert_eq!(line.strip_prefix("MAX-HOLD ").map(str::trim), Some("none"));
        }
        Ok(ControlRequest::MaxHold(Some(limits))) => {
            let shown: Vec<String> = limits.iter().map(ToString::to_string).collect();
            let again = parse_control_request(&format!("MAX-HOLD {}", shown.join(" ")));
            assert_eq!(again, Ok(ControlRequest::MaxHold(Some(limits))), "{line:?}");
            return;
        }
        Ok(ControlRequest::Stats(query)) => {
            assert!(line.starts_with("STATS"), "{line:?}");
            let again = parse_control_request(&format!("STATS {}", query.words()));
            assert_eq!(again, Ok(ControlRequest::Stats(query)), "{line:?}");
            return;
        }
        Ok(ControlRequest::Restart(Some(arguments))) => {
            let arguments: Vec<String> =
                arguments.into_iter().map(|word| word.into_string().expect("text")).collect();
            let list = serde_json::json!(arguments).to_string();
            let again = parse_control_request(&format!("RESTART {list}"));
            let expected = arguments.into_iter().map(Into::into).collect();
            assert_eq!(again, Ok(ControlRequest::Restart(Some(expected))), "{line:?}");
            let sent = line.strip_prefix("RESTART ").expect("the word").trim();
            assert!(sent.starts_with('[') && sent.ends_with(']'), "{line:?}");
            return;
        }
        Err(why) => {
            assert!(!why.is_empty() && !why.contains('\n'), "{line:?}: {why:?}");
            return;
        }
    };
    assert_eq!(line.trim_end(), word, "{line:?}");
}
