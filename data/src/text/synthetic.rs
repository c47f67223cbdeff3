//! Synthetic translation data: English and German number words, which order tens and ones differently.

use crate::Random;

/// English words for the numbers 0 to 19, and for the tens from 20 on.
const ENGLISH: [&str; 2] = [
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen \
     nineteen",
    "twenty thirty forty fifty sixty seventy eighty ninety",
];
const GERMAN: [&str; 2] = [
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn \
     achtzehn neunzehn",
    "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
];
/// Number of synthetic sentence pairs for training, and for each set of scores.
pub const COUNTS: [usize; 2] = [2000, 100];
/// Minimum and maximum number of numbers in a synthetic sentence.
const NUMBERS: [usize; 2] = [2, 5];

/// Returns a random English sentence and its German translation.
pub fn pair(random: &mut Random) -> [String; 2] {
    let count = NUMBERS[0] + random.below(NUMBERS[1] + 1 - NUMBERS[0]);
    let numbers: Vec<usize> = (0..count).map(|_| random.below(100)).collect();
    let [one, other] =
        [english as fn(usize) -> String, german].map(|words| numbers.iter().map(|&n| words(n)).collect::<Vec<_>>());
    [sentence(&one, "and"), sentence(&other, "und")]
}

fn sentence(words: &[String], and: &str) -> String {
    let first = words[..words.len().saturating_sub(1)].join(", ");
    format!("{first} {and} {}.", words.last().map_or("", String::as_str))
}

fn word(words: &str, place: usize) -> &str {
    words.split(' ').nth(place).unwrap_or_default()
}

fn english(number: usize) -> String {
    let [ones, tens] = ENGLISH;
    match (number / 10, number % 10) {
        (0 | 1, _) => word(ones, number).to_owned(),
        (ten, 0) => word(tens, ten - 2).to_owned(),
        (ten, one) => format!("{}-{}", word(tens, ten - 2), word(ones, one)),
    }
}

fn german(number: usize) -> String {
    let [ones, tens] = GERMAN;
    match (number / 10, number % 10) {
        (0 | 1, _) => word(ones, number).to_owned(),
        (ten, 0) => word(tens, ten - 2).to_owned(),
        // Before "und" one loses its end.
        (ten, 1) => format!("einund{}", word(tens, ten - 2)),
        (ten, one) => format!("{}und{}", word(ones, one), word(tens, ten - 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_words() {
        let both = |n| [english(n), german(n)];
        assert_eq!(both(0), ["zero", "null"]);
        assert_eq!(both(17), ["seventeen", "siebzehn"]);
        assert_eq!(both(21), ["twenty-one", "einundzwanzig"]);
        assert_eq!(both(60), ["sixty", "sechzig"]);
        assert_eq!(both(99), ["ninety-nine", "neunundneunzig"]);
        let words = ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!(sentence(&words, "and"), "a, b and c.");
    }
}
