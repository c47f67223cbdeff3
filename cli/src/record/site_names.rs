//! Names of cast sites for people.

/// Shortens names by a first part that all of those with parts share: `segnet.conv1` becomes `conv1`.
pub fn shorten_names<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut first = names.iter().filter_map(|name| name.split_once('.')).map(|(part, _)| part);
    let Some(part) = first.next().filter(|part| first.all(|other| other == *part)) else {
        return names.to_vec();
    };
    let strip = |name: &&'a str| name.strip_prefix(part).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name);
    names.iter().map(strip).collect()
}

#[cfg(test)]
mod tests {
    use super::shorten_names;

    #[test]
    fn a_part_that_all_share_is_left_out() {
        assert_eq!(shorten_names(&["net.a/x", "net.b.c", "loss"]), ["a/x", "b.c", "loss"]);
        assert_eq!(shorten_names(&["net.a", "other.b"]), ["net.a", "other.b"]);
        assert_eq!(shorten_names(&["loss"]), ["loss"]);
    }
}
