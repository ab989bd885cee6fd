//! From facts to numbers. Pure.
