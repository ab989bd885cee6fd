//! Times as histograms: microseconds, three significant digits.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{Deserializer, Serializer as _, V2DeflateSerializer},
};

/// Longer times are recorded as this, 24 hours, and counted as saturated.
pub const HIGHEST_US: u64 = 24 * 3_600 * 1_000_000;

/// Times of one kind, all services together and each on its own.
#[derive(Debug, Clone)]
pub struct Distribution {
    /// All services together.
    pub merged: Histogram<u64>,
    /// The same as in a record: HdrHistogram V2, compressed, base64.
    pub encoded: String,
    /// Each service that has a value, by name, encoded.
    pub services: BTreeMap<String, String>,
    /// Highest p99 of a service, microseconds.
    pub worst_p99_us: u64,
    /// Times above [`HIGHEST_US`].
    pub saturated: u64,
}

/// A histogram that cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a histogram cannot be {doing}: {why}; it must be an HdrHistogram V2, compressed, in base64")]
pub struct HistogramError {
    doing: &'static str,
    why: String,
}

/// Records the times of one kind, service after service, and keeps one histogram of counts at a time.
pub(super) struct Recorder {
    merged: Histogram<u64>,
    service: Histogram<u64>,
    services: BTreeMap<String, String>,
    worst_p99_us: u64,
    saturated: u64,
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self { merged: empty(), service: empty(), services: BTreeMap::new(), worst_p99_us: 0, saturated: 0 }
    }

    pub(super) fn record_ns(&mut self, ns: u64) {
        self.record_us(ns.saturating_add(500) / 1_000);
    }

    pub(super) fn record_us(&mut self, us: u64) {
        let beyond = us > HIGHEST_US;
        let refused = self.service.record(us.min(HIGHEST_US)).is_err();
        self.saturated += u64::from(beyond || refused);
    }

    /// Ends a service.
    pub(super) fn close_service(&mut self, name: &str) -> Result<(), HistogramError> {
        if self.service.is_empty() {
            return Ok(());
        }
        self.services.insert(name.to_owned(), encode(&self.service)?);
        self.worst_p99_us = self.worst_p99_us.max(self.service.value_at_quantile(0.99));
        self.merged
            .add(&self.service)
            .map_err(|why| HistogramError { doing: "added", why: why.to_string() })?;
        self.service.reset();
        Ok(())
    }

    /// What was recorded; `None` when nothing was.
    pub(super) fn finish(self) -> Result<Option<Distribution>, HistogramError> {
        if self.merged.is_empty() {
            return Ok(None);
        }
        Ok(Some(Distribution {
            encoded: encode(&self.merged)?,
            merged: self.merged,
            services: self.services,
            worst_p99_us: self.worst_p99_us,
            saturated: self.saturated,
        }))
    }
}

/// Grows with what is recorded, up to [`HIGHEST_US`]: 19 services of ten kinds would take 40 MB at full length.
fn empty() -> Histogram<u64> {
    Histogram::new(3).expect("three significant digits are within the format's one to five")
}

fn encode(histogram: &Histogram<u64>) -> Result<String, HistogramError> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .map_err(|why| HistogramError { doing: "written", why: why.to_string() })?;
    Ok(STANDARD.encode(bytes))
}

/// Reads a histogram of a record.
///
/// # Errors
/// When the text is not an HdrHistogram V2, compressed, in base64.
pub fn decode(text: &str) -> Result<Histogram<u64>, HistogramError> {
    let unreadable = |why: String| HistogramError { doing: "read", why };
    let bytes = STANDARD.decode(text).map_err(|why| unreadable(why.to_string()))?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|why| unreadable(why.to_string()))
}
