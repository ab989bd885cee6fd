//! Everything that watches a database from outside, against a real one: the sampler, the inspector, `watch`.

mod database;
mod inspector;
mod sessions;
mod watch;
