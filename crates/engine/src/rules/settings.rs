//! The settings of rules, one table: how each is written, read and printed, and what it does to
//! answers. How it does that, `Rules` and `enforcement` say. The error of a text that is no rule.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::{self, Display};
use core::num::{IntErrorKind, NonZeroU32, ParseIntError};
use core::time::Duration;
use protocol::{seconds_from_text, time_text};

/// Why a text is no rule, or a file has no rules, in words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError(String);

impl<T: Into<String>> From<T> for RuleError {
    fn from(why: T) -> Self {
        RuleError(why.into())
    }
}

impl Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for RuleError {}

/// A setting of rules.
#[derive(Debug)]
pub struct Setting {
    /// How it is written: `workers=N`, or `deny` without a value.
    pub form: &'static str,
    /// What it does to answers.
    pub effect: Effect,
    /// Whether these settings have it.
    pub(super) is_in: fn(&RuleSettings) -> bool,
    /// Adds it with this value; returns whether it was there already.
    read: fn(&mut RuleSettings, &str) -> Result<bool, &'static str>,
    /// Its value as text.
    value: fn(&RuleSettings) -> Option<String>,
}

/// What a setting does to answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It limits requests, waits or holds.
    Limits,
    /// It refuses every request. Reports show it apart from limits.
    Denies,
    /// It changes no answer.
    Nothing,
}

macro_rules! settings {
    ($(
        $(#[doc = $doc:literal])*
        $field:ident: $type:ty, $form:literal, $read:expr, $text:expr, $effect:ident;
    )*) => {
        /// A rule's settings. A missing one comes from the next rule that matches.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct RuleSettings {
            $($(#[doc = $doc])* pub $field: Option<$type>,)*
        }

        /// All settings, in the order in which they are printed.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            form: $form,
            effect: Effect::$effect,
            is_in: |settings| settings.$field.is_some(),
            read: |settings, value| Ok(settings.$field.replace($read(value)?).is_some()),
            value: |settings| settings.$field.as_ref().map($text),
        },)*];

        const FORMS: &str = concat!($(" ", $form),*);
    };
}

settings! {
    /// The most holders of each key.
    workers: NonZeroU32, "workers=N", number, ToString::to_string, Limits;
    /// Instead of the client's number.
    max_queue: NonZeroU32, "maxqueue=N", number, ToString::to_string, Limits;
    /// The longest wait, in seconds.
    timeout_s: NonZeroU32, "timeout=TIME", seconds, seconds_text, Limits;
    /// The most holders of all keys together.
    total: NonZeroU32, "total=N", number, ToString::to_string, Limits;
    /// How long a lock may be held, in seconds.
    max_hold_s: NonZeroU32, "max-hold=TIME", seconds, seconds_text, Limits;
    /// When a lock that is still held counts as stuck.
    stuck_after: StuckAfter, "stuck-after=TIME|never", StuckAfter::read, StuckAfter::text, Nothing;
    /// Every request is refused.
    denies: (), "deny", |_| Ok(()), |_| String::new(), Denies;
}

/// When a lock that is still held counts as stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StuckAfter {
    /// After this many seconds.
    Seconds(NonZeroU32),
    /// Not at all.
    Never,
}

impl StuckAfter {
    fn read(text: &str) -> Result<Self, &'static str> {
        if text == "never" { Ok(StuckAfter::Never) } else { seconds(text).map(StuckAfter::Seconds) }
    }

    fn text(&self) -> String {
        match self {
            StuckAfter::Seconds(after) => seconds_text(after),
            StuckAfter::Never => "never".to_owned(),
        }
    }
}

/// The name in a setting or its form, and the value if there is one.
fn parts(word: &str) -> (&str, Option<&str>) {
    word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)))
}

/// Whether a word is written as a setting, be its value valid or not.
pub(super) fn is_setting(word: &str) -> bool {
    let (name, value) = parts(word);
    let mut forms = SETTINGS.iter().map(|setting| parts(setting.form));
    forms.any(|(known, form)| known == name && form.is_some() == value.is_some())
}

impl RuleSettings {
    /// Each as operators write it.
    pub fn words(&self) -> impl Iterator<Item = (&'static Setting, String)> {
        let word = |setting: &Setting, value: String| match parts(setting.form) {
            (name, Some(_)) => format!("{name}={value}"),
            (name, None) => name.to_owned(),
        };
        SETTINGS.iter().filter_map(move |it| Some((it, word(it, (it.value)(self)?))))
    }

    pub(super) fn add(&mut self, word: &str) -> Result<(), RuleError> {
        let (name, value) = parts(word);
        let why = match SETTINGS.iter().find(|setting| parts(setting.form).0 == name) {
            Some(setting) if is_setting(word) => {
                match (setting.read)(self, value.unwrap_or_default()) {
                    Ok(false) => return Ok(()),
                    Ok(true) => format!("{name} stands there twice"),
                    Err(why) => format!("{word}: the value is {why}"),
                }
            }
            Some(_) if value.is_none() => format!("{name} needs a value, as in {name}=5"),
            _ => format!("{word:?} is not a setting; these are:{FORMS}"),
        };
        Err(why.into())
    }
}

impl Display for RuleSettings {
    /// Each with a space before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words().try_for_each(|(_, word)| write!(f, " {word}"))
    }
}

/// Digits only: `FromStr` also accepts a sign.
fn number(text: &str) -> Result<NonZeroU32, &'static str> {
    let digits = if text.bytes().all(|b| b.is_ascii_digit()) { text } else { "" };
    digits.parse().map_err(|e: ParseIntError| match e.kind() {
        IntErrorKind::PosOverflow => "more than 4294967295",
        _ => "not a whole number over 0",
    })
}

/// Reads how long something about a rule lasts, in whole seconds.
///
/// # Errors
/// Why it is no such time.
pub fn seconds(text: &str) -> Result<NonZeroU32, &'static str> {
    let seconds = u32::try_from(seconds_from_text(text)?).map_err(|_| "more than 4294967295 s")?;
    NonZeroU32::new(seconds).ok_or("not over 0")
}

/// Seconds as [`seconds`] reads them.
fn seconds_text(seconds: &NonZeroU32) -> String {
    time_text(Duration::from_secs(seconds.get().into()))
}
