//! Format of one value in the state file, and the macro that makes a struct out of a table of keys.

use std::fmt::Display;

/// A value that a person can write behind a key.
pub trait Value: Sized {
    /// Reads the rest of a line; the error names what was expected.
    ///
    /// # Errors
    /// The text does not have the expected form.
    fn parse(text: &str) -> Result<Self, String>;

    /// The text that [`Value::parse`] reads back.
    fn render(&self) -> String;
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl Value for $ty {
            fn parse(text: &str) -> Result<Self, String> {
                let parsed = match text.strip_prefix("0x") {
                    Some(digits) => <$ty>::from_str_radix(digits, 16),
                    None => text.parse(),
                };
                parsed.map_err(|error| format!("a {} (decimal, or hexadecimal after 0x): {error}", stringify!($ty)))
            }

            fn render(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
integers!(u8, i32, u32, u64);

impl Value for String {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn render(&self) -> String {
        self.clone()
    }
}

impl Value for bool {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err("true or false".into()),
        }
    }

    fn render(&self) -> String {
        self.to_string()
    }
}

/// `unsupported` makes the functions behind the key return `NVML_ERROR_NOT_SUPPORTED`.
impl<T: Value> Value for Option<T> {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "unsupported" {
            Ok(None)
        } else {
            T::parse(text).map(Some)
        }
    }

    fn render(&self) -> String {
        self.as_ref()
            .map_or_else(|| "unsupported".into(), T::render)
    }
}

/// Values separated by spaces; fewer than `N` leave the rest at zero.
impl<T: Value + Copy + Default + Display, const N: usize> Value for [T; N] {
    fn parse(text: &str) -> Result<Self, String> {
        let mut values = [T::default(); N];
        let mut slots = values.iter_mut();
        for word in text.split_whitespace() {
            *slots.next().ok_or_else(|| format!("at most {N} values"))? = T::parse(word)?;
        }
        Ok(values)
    }

    fn render(&self) -> String {
        self.map(|value| value.to_string()).join(" ")
    }
}

/// Defines a struct whose public fields are the keys of the state file, with their default values.
///
/// Fields behind `beside` are not keys: the parser handles their lines itself. The caller has [`Value`] in scope.
macro_rules! keyed_struct {
    (
        $(#[$meta:meta])*
        $name:ident { $( $(#[$key_meta:meta])* $key:ident : $ty:ty = $default:expr, )* }
        beside { $( $(#[$other_meta:meta])* $other:ident : $other_ty:ty, )* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub struct $name {
            $( $(#[$key_meta])* pub $key: $ty, )*
            $( $(#[$other_meta])* pub $other: $other_ty, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $key: $default, )* $( $other: Default::default(), )* }
            }
        }

        impl $name {
            /// Every key, in the order of the table.
            pub const KEYS: &[&str] = &[$( stringify!($key) ),*];

            pub(super) fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
                match key {
                    $( stringify!($key) => self.$key = <$ty as Value>::parse(text)?, )*
                    _ => return Err(concat!("a key of ", stringify!($name)).into()),
                }
                Ok(())
            }

            /// The keys that differ from `base`, as the file spells them.
            pub(super) fn changed(&self, base: &Self) -> Vec<(&'static str, String)> {
                let mut changed = Vec::new();
                $( if self.$key != base.$key {
                    changed.push((stringify!($key), Value::render(&self.$key)));
                } )*
                changed
            }
        }
    };
}
pub(super) use keyed_struct;
