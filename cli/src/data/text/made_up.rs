//! Two languages that are made up of numbers: English and German number words, which name tens and ones in unlike order.

use crate::data::Random;

const ENGLISH: ([&str; 20], [&str; 8]) = (
    [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
        "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
    ],
    ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"],
);
const GERMAN: ([&str; 20], [&str; 8]) = (
    [
        "null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf",
        "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn",
    ],
    ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"],
);
/// Pairs for training, and for scores.
pub const COUNTS: [usize; 2] = [2000, 100];
/// Numbers in a sentence, at least and at most.
const NUMBERS: [usize; 2] = [2, 5];

/// An English sentence and the German one.
pub fn pair(random: &mut Random) -> [String; 2] {
    let count = NUMBERS[0] + random.below(NUMBERS[1] + 1 - NUMBERS[0]);
    let numbers: Vec<usize> = (0..count).map(|_| random.below(100)).collect();
    [sentence(numbers.iter().map(|&n| english(n)).collect(), "and"), sentence(numbers.iter().map(|&n| german(n)).collect(), "und")]
}

fn sentence(words: Vec<String>, and: &str) -> String {
    let (last, first) = words.split_last().map_or((String::new(), String::new()), |(last, first)| (last.clone(), first.join(", ")));
    format!("{first} {and} {last}.")
}

fn english(number: usize) -> String {
    match (number / 10, number % 10) {
        (0 | 1, _) => ENGLISH.0[number % 20].to_owned(),
        (tens, 0) => ENGLISH.1[tens - 2].to_owned(),
        (tens, ones) => format!("{}-{}", ENGLISH.1[tens - 2], ENGLISH.0[ones]),
    }
}

fn german(number: usize) -> String {
    match (number / 10, number % 10) {
        (0 | 1, _) => GERMAN.0[number % 20].to_owned(),
        (tens, 0) => GERMAN.1[tens - 2].to_owned(),
        // Before "und" one loses its end.
        (tens, 1) => format!("einund{}", GERMAN.1[tens - 2]),
        (tens, ones) => format!("{}und{}", GERMAN.0[ones], GERMAN.1[tens - 2]),
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
        assert_eq!(sentence(words, "and"), "a, b and c.");
    }
}
