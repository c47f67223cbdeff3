// What a row's label means. Reference: core's `CrossEntropyRow`. A kernel declares `p: Params` with a member `meaning: Meaning`.

struct Meaning {
    rows: u32,
    classes: u32,
    /// The label that does not count, if `ignores` is not 0.
    ignored: u32,
    ignores: u32,
}

/// Whether classes have weights.
override WEIGHTED: u32;

fn is_ignored(label: u32) -> bool {
    return p.meaning.ignores != 0u && label == p.meaning.ignored;
}
