//! `rules` and `rule`: what the daemon decides instead of clients.

use super::control::{self, OrderOptions};
use super::output::print_error;
use super::status;
use std::process::ExitCode;

/// What is done about a rule.
#[derive(Debug, clap::Subcommand)]
pub(super) enum RuleAction {
    /// Replace the rule of this name, or put it in front of all others.
    Set {
        #[command(flatten)]
        order: OrderOptions,
        /// For a while, such as 90s, 30m, 12h or 7d; then the rule of the file returns.
        /// [default: until another order]
        #[arg(long = "for", value_name = "TIME")]
        lasts: Option<String>,
        /// A letter a to z, then letters, digits, _ or -.
        #[arg(value_name = "NAME")]
        name: String,
        /// Which keys; * stands for anything, \\xNN for a byte.
        #[arg(value_name = "PATTERN")]
        pattern: String,
        /// workers=N maxqueue=N timeout=N total=N max-hold=N stuck-after=N|never deny
        #[arg(value_name = "SETTINGS")]
        settings: Vec<String>,
    },
    /// Disable the rule of this name, also if it is in the file.
    Off {
        #[command(flatten)]
        order: OrderOptions,
        /// The rule.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Return to the rule of this name in the file, or to none.
    Reset {
        #[command(flatten)]
        order: OrderOptions,
        /// The rule.
        #[arg(value_name = "NAME")]
        name: String,
    },
}

impl RuleAction {
    pub(super) fn options(&self) -> &OrderOptions {
        match self {
            RuleAction::Set { order, .. }
            | RuleAction::Off { order, .. }
            | RuleAction::Reset { order, .. } => order,
        }
    }

    /// The order, in words.
    fn words(&self) -> Vec<&str> {
        match self {
            RuleAction::Set { lasts, name, pattern, settings, .. } => {
                let lasts = lasts.iter().flat_map(|time| ["FOR", time]);
                let head = ["SET", name].into_iter().chain(lasts).chain([pattern.as_str()]);
                head.chain(settings.iter().map(String::as_str)).collect()
            }
            RuleAction::Off { name, .. } => vec!["OFF", name],
            RuleAction::Reset { name, .. } => vec!["RESET", name],
        }
    }
}

/// Sends the order and prints the answer.
pub(super) fn rule(action: &RuleAction) -> ExitCode {
    let words = action.words();
    let is_odd = |word: &&&str| word.is_empty() || word.contains(char::is_whitespace);
    if let Some(odd) = words.iter().find(is_odd) {
        print_error(&format!("{odd:?} is not one word; write a space as \\x20"));
        return ExitCode::from(status::USAGE);
    }
    control::order(&format!("RULE {}", words.join(" ")), action.options())
}
