//! Each line is a request to the control socket: it is understood or refused in
//! one line, and a command line that is understood is the one that was sent.

use poolcounterd::server::{ControlRequest, parse_control_request};

/// # Panics
/// When a request is understood as something else than what it says.
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
        Ok(ControlRequest::Undrain) => "UNDRAIN",
        Ok(ControlRequest::Restart(None)) => "RESTART",
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
