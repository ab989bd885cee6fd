//! When a service's writes are due.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;

use super::draw;
use crate::scenario::{Arrivals, Load};

const SECOND_NS: f64 = 1e9;

/// The instants of one service, nanoseconds since the origin, ascending, up to the end of the window. Each is
/// computed from the start, not from the one before, so that nothing drifts.
///
/// Write k of service s is write k * services + s of the whole, so a part of the services has the same instants
/// as it has in the whole.
pub(super) fn due(seed: u64, load: &Load, service: u16) -> impl Iterator<Item = u64> + use<> {
    let end_ns = nanos(load.warm_up + load.duration);
    let services = f64::from(load.services);
    let mut next = Next::new(seed, load, service);
    let places = (0_u64..).map(move |k| k as f64 * services + f64::from(service));
    let ends = end_ns as f64;
    places
        .map_while(move |place| next.as_mut().map(|next| next.at_ns(place)))
        // Not `>=`: a falling ramp has no instant beyond its end, which is NaN.
        .take_while(move |at| *at < ends)
        .map(|at| at as u64)
        .take_while(move |at| *at < end_ns)
}

/// The formula of one kind of arrivals.
enum Next {
    Constant { rate: f64 },
    Poisson { rng: Box<ChaCha8Rng>, now: f64, mean_gap: f64 },
    Burst { rate: f64, every_ns: f64 },
    Ramp { from: f64, rate: f64, seconds: f64 },
}

impl Next {
    /// `None` without a rate.
    fn new(seed: u64, load: &Load, service: u16) -> Option<Self> {
        let rate = load.rate?;
        Some(match load.arrivals {
            Arrivals::Constant => Self::Constant { rate },
            Arrivals::Poisson => Self::Poisson {
                rng: Box::new(draw::generator(seed, draw::Purpose::Schedule, service)),
                now: 0.0,
                mean_gap: f64::from(load.services) / rate,
            },
            Arrivals::Burst { every } => Self::Burst { rate, every_ns: every.as_nanos() as f64 },
            Arrivals::Ramp { from } => {
                Self::Ramp { from, rate, seconds: (load.warm_up + load.duration).as_secs_f64() }
            }
        })
    }
    /// When write `place` of the whole is due. Poisson goes by its own sequence and ignores the place.
    fn at_ns(&mut self, place: f64) -> f64 {
        match self {
            Self::Constant { rate } => evenly_ns(place, *rate),
            Self::Poisson { rng, now, mean_gap } => {
                *now -= (1.0 - draw::next_unit(rng)).ln() * *mean_gap;
                *now * SECOND_NS
            }
            // All writes that would be due evenly within a period are due at its start.
            Self::Burst { rate, every_ns } => (evenly_ns(place, *rate) / *every_ns).floor() * *every_ns,
            // from*t + (rate-from)/(2*seconds)*t^2 = place, solved for t in the form that loses no digits at 0.
            Self::Ramp { from, rate, seconds } => {
                let root = (*from * *from + 2.0 * (*rate - *from) * place / *seconds).sqrt();
                if place == 0.0 { 0.0 } else { 2.0 * place / (*from + root) * SECOND_NS }
            }
        }
    }
}

/// Rounded to a whole nanosecond first, so that `burst` puts a write that is due exactly at a period's start there.
fn evenly_ns(place: f64, rate: f64) -> f64 {
    (place * SECOND_NS / rate).round()
}

/// Writes on average, whatever the seed.
pub(super) fn expected(load: &Load) -> f64 {
    let seconds = (load.warm_up + load.duration).as_secs_f64();
    let rate = load.rate.unwrap_or(0.0);
    match load.arrivals {
        Arrivals::Constant | Arrivals::Poisson => rate * seconds,
        // The last period's are all due at its start, also where it is longer than what is left.
        Arrivals::Burst { every } => rate * every.as_secs_f64() * (seconds / every.as_secs_f64()).ceil(),
        Arrivals::Ramp { from } => (from + rate) / 2.0 * seconds,
    }
}

/// Nanoseconds, saturating after 584 years.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
