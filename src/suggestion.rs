//! Suggestions for names that do not exist, as parts of error messages.

/// Maximum share of a name that may be misspelt, as its reciprocal: one letter in three.
const LETTERS_PER_TYPO: usize = 3;

/// Returns `; did you mean net.weight?` if a known name is similar to `name` or ends with it, else an empty text.
pub(crate) fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let end = format!(".{name}");
    let distance = |known: &str| if known.ends_with(&end) { 1 } else { strsim::damerau_levenshtein(name, known) };
    let similar = known.into_iter().map(|known| (distance(known), known)).min();
    match similar {
        Some((distance, similar)) if distance * LETTERS_PER_TYPO <= name.chars().count() => {
            format!("; did you mean {similar}?")
        }
        Some(_) | None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::suggestion;

    #[test]
    fn similar_names_are_suggested_and_others_are_not() {
        let known = ["net.weight", "net.bias", "head.bias"];
        assert_eq!(suggestion("net.wieght", known), "; did you mean net.weight?");
        assert_eq!(suggestion("net.weights", known), "; did you mean net.weight?");
        assert_eq!(suggestion("weight", known), "; did you mean net.weight?");
        assert_eq!(suggestion("encoder.scale", known), "");
        assert_eq!(suggestion("", known), "");
        assert_eq!(suggestion("net.weight", []), "");
    }
}
