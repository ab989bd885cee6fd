//! From numbers to a verdict. Pure.
