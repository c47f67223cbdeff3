//! Tokens and their ids.

use crate::as_text;
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    str::FromStr,
};

/// Token that replaces words outside the vocabulary.
pub(super) const UNKNOWN: &str = "<unk>";
/// Token at the end of each line, if words are tokens.
const END: &str = "<eos>";

/// Kind of tokens that a text is split into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// Tokens are words between blanks, with a mark at the end of each line.
    Words,
    /// Each Unicode character is a token.
    Characters,
}

impl FromStr for Tokens {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "words" => Ok(Self::Words),
            "characters" => Ok(Self::Characters),
            _ => Err("must be words or characters".to_owned()),
        }
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Words => "words",
            Self::Characters => "characters",
        })
    }
}

as_text!(Tokens);

impl Tokens {
    /// Splits a text into tokens, characters or words.
    pub fn split(self, text: &str) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Self::Words => Box::new(text.lines().flat_map(|line| line.split_whitespace().chain([END]))),
            Self::Characters => {
                let character = |(at, c): (usize, char)| &text[at..at + c.len_utf8()];
                Box::new(text.char_indices().map(character))
            }
        }
    }

    /// Joins tokens to a text; words are separated by spaces.
    pub fn joined<'a>(self, tokens: impl IntoIterator<Item = &'a str>) -> String {
        let mut text = String::new();
        for token in tokens {
            match (self, token) {
                (Self::Words, END) => text.push('\n'),
                (Self::Words, word) => {
                    if !text.is_empty() && !text.ends_with('\n') {
                        text.push(' ');
                    }
                    text += word;
                }
                (Self::Characters, character) => text += character,
            }
        }
        text
    }
}

/// Vocabulary of a text, most frequent token first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    tokens: Tokens,
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Vocabulary {
    /// Builds the vocabulary of these tokens; equally frequent ones in lexical order.
    pub fn new(tokens: Tokens, of: &[&str]) -> Self {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        of.iter().for_each(|token| *counts.entry(token).or_default() += 1);
        let mut all: Vec<(&str, usize)> = counts.into_iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Self::named(tokens, all.into_iter().map(|(token, _)| token.to_owned()).collect())
    }

    /// Creates a vocabulary of these tokens in order.
    #[must_use]
    pub fn named(tokens: Tokens, names: Vec<String>) -> Self {
        let numbers = names.iter().cloned().zip(0..).collect();
        Self { tokens, names, numbers }
    }

    /// Returns the kind of tokens of the vocabulary.
    #[must_use]
    pub const fn tokens(&self) -> Tokens {
        self.tokens
    }

    /// Returns the number of tokens in the vocabulary.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns true if the vocabulary has no tokens.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns all tokens of the vocabulary, by number.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Adds the token of unknown words, unless it exists.
    pub(super) fn with_unknown(&mut self) {
        if self.find(UNKNOWN).is_none() {
            let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
            self.names.push(UNKNOWN.to_owned());
            self.numbers.insert(UNKNOWN.to_owned(), next);
        }
    }

    /// Returns the number of a token, if the vocabulary has it.
    pub(super) fn find(&self, token: &str) -> Option<u32> {
        self.numbers.get(token).copied()
    }

    /// Returns the id of a token, or that of `<unk>` if the vocabulary has it.
    #[must_use]
    pub fn number(&self, token: &str) -> Option<u32> {
        self.find(token).or_else(|| self.find(UNKNOWN))
    }

    /// Counts how often each token of the vocabulary occurs in a text.
    pub(super) fn counts(&self, of: &[&str]) -> Vec<u64> {
        let mut counts = vec![0; self.names.len()];
        of.iter().filter_map(|token| self.find(token)).for_each(|number| counts[number as usize] += 1);
        counts
    }

    /// Converts a prompt to token ids. With words, there is no end-of-line token after the last one unless the text
    /// ends with a newline.
    ///
    /// # Errors
    /// A token outside a vocabulary that has no `<unk>`.
    pub fn read(&self, text: &str) -> Result<Vec<u32>, String> {
        let mut tokens: Vec<&str> = self.tokens.split(text).collect();
        if self.tokens == Tokens::Words && !text.ends_with('\n') {
            tokens.pop();
        }
        let number = |token: &&str| self.number(token).ok_or_else(|| format!("“{token}” was not in the training text"));
        tokens.iter().map(number).collect()
    }

    /// Converts token ids to the text that they represent.
    #[must_use]
    pub fn text(&self, numbers: &[u32]) -> String {
        let name = |&number: &u32| self.names.get(number as usize).map_or("", String::as_str);
        self.tokens.joined(numbers.iter().map(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_ends_of_lines() {
        let text = " a b a\n\n c <unk> \n";
        let tokens: Vec<&str> = Tokens::Words.split(text).collect();
        assert_eq!(tokens, ["a", "b", "a", "<eos>", "<eos>", "c", "<unk>", "<eos>"]);
        let vocabulary = Vocabulary::new(Tokens::Words, &tokens);
        assert_eq!(vocabulary.names(), ["<eos>", "a", "<unk>", "b", "c"]);
        assert_eq!(vocabulary.counts(&tokens), [3, 2, 1, 1, 1]);
        assert_eq!(vocabulary.read("b x\na"), Ok(vec![3, 2, 0, 1]));
        assert_eq!(vocabulary.text(&[1, 3, 0, 4, 2]), "a b\nc <unk>");
    }

    #[test]
    fn characters_are_those_of_unicode() {
        let tokens: Vec<&str> = Tokens::Characters.split("aé€a\n").collect();
        assert_eq!(tokens, ["a", "é", "€", "a", "\n"]);
        let mut vocabulary = Vocabulary::new(Tokens::Characters, &tokens);
        assert_eq!(vocabulary.names(), ["a", "\n", "é", "€"]);
        assert_eq!(vocabulary.text(&vocabulary.read("€é\n").expect("known")), "€é\n");
        assert_eq!(vocabulary.read("ax"), Err("“x” was not in the training text".to_owned()));
        vocabulary.with_unknown();
        vocabulary.with_unknown();
        assert_eq!((vocabulary.len(), vocabulary.read("ax")), (5, Ok(vec![0, 4])));
    }
}
