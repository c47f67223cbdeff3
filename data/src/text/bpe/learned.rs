//! Byte-pair encoding by the crate `tokenizers`.

use super::END;
use serde::{Deserialize, Serialize};
use tokenizers::{
    AddedToken, Tokenizer,
    models::{
        TrainerWrapper,
        bpe::{BPE, BpeTrainer},
    },
    pre_tokenizers::{
        metaspace::{Metaspace, PrependScheme},
        punctuation::Punctuation,
        sequence::Sequence,
    },
    tokenizer::SplitDelimiterBehavior,
};

/// Names of the special tokens in number order; the last is for letters that the training text lacks.
const SPECIAL: [&str; 4] = ["<nothing>", "<begin>", "<end>", "<unknown>"];
/// Character that replaces the space before a word, as in `SentencePiece`.
const SPACE: char = '▁';
/// Minimum number of occurrences of a pair that becomes a token.
const MIN_PAIR_COUNT: u64 = 2;

/// Byte-pair vocabulary of a language, stored in the format of `tokenizers`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pieces(Box<Tokenizer>);

impl Pieces {
    /// Learns a vocabulary of at most `most` tokens from texts. Equal texts give equal vocabularies. All letters are
    /// included, even beyond `most`.
    ///
    /// # Errors
    /// In words; none is known.
    pub fn learn<'a>(texts: impl Iterator<Item = &'a str> + Send, most: u16) -> Result<Self, String> {
        let model = BPE::builder().unk_token(SPECIAL[3].into()).build().map_err(|error| error.to_string())?;
        let spaces = Metaspace::new(SPACE, PrependScheme::Always, true);
        let apart = Punctuation::new(SplitDelimiterBehavior::Isolated);
        let mut tokenizer = Tokenizer::new(model);
        tokenizer.with_pre_tokenizer(Some(Sequence::new(vec![spaces.clone().into(), apart.into()])));
        tokenizer.with_decoder(Some(spaces));
        let special = SPECIAL.map(|name| AddedToken::from(name, true)).to_vec();
        let trainer = BpeTrainer::builder().show_progress(false).vocab_size(most.into()).min_frequency(MIN_PAIR_COUNT);
        let mut trainer: TrainerWrapper = trainer.special_tokens(special).build().into();
        tokenizer.train(&mut trainer, texts.map(spaced)).map_err(|error| error.to_string())?;
        Ok(Self::from_tokenizer(tokenizer))
    }

    /// Prepares a tokenizer: special tokens that occur as text are treated as text.
    fn from_tokenizer(mut tokenizer: Tokenizer) -> Self {
        tokenizer.set_encode_special_tokens(true);
        Self(Box::new(tokenizer))
    }

    /// Returns the size of the vocabulary, including special tokens.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.get_vocab_size(true)
    }

    /// Splits a text into byte-pair pieces and appends the end token; several spaces count as one.
    #[must_use]
    pub fn apart(&self, text: &str) -> Vec<u32> {
        let found = self.0.encode_fast(spaced(text), false);
        let mut pieces = found.map(|found| found.get_ids().to_vec()).unwrap_or_default();
        pieces.push(END);
        pieces
    }

    /// Decodes byte-pair pieces to the text that they encode.
    #[must_use]
    pub fn text(&self, pieces: &[u32]) -> String {
        self.0.decode(pieces, true).map(|text| text.trim().to_owned()).unwrap_or_default()
    }
}

fn spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl TryFrom<String> for Pieces {
    type Error = String;

    fn try_from(saved: String) -> Result<Self, String> {
        Tokenizer::from_bytes(saved).map(Self::from_tokenizer).map_err(|error| error.to_string())
    }
}

impl From<Pieces> for String {
    fn from(pieces: Pieces) -> Self {
        pieces.0.to_string(false).unwrap_or_default()
    }
}

/// Implementation of equality: vocabularies are compared by their stored form.
impl PartialEq for Pieces {
    fn eq(&self, other: &Self) -> bool {
        String::from(self.clone()) == String::from(other.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [&str; 4] = [
        "Ein Mann, der einen Hund (klein) hält.",
        "Ein Hund läuft über die Straße; der Mann nicht!",
        "Zwei Männer und ein Hund laufen über die Straßen.",
        "  Viele   Hunde laufen.  ",
    ];

    #[test]
    fn the_same_texts_give_the_same_pieces() {
        let learn = || serde_json::to_string(&Pieces::learn(TEXTS.into_iter(), 80).expect("pieces")).expect("JSON");
        let first = learn();
        for _ in 0..8 {
            assert_eq!(learn(), first);
        }
    }

    #[test]
    fn there_and_back() {
        let pieces = Pieces::learn(TEXTS.into_iter(), 90).expect("pieces");
        assert!(pieces.count() > 40 && pieces.count() <= 90, "{}", pieces.count());
        for text in TEXTS.into_iter().chain(["Hund und Mann: (ein Mann)", "<begin>", ""]) {
            let apart = pieces.apart(text);
            assert_eq!(apart.last(), Some(&END));
            assert!(apart[..apart.len() - 1].iter().all(|&piece| piece > END), "{text}: {apart:?}");
            let unknown = text.chars().any(|c| "<>g:".contains(c));
            assert!(unknown || pieces.text(&apart) == spaced(text), "{text}: {}", pieces.text(&apart));
        }
        // A frequent word is one piece.
        assert_eq!(pieces.apart("Hund").len(), 2);
        let saved = serde_json::to_string(&pieces).expect("JSON");
        let again: Pieces = serde_json::from_str(&saved).expect("pieces");
        assert_eq!(again.apart(TEXTS[1]), pieces.apart(TEXTS[1]));
        assert_eq!(again.apart("<begin>"), pieces.apart("<begin>"));
        assert!(serde_json::from_str::<Pieces>("\"{}\"").is_err());
    }
}
