//! From a record to what people read. Pure.
