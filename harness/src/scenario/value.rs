//! From a TOML value to a true one, or a flaw that names key, value, rule and way out.

use std::{fmt, ops::RangeInclusive, str::FromStr, time::Duration};

use toml::{Spanned, Value};

use super::{
    error::Flaw,
    nearest::{advice, listed},
};
use crate::rig::Unfit;

/// A value as it stands in the text, where it does.
pub(super) type Given = Option<Spanned<Value>>;

/// A key and what is given for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key<'w> {
    /// From the top, such as `load.rate`.
    pub(super) path: &'static str,
    pub(super) given: Option<&'w Spanned<Value>>,
}

/// Longest duration a scenario may ask for.
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 3600);

const UNITS_OF_TIME: [(&str, f64); 5] = [("ms", 1e-3), ("us", 1e-6), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
const UNITS_OF_SIZE: [(&str, f64); 5] =
    [("KiB", 1024.0), ("MiB", 1_048_576.0), ("kB", 1e3), ("MB", 1e6), ("B", 1.0)];

impl<'w> Key<'w> {
    /// That this value breaks a rule.
    pub(super) fn flaw(&self, rule: impl fmt::Display, help: impl Into<String>) -> Flaw {
        let (value, span) = self.given.map_or_else(
            || (String::from("(left out)"), 0..0),
            |given| (shown(given.get_ref()), given.span()),
        );
        Flaw::new(span, format!("`{} = {value}`: {rule}", self.path), help)
    }
    /// A whole number of `range`.
    pub(super) fn whole<T>(&self, range: RangeInclusive<T>) -> Result<Option<T>, Flaw>
    where
        T: Copy + PartialOrd + fmt::Display + TryFrom<i64>,
    {
        let Some(given) = self.given else { return Ok(None) };
        let number = given.get_ref().as_integer().and_then(|number| T::try_from(number).ok());
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.flaw(
                format_args!("must be a whole number from {} to {}", range.start(), range.end()),
                format!("write a number of that range, such as `{} = {}`", self.path, range.start()),
            )),
        }
    }
    /// A number that `fits`.
    pub(super) fn number(&self, fits: fn(f64) -> bool, rule: &str, help: &str) -> Result<Option<f64>, Flaw> {
        let Some(given) = self.given else { return Ok(None) };
        match as_number(given.get_ref()).filter(|number| fits(*number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.flaw(rule, help)),
        }
    }
    /// `"67ms"`, of `range`.
    pub(super) fn duration(&self, range: RangeInclusive<Duration>) -> Result<Option<Duration>, Flaw> {
        const HELP: &str =
            "write it in quotes with its unit, one of us, ms, s, m and h: \"67ms\", \"1.5s\", \"2m\"";
        let Some(given) = self.given else { return Ok(None) };
        let seconds = given.get_ref().as_str().and_then(|text| with_unit(text, &UNITS_OF_TIME));
        let Some(duration) = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) else {
            return Err(self.flaw("must be a duration with its unit", HELP));
        };
        if range.contains(&duration) {
            return Ok(Some(duration));
        }
        let (least, most) = (duration_text(*range.start()), duration_text(*range.end()));
        Err(self.flaw(
            format_args!("must be a duration from {least} to {most}"),
            format!("write one of that range, such as `{} = \"{least}\"`", self.path),
        ))
    }
    /// `"340B"`, of `range`.
    pub(super) fn size(&self, range: RangeInclusive<u32>) -> Result<Option<u32>, Flaw> {
        let Some(given) = self.given else { return Ok(None) };
        let bytes = given.get_ref().as_str().and_then(|text| with_unit(text, &UNITS_OF_SIZE));
        match bytes {
            None => Err(self.flaw(
                "must be a size with its unit",
                "write it in quotes with its unit, one of B, kB, KiB, MB and MiB: \"340B\", \"4KiB\"",
            )),
            Some(bytes) if bytes.fract() == 0.0 && range.contains(&(bytes as u32)) => Ok(Some(bytes as u32)),
            Some(_) => Err(self.flaw(
                format_args!(
                    "must be a size from {}B to {}KiB, in whole bytes",
                    range.start(),
                    range.end() / 1024
                ),
                format!("write one of that range, such as `{} = \"340B\"`", self.path),
            )),
        }
    }
    /// `"5%"` or 0.05.
    pub(super) fn share(&self) -> Result<Option<f64>, Flaw> {
        let Some(given) = self.given else { return Ok(None) };
        let value = given.get_ref();
        let share = match value.as_str() {
            Some(text) => with_unit(text, &[("%", 0.01)]),
            None => as_number(value),
        };
        match share.filter(|share| (0.0..=1.0).contains(share)) {
            Some(share) => Ok(Some(share)),
            None => Err(self.flaw(
                "must be a share from 0% to 100%",
                "write it as a number from 0 to 1 or in quotes with a percent sign: 0.05, \"5%\"",
            )),
        }
    }
    /// `true` or `false`.
    pub(super) fn flag(&self) -> Result<Option<bool>, Flaw> {
        let Some(given) = self.given else { return Ok(None) };
        match given.get_ref().as_bool() {
            Some(flag) => Ok(Some(flag)),
            None => Err(self.flaw("must be true or false", "write it without quotes")),
        }
    }
    /// Text in quotes.
    pub(super) fn text(&self) -> Result<Option<&'w str>, Flaw> {
        let Some(given) = self.given else { return Ok(None) };
        match given.get_ref().as_str() {
            Some(text) if text.chars().any(char::is_control) => {
                // A terminal would obey them.
                Err(self.flaw("must be one line without control characters", "take them out"))
            }
            Some(text) => Ok(Some(text)),
            None => Err(self.flaw("must be text", "write it in quotes")),
        }
    }
    /// What reads itself from text, and says how it is written when it cannot. A number counts as its text.
    pub(super) fn parsed<T: FromStr<Err = Unfit>>(&self) -> Result<Option<T>, Flaw> {
        let text = match self.given.map(Spanned::get_ref) {
            Some(value @ (Value::Integer(_) | Value::Float(_))) => value.to_string(),
            _ => match self.text()? {
                Some(text) => text.to_owned(),
                None => return Ok(None),
            },
        };
        text.parse().map(Some).map_err(|unfit: Unfit| self.flaw(unfit.rule, unfit.help))
    }
    /// One of `words`.
    pub(super) fn word<T: Copy>(&self, words: &[(&'static str, T)]) -> Result<Option<T>, Flaw> {
        let Some(text) = self.text()? else { return Ok(None) };
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, meaning)) => Ok(Some(*meaning)),
            None => {
                let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                let rule = format!("must be one of {}", listed(&known));
                Err(self.flaw(rule, advice(text, known.iter().copied())))
            }
        }
    }
}

/// Shortest exact form, as scenarios write it: `67ms`, `5s`. Exact to the microsecond.
pub(crate) fn duration_text(duration: Duration) -> String {
    const UNITS: [(u128, &str); 4] =
        [(3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")];
    match duration.as_micros() {
        0 => String::from("0ms"),
        micros => match UNITS.iter().find(|(worth, _)| micros.is_multiple_of(*worth)) {
            Some((worth, unit)) => format!("{}{unit}", micros / worth),
            None => format!("{micros}us"),
        },
    }
}

fn as_number(value: &Value) -> Option<f64> {
    value
        .as_float()
        .or_else(|| value.as_integer().map(|number| number as f64))
        .filter(|number| number.is_finite())
}

/// `1.5s` with its unit's worth; `None` without a unit or a plain decimal number before it.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, worth) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<f64>().ok().map(|number| number * worth)
}

/// The value as the text has it, cut to a line.
fn shown(value: &Value) -> String {
    const MOST: usize = 60;
    let text = value.to_string().replace('\n', " ");
    if text.chars().count() <= MOST { text } else { text.chars().take(MOST).chain(['\u{2026}']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(given: &Spanned<Value>) -> Key<'_> {
        Key { path: "load.warm_up", given: Some(given) }
    }
    fn of(value: impl Into<Value>) -> Spanned<Value> {
        Spanned::new(0..0, value.into())
    }

    #[test]
    fn durations_have_units_and_are_exact() {
        let all = Duration::ZERO..=LONGEST;
        for (text, micros) in [
            ("67ms", 67_000),
            ("5s", 5_000_000),
            ("2m", 120_000_000),
            ("1.5s", 1_500_000),
            ("0ms", 0),
            ("150us", 150),
        ] {
            let given = of(text);
            let duration = key_of(&given).duration(all.clone()).expect("valid").expect("given");
            assert_eq!(duration, Duration::from_micros(micros), "{text}");
        }
        for wrong in ["67", "ms", "", "-5s", "5 parsecs", "1e3s", "inf s", "25h", "1.2.3s"] {
            assert!(key_of(&of(wrong)).duration(all.clone()).is_err(), "{wrong}");
        }
        assert!(key_of(&of(67)).duration(all).is_err());
    }

    #[test]
    fn sizes_and_shares() {
        assert_eq!(key_of(&of("4KiB")).size(2..=1 << 20), Ok(Some(4096)));
        assert_eq!(key_of(&of("1MiB")).size(2..=1 << 20), Ok(Some(1 << 20)));
        for wrong in ["1B", "2MiB", "340", "1.5B", "99999999999MiB"] {
            assert!(key_of(&of(wrong)).size(2..=1 << 20).is_err(), "{wrong}");
        }
        assert_eq!(key_of(&of("5%")).share(), Ok(Some(0.05)));
        assert_eq!(key_of(&of(0.25)).share(), Ok(Some(0.25)));
        assert_eq!(key_of(&of(1)).share(), Ok(Some(1.0)));
        for wrong in [of("105%"), of("5"), of(-0.1), of(5)] {
            assert!(key_of(&wrong).share().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn durations_are_written_as_scenarios_write_them() {
        for text in ["67ms", "5s", "2m", "24h", "150us", "0ms"] {
            let duration =
                key_of(&of(text)).duration(Duration::ZERO..=LONGEST).expect("valid").expect("given");
            assert_eq!(duration_text(duration), text);
        }
    }
}
