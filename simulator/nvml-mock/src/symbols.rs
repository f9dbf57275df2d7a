//! Macros that export one NVML function per line.

/// `name(args...) -> T = |gpu| result;` exports `name(device, args..., T *out)`.
macro_rules! getters {
    ($( $(#[$meta:meta])* $name:ident ( $($arg:ident : $arg_ty:ty),* ) -> $out:ty = |$gpu:ident| $result:expr; )*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: $crate::ffi::Handle, $($arg: $arg_ty,)* out: *mut $out) -> $crate::ffi::Code {
            $crate::live::on_gpu(stringify!($name), device, |$gpu| {
                let result: Result<$out, $crate::ffi::Code> = $result;
                // SAFETY: NVML's contract: `out` is null or points to the type in the signature.
                unsafe { $crate::ffi::store(out, result?) }
            })
        }
    )*};
}
pub(crate) use getters;

/// `name -> (A, B) = |gpu| result;` exports `name(device, A *first, B *second)`.
macro_rules! pairs {
    ($( $(#[$meta:meta])* $name:ident -> ($first:ty, $second:ty) = |$gpu:ident| $result:expr; )*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            device: $crate::ffi::Handle,
            first: *mut $first,
            second: *mut $second,
        ) -> $crate::ffi::Code {
            $crate::live::on_gpu(stringify!($name), device, |$gpu| {
                let result: Result<($first, $second), $crate::ffi::Code> = $result;
                let values = result?;
                // SAFETY: NVML's contract: both are null or point to the types in the signature.
                unsafe { $crate::ffi::store(first, values.0).and_then(|()| $crate::ffi::store(second, values.1)) }
            })
        }
    )*};
}
pub(crate) use pairs;

/// `name = |gpu| text;` exports `name(device, char *out, length)`.
macro_rules! texts {
    ($( $(#[$meta:meta])* $name:ident = |$gpu:ident| $text:expr; )*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            device: $crate::ffi::Handle,
            out: *mut std::ffi::c_char,
            length: u32,
        ) -> $crate::ffi::Code {
            $crate::live::on_gpu(stringify!($name), device, |$gpu| {
                // SAFETY: NVML's contract: `out` is null or has `length` bytes.
                unsafe { $crate::ffi::store_text(out, length, $text) }
            })
        }
    )*};
}
pub(crate) use texts;
