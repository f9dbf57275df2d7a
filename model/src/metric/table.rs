//! The form of a row of the catalogue.

/// Turns rows into one `static` each and the table of them all.
macro_rules! catalogue {
    ($($(#[$group:meta])* $writer:ident $profile:ident $kind:ident $id:ident = $name:literal $([$unit:literal])? ($($label:ident),*) $help:literal;)+) => {
        #[allow(clippy::upper_case_acronyms, non_camel_case_types)]
        #[repr(u16)]
        enum Index { $($id),+ }
        $(
            #[doc = $help]
            pub static $id: $crate::metric::Metric = $crate::metric::Metric {
                index: Index::$id as u16,
                name: $name,
                kind: $crate::metric::Kind::$kind,
                unit: catalogue!(@unit $($unit)?),
                labels: &[$(stringify!($label)),*],
                profile: $crate::metric::Profile::$profile,
                writer: $crate::metric::Writer::$writer,
                help: $help,
            };
        )+
        /// Every metric that Railscope writes.
        pub static CATALOGUE: &[&$crate::metric::Metric] = &[$(&$id),+];
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
}
