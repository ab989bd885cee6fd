//! The five characters that say what went wrong.

use std::fmt;

/// An SQLSTATE, such as `57P01` (an administrator ended the session). Source: field `C` of an ErrorResponse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SqlState([u8; 5]);

impl SqlState {
    /// `None` unless it is five ASCII digits or capital letters.
    pub fn new(code: &[u8]) -> Option<Self> {
        let code: [u8; 5] = code.try_into().ok()?;
        let legal = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
        code.iter().all(legal).then_some(Self(code))
    }

    /// The five characters.
    pub fn as_str(&self) -> &str {
        // Proved in `new`.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Of the beginning of an ErrorResponse's body: fields of a letter and a text that ends in NUL. Servers send `C`
    /// third, after the severity, in their language and in English.
    pub(super) fn of_error(body: &[u8]) -> Option<Self> {
        let mut fields = body.split(|byte| *byte == 0);
        let code = fields.find(|field| field.first() == Some(&b'C'))?;
        Self::new(&code[1..])
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqlState({})", self.as_str())
    }
}
