//! Names and credentials nobody can guess.

use rand::{TryRng, rngs::SysRng};

use super::RigError;

/// Letters and digits that need no quoting anywhere.
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// `length` characters of `[a-z0-9]`, from the operating system's generator.
pub(crate) fn random(length: usize) -> Result<String, RigError> {
    let mut word = String::with_capacity(length);
    let mut bytes = [0; 64];
    while word.len() < length {
        SysRng.try_fill_bytes(&mut bytes).map_err(RigError::refused("read random numbers"))?;
        // 252 is the largest multiple of 36 in a byte: what is above would make some letters likelier.
        let letters = bytes.iter().filter(|byte| **byte < 252);
        word.extend(
            letters.map(|byte| char::from(ALPHABET[usize::from(*byte) % 36])).take(length - word.len()),
        );
    }
    Ok(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_their_length_and_differ() {
        let word = random(40).unwrap();
        assert_eq!(word.len(), 40);
        assert!(word.bytes().all(|byte| ALPHABET.contains(&byte)), "{word}");
        assert_ne!(word, random(40).unwrap());
    }
}
