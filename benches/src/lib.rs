//! Only a place for the benches beside it.
