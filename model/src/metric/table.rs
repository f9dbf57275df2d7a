//! The form of a table of the catalogue and of its rows.

/// Turns rows into one `static` each and the table of them; `after` names the preceding table.
macro_rules! catalogue {
    (after $before:ident; $($rows:tt)+) => {
        catalogue! { @rows super::$before::END; $($rows)+ }
    };
    (first; $($rows:tt)+) => {
        catalogue! { @rows 0; $($rows)+ }
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
    (@rows $first:expr; $($writer:ident $profile:ident $kind:ident $id:ident = $name:literal $([$unit:literal])? ($($label:ident),*) $help:literal;)+) => {
        #[allow(clippy::upper_case_acronyms, non_camel_case_types)]
        #[repr(u16)]
        enum Index { $($id),+ }
        $(
            #[doc = $help]
            pub static $id: $crate::metric::Metric = $crate::metric::Metric {
                index: $first + Index::$id as u16,
                name: $name,
                kind: $crate::metric::Kind::$kind,
                unit: catalogue!(@unit $($unit)?),
                labels: &[$(stringify!($label)),*],
                profile: $crate::metric::Profile::$profile,
                writer: $crate::metric::Writer::$writer,
                help: $help,
            };
        )+
        pub(super) const ROWS: &[&$crate::metric::Metric] = &[$(&$id),+];
        /// Place in the catalogue of the first row after this table.
        pub(super) const END: u16 = $first + ROWS.len() as u16;
    };
}
