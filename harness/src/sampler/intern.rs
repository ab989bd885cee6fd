//! Texts that rows point to.

use std::collections::HashMap;

/// A bounded set of texts, each with the place it was first given. What comes when it is full shares one entry.
#[derive(Debug)]
pub(crate) struct Interner {
    places: HashMap<Box<[u8]>, u32>,
    texts: Vec<String>,
    limit: usize,
    other: Option<u32>,
}

impl Interner {
    /// Takes `limit` texts, and one more entry for all others.
    pub(crate) fn new(limit: usize) -> Self {
        Self { places: HashMap::new(), texts: Vec::new(), limit, other: None }
    }

    /// Place of the text that `raw` becomes through `spell`. A known `raw` costs a lookup and no allocation; bytes
    /// that are no UTF-8 are replaced.
    pub(crate) fn place(&mut self, raw: &[u8], spell: fn(&str) -> &str) -> u32 {
        if let Some(place) = self.places.get(raw) {
            return *place;
        }
        if self.places.len() >= self.limit {
            return self.other();
        }
        let lossy = String::from_utf8_lossy(raw);
        // A text cut within a character ends before it.
        let text = spell(lossy.trim_end_matches(char::REPLACEMENT_CHARACTER));
        let known = self.texts.iter().position(|known| known == text);
        let place = match known.and_then(|known| u32::try_from(known).ok()) {
            Some(place) => place,
            None => Self::push(&mut self.texts, text),
        };
        self.places.insert(raw.into(), place);
        place
    }

    /// All texts, by place.
    pub(crate) fn into_texts(self) -> Vec<String> {
        self.texts
    }

    fn other(&mut self) -> u32 {
        *self.other.get_or_insert_with(|| Self::push(&mut self.texts, "(other)"))
    }

    fn push(texts: &mut Vec<String>, text: &str) -> u32 {
        texts.push(text.to_owned());
        u32::try_from(texts.len() - 1).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(text: &str) -> &str {
        text
    }

    #[test]
    fn equal_texts_share_a_place() {
        let mut interner = Interner::new(8);
        assert_eq!(interner.place(b"COMMIT", same), 0);
        assert_eq!(interner.place(b"BEGIN", same), 1);
        assert_eq!(interner.place(b"COMMIT", same), 0);
        assert_eq!(interner.into_texts(), ["COMMIT", "BEGIN"]);
    }

    #[test]
    fn two_spellings_share_a_place() {
        let mut interner = Interner::new(8);
        let spell = crate::sampler::wait_event::canonical;
        assert_eq!(interner.place(b"IO:WALSync", spell), interner.place(b"IO:WalSync", spell));
        assert_eq!(interner.into_texts(), ["IO:WalSync"]);
    }

    #[test]
    fn too_many_texts_share_one_entry() {
        let mut interner = Interner::new(2);
        for text in ["a", "b", "c", "d", "a"] {
            interner.place(text.as_bytes(), same);
        }
        assert_eq!(interner.place(b"e", same), 2);
        assert_eq!(interner.into_texts(), ["a", "b", "(other)"]);
    }

    #[test]
    fn a_text_cut_within_a_character_ends_before_it() {
        let mut interner = Interner::new(2);
        interner.place(&"SELECT 'ä".as_bytes()[..9], same);
        assert_eq!(interner.into_texts(), ["SELECT '"]);
    }
}
