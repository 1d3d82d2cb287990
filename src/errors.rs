//! Declares errors, each variant once and with its words.

/// An error, as an enum: `Variant(field: Type, ...) = "words, with {field}";`.
macro_rules! errors {
    ($(#[$meta:meta])* $visibility:vis enum $name:ident {
        $($(#[$doc:meta])* $variant:ident $(($($field:ident: $type:ty),+))? =
            $words:literal $(, $value:expr)*;)+
    }) => {
        $(#[$meta])*
        #[derive(Debug)]
        $visibility enum $name {
            $($(#[$doc])* $variant $(($($type),+))?,)+
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $($name::$variant $(($($field),+))? => write!(f, $words $(, $value)*),)+
                }
            }
        }
    };
}
