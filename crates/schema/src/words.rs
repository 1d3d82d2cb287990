//! Members that have one of a few words. A later version may have more: any other one is kept.

use alloc::string::String;
use serde::{Deserialize, Serialize, Serializer};

/// Stands for each key and address that only operators may see.
pub const HIDDEN: &str = "hidden";

/// Declares enumerations, each variant with its word.
macro_rules! words {
    ($($(#[$about:meta])* $name:ident { $($variant:ident = $word:literal,)* })*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
        #[serde(from = "String")]
        pub enum $name {
            $(#[doc = concat!("`", $word, "`.")] $variant,)*
            /// Any other word; none, if the member is missing.
            Other(String),
        }

        impl $name {
            /// As reports spell it.
            pub fn word(&self) -> &str {
                match self {
                    $($name::$variant => $word,)*
                    $name::Other(word) => word,
                }
            }
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                match word.as_str() {
                    $($word => $name::$variant,)*
                    _ => $name::Other(word),
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                $name::Other(String::new())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }

        #[cfg(test)]
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> alloc::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                String::json_schema(generator)
            }
        }
    )*};
}

words! {
    /// What a request for a lock asks for.
    Kind { Me = "me", Anyone = "anyone", }

    /// What a client has of a lock.
    LockState { Holder = "holder", Waiter = "waiter", }

    /// What took long.
    SlowThing { Hold = "hold", Wait = "wait", }

    /// How a wait or a hold ended.
    Outcome {
        Locked = "locked", Done = "done", Timeout = "timeout", Cancelled = "cancelled",
        Released = "released", Disconnected = "disconnected", Expired = "expired",
    }

    /// Where a rule comes from.
    RuleOrigin { File = "file", Option = "option", Set = "set", Off = "off", Below = "below", }

    /// What happened to a daemon.
    Event {
        Start = "start", HotRestart = "hot restart", RestartRefused = "restart refused",
        Drain = "drain", Undrain = "undrain", Free = "free", Log = "log", Rule = "rule",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json, to_value};

    #[test]
    fn words_are_kept() {
        for (word, kind) in [
            ("me", Kind::Me),
            ("anyone", Kind::Anyone),
            ("of a later version", Kind::Other("of a later version".into())),
            ("", Kind::default()),
        ] {
            assert_eq!(to_value(&kind).expect("JSON"), json!(word));
            assert_eq!(from_value::<Kind>(json!(word)).expect("a word"), kind);
        }
    }
}
