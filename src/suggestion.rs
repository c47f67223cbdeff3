//! Suggestions for names that do not exist, as parts of error messages.

/// Maximum share of a part of a name that may be misspelt, as its reciprocal: one letter in three.
const LETTERS_PER_TYPO: usize = 3;

/// Returns `; did you mean net.weight?` if a known name is similar to `name` or ends with it, else an empty text.
pub(crate) fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let end = format!(".{name}");
    let typos = |known: &str| if known.ends_with(&end) { Some(1) } else { typos(name, known) };
    let similar = known.into_iter().filter_map(|known| Some((typos(known)?, known))).min();
    similar.map_or_else(String::new, |(_, similar)| format!("; did you mean {similar}?"))
}

/// Counts typos part by part, because most names of parameters end alike: `three.weight` is not meant as `one.weight`.
/// `None` if a part is too different.
fn typos(name: &str, known: &str) -> Option<usize> {
    if name.split('.').count() != known.split('.').count() {
        return None;
    }
    let of_part = |(part, known): (&str, &str)| {
        let typos = strsim::damerau_levenshtein(part, known);
        (typos * LETTERS_PER_TYPO <= part.chars().count()).then_some(typos)
    };
    name.split('.').zip(known.split('.')).map(of_part).sum()
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
        assert_eq!(suggestion("three.weight", ["one.weight", "two.weight"]), "");
        assert_eq!(suggestion("", known), "");
        assert_eq!(suggestion("net.weight", []), "");
    }
}
