//! "Did you mean": the names nearest to one that does not exist.

/// Names at least this alike are worth offering (Jaro-Winkler, 0 to 1): `lagg` and `lag` are, `rate` and `keys` not.
const ALIKE: f64 = 0.75;

/// At most `most` of `known`, the most alike first; ties in the order of `known`.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let mut scored: Vec<(f64, &str)> = known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(score, _)| *score >= ALIKE)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(most).map(|(_, name)| name).collect()
}

/// `a`, `b` and `c` in backticks, for a sentence.
pub(crate) fn listed<S: AsRef<str>>(names: &[S]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{}`", name.as_ref())).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// "the nearest is `a`" or "the nearest are `a` and `b`", or else every name there is.
pub(crate) fn advice<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    let near = nearest(word, known.clone(), 3);
    match near.len() {
        0 => format!("there is {}", listed(&known.into_iter().collect::<Vec<_>>())),
        1 => format!("the nearest is {}", listed(&near)),
        _ => format!("the nearest are {}", listed(&near)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_alike_comes_first_and_strangers_never() {
        let known = ["rate", "arrivals", "payload", "keys", "key_skew"];
        assert_eq!(nearest("rat", known, 3), ["rate"]);
        assert_eq!(nearest("key", known, 3), ["keys", "key_skew"]);
        assert!(nearest("xyzzy", known, 3).is_empty());
    }

    #[test]
    fn advice_falls_back_to_everything() {
        assert_eq!(advice("leese", ["lease", "raw"]), "the nearest is `lease`");
        assert_eq!(advice("zzz", ["lease", "raw", "none"]), "there is `lease`, `raw` and `none`");
    }
}
