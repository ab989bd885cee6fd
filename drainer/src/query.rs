//! The statements. One a file under `queries/`, read as SQL; here they only get their names.

/// What follows the header: the leading `--` lines and blank lines of a statement's file say why it is as it is
/// and are not sent. `pg_stat_activity.query` stops at 1 kB, so the phase tag must be what arrives first.
pub(crate) const fn body(file: &'static str) -> &'static str {
    let mut rest = file.as_bytes();
    loop {
        match rest {
            [b'-', b'-', ..] => rest = after_line(rest),
            [b'\n', after @ ..] => rest = after,
            [.., b'\n'] => rest = rest.split_at(rest.len() - 1).0,
            _ => break,
        }
    }
    assert!(
        matches!(rest, [b'/', b'*', b' ', ..]),
        "a statement starts with the comment that names its phase"
    );
    match std::str::from_utf8(rest) {
        Ok(text) => text,
        Err(_) => panic!("cut at line ends, so still UTF-8"),
    }
}

const fn after_line(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = after;
        if *first == b'\n' {
            break;
        }
    }
    rest
}

/// The body of `queries/<path>.sql`, known at compile time.
macro_rules! query {
    ($path:literal) => {
        const { crate::query::body(include_str!(concat!("../queries/", $path, ".sql"))) }
    };
}
pub(crate) use query;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_not_sent() {
        assert_eq!(
            body("-- why\n-- and how -- twice\n\n/* drainer:mark */ SELECT 1 -- kept\n"),
            "/* drainer:mark */ SELECT 1 -- kept"
        );
    }

    /// Every file, also one that nothing sends yet.
    #[test]
    fn every_statement_says_why_and_names_its_phase() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("queries");
        let mut seen = 0;
        for design in std::fs::read_dir(folder).unwrap() {
            for file in std::fs::read_dir(design.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                let text: &'static str = std::fs::read_to_string(&path).unwrap().leak();
                assert!(text.starts_with("-- "), "{} has no header", path.display());
                let sent = body(text);
                let known = ["drainer:", "outbox:enqueue"];
                assert!(
                    known.iter().any(|tag| sent.starts_with(&format!("/* {tag}"))),
                    "{} starts with {sent}",
                    path.display()
                );
                seen += 1;
            }
        }
        assert!(seen >= 14, "only {seen} statements found");
    }
}
