//! Sources: the only code that touches the machine.
