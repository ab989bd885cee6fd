//! How long a drainer takes to be itself again once a fault has healed, and whether it is.

use super::{Measurements, count, drain::Flow, ms};
use crate::{
    history::{FaultSpan, History},
    scenario::Cell,
};

/// Before a fault, to know how large the backlog is without it.
const BEFORE_NS: u64 = 2_000_000_000;
/// Shortest span of which a rate is taken.
const RATE_NS: u64 = 1_000_000_000;

const NAMES: [&str; 2] = ["recovery.time", "recovery.rate_share"];

pub(super) fn measure(found: &mut Measurements, history: &History, cell: &Cell, flow: &Flow) {
    if !cell.design.drains() {
        found.miss_all(&NAMES, "nobody drains in this cell");
        return;
    }
    let hits: Vec<&FaultSpan> = history.faults.iter().filter(|span| span.hit).collect();
    let Some(first) = hits.first() else {
        found.miss_all(&NAMES, "no fault was injected, or none hit");
        return;
    };
    let end = super::drain::last_instant(history);
    let back: Vec<u64> =
        hits.iter().map(|span| recovered(flow, span).unwrap_or(end).max(span.healed_ns)).collect();
    let longest = hits.iter().zip(&back).map(|(span, back)| back - span.healed_ns).max();
    found.set("recovery.time", ms(longest.unwrap_or(0)));

    let earlier = history.window_ns.start..first.began_ns.min(history.window_ns.end);
    let after = afterwards(&hits, &back, history.window_ns.end);
    let share = rate(flow, &earlier).zip(rate(flow, &after)).map(|(earlier, after)| after / earlier);
    found.set_or(
        "recovery.rate_share",
        share.filter(|share| share.is_finite()),
        "it takes a second of the window before the first fault and one after the last recovery",
    );
}

/// From the last recovery to the window's end. Where that comes too late to take a rate, or never, the window's last second:
/// a drainer that is not back by then has the rate it has.
fn afterwards(hits: &[&FaultSpan], back: &[u64], window_end: u64) -> std::ops::Range<u64> {
    let last_second = window_end.saturating_sub(RATE_NS);
    let recovered = back.iter().copied().max().unwrap_or(window_end);
    let healed = hits.iter().map(|span| span.healed_ns).max().unwrap_or(window_end);
    let start = if healed <= last_second { recovered.min(last_second) } else { recovered };
    start..window_end
}

/// When the backlog was first as small again as it had been shortly before; `None`: never.
fn recovered(flow: &Flow, span: &FaultSpan) -> Option<u64> {
    let from = span.began_ns.saturating_sub(BEFORE_NS);
    let commits = &flow.commits_ns;
    let shortly_before =
        commits.partition_point(|at| *at < from)..commits.partition_point(|at| *at <= span.began_ns);
    let before = commits[shortly_before].iter().map(|at| flow.backlog(*at)).max().unwrap_or(0);
    if flow.backlog(span.healed_ns) <= before {
        return Some(span.healed_ns);
    }
    // It only shrinks when something arrives.
    let next = flow.arrivals_ns.partition_point(|at| *at <= span.healed_ns);
    flow.arrivals_ns[next..].iter().copied().find(|at| flow.backlog(*at) <= before)
}

/// Arrivals a second; `None` of a span that is too short.
fn rate(flow: &Flow, span: &std::ops::Range<u64>) -> Option<f64> {
    let length = span.end.checked_sub(span.start).filter(|length| *length >= RATE_NS)?;
    let until = |instant| flow.arrivals_ns.partition_point(|at| *at < instant);
    let arrivals = until(span.end) - until(span.start);
    Some(count(arrivals as u64) / (count(length) / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// An event every 10 ms, that arrives 5 ms later, but for those that are held up to `until`.
    fn flow(held: std::ops::Range<u64>, until: Option<u64>) -> Flow {
        let commits_ns: Vec<u64> = (0..1_000).map(|nth| nth * 10 * MS).collect();
        let arrive = |at: u64| if held.contains(&at) { until } else { Some(at + 5 * MS) };
        let mut arrivals_ns: Vec<u64> = commits_ns.iter().filter_map(|at| arrive(*at)).collect();
        arrivals_ns.sort_unstable();
        Flow::made_of(commits_ns, arrivals_ns)
    }

    fn span(began_ms: u64, healed_ms: u64) -> FaultSpan {
        FaultSpan {
            fault: 0,
            kind: "stall",
            target: "broker",
            began_ns: began_ms * MS,
            healed_ns: healed_ms * MS,
            hit: true,
            evidence: String::new(),
        }
    }

    #[test]
    fn it_has_recovered_when_the_backlog_is_as_small_as_before() {
        let held = 3_000 * MS..5_000 * MS;
        // 200 events wait from 3 s on, and all of them arrive at 5.6 s.
        let flow = flow(held.clone(), Some(5_600 * MS));
        assert_eq!(flow.backlog(2_999 * MS), 0);
        assert_eq!(flow.backlog(4_000 * MS), 101);
        assert_eq!(recovered(&flow, &span(3_000, 5_000)), Some(5_600 * MS));
        // A fault that nobody noticed.
        assert_eq!(recovered(&flow, &span(7_000, 8_000)), Some(8_000 * MS));
        let never = super::tests::flow(held, None);
        assert_eq!(recovered(&never, &span(3_000, 5_000)), None);
    }

    #[test]
    fn afterwards_is_after_the_recovery_or_the_last_second() {
        let strike = span(3_000, 5_000);
        let after = |back_ms: u64, end_ms: u64| {
            let span = afterwards(&[&strike], &[back_ms * MS], end_ms * MS);
            (span.start / MS, span.end / MS)
        };
        assert_eq!(after(6_000, 10_000), (6_000, 10_000));
        assert_eq!(after(9_500, 10_000), (9_000, 10_000));
        assert_eq!(after(30_000, 10_000), (9_000, 10_000));
        // Healed too late for anybody to be back.
        assert_eq!(after(5_900, 5_900), (5_900, 5_900));
    }

    #[test]
    fn a_rate_needs_a_second() {
        let flow = flow(0..0, None);
        assert_eq!(rate(&flow, &(1_000 * MS..1_900 * MS)), None);
        // A recovery after the window's end.
        let backward = std::ops::Range { start: 2_000 * MS, end: 1_000 * MS };
        assert_eq!(rate(&flow, &backward), None);
        assert_eq!(rate(&flow, &(1_000 * MS..3_000 * MS)), Some(100.0));
    }
}
