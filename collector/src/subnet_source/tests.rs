//! The subnet from files that change and programs that fail.
