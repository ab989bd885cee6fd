//! The accounting: what became of every event.
