//! Sources: the only code that touches the machine.

pub mod nvml;
