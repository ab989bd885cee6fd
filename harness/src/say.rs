//! Lines for people. A terminal that went away, a closed pipe or a full disk must end no run: what cannot be said is not
//! said, where the standard macros would panic.

use std::{fmt, io::Write as _};

/// A line on standard error.
pub(crate) fn error(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A line on standard output.
pub(crate) fn output(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// As `eprintln!`, and never panics.
macro_rules! complain {
    ($($text:tt)*) => { $crate::say::error(format_args!($($text)*)) };
}

/// As `println!`, and never panics.
macro_rules! tell {
    ($($text:tt)*) => { $crate::say::output(format_args!($($text)*)) };
}

pub(crate) use {complain, tell};
