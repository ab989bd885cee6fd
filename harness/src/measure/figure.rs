//! Numbers as people read them.

use crate::metric::{Metric, Unit};

/// A metric's value with its unit: `6,775 ms`, `5.2 ms`, `24,372`, `4.0 %`.
#[must_use]
pub fn figure(metric: Metric, value: f64) -> String {
    match metric.unit() {
        Unit::Milliseconds => format!("{} ms", number(value)),
        Unit::Bytes => format!("{} B", number(value)),
        Unit::PerSecond => format!("{}/s", number(value)),
        Unit::Share => format!("{} %", number(value * 100.0)),
        Unit::Cores => format!("{} cores", number(value)),
        Unit::Count | Unit::Sessions | Unit::PerEvent => number(value),
    }
}

/// A number with as many digits as are worth reading: whole numbers whole, below 100 three significant digits,
/// thousands apart.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 || value.fract() == 0.0 {
        return grouped(value);
    }
    let digits = if size >= 10.0 {
        1
    } else if size >= 0.1 {
        2
    } else {
        3
    };
    let text = format!("{value:.digits$}");
    // 0.0001 is not nothing.
    if text.bytes().all(|byte| matches!(byte, b'0' | b'.' | b'-')) { format!("{value:.1e}") } else { text }
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    if value < 0.0 && digits != "0" {
        text.push('-');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_the_digits_that_are_worth_reading() {
        let cases = [
            (0.0, "0"),
            (-0.0, "0"),
            (50.0, "50"),
            (5.234, "5.23"),
            (0.05, "0.050"),
            (0.00002, "2.0e-5"),
            (22.17, "22.2"),
            (103.4, "103"),
            (6_774.9, "6,775"),
            (1_234_567.0, "1,234,567"),
            (-1_234.0, "-1,234"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }
}
