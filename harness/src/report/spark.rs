//! A series in one line of text.

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// At most so many characters; a longer series is told by the largest of each run of seconds.
const LONGEST: usize = 60;

/// The values from 0 to the largest. A second without a value is a blank.
pub(super) fn spark(values: &[Option<f64>]) -> String {
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    let run = values.len().div_ceil(LONGEST).max(1);
    values
        .chunks(run)
        .map(|seconds| {
            let Some(value) = seconds.iter().flatten().copied().reduce(f64::max) else { return ' ' };
            if most <= 0.0 {
                return BARS[0];
            }
            let rise = (value / most * 7.0).round().clamp(0.0, 7.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 7")]
            let step = rise as usize;
            BARS[step]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, spark};

    #[test]
    fn the_largest_is_the_highest_and_gaps_are_blank() {
        assert_eq!(spark(&[Some(0.0), Some(3.5), None, Some(7.0)]), "▁▅ █");
        assert_eq!(spark(&[Some(0.0), Some(0.0)]), "▁▁");
        assert_eq!(spark(&[]), "");
    }

    #[test]
    fn a_long_series_keeps_its_peaks() {
        let mut values = vec![Some(0.0); 1_000];
        values[777] = Some(9.0);
        let text = spark(&values);
        assert!(text.chars().count() <= LONGEST);
        assert_eq!(text.matches('█').count(), 1);
    }
}
