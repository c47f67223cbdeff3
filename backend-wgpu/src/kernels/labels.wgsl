// Labels of rows. Reference: core's `CrossEntropyRow`. A kernel declares `p: Params` with a member `meaning: Meaning`.

struct LabelParams {
    rows: u32,
    classes: u32,
    /// Label of rows without a loss, if `has_ignored_label` is not 0.
    ignored_label: u32,
    has_ignored_label: u32,
}

/// 1 if the cross-entropy has weights of classes.
override WEIGHTED: u32;

fn is_ignored(label: u32) -> bool {
    return p.label_params.has_ignored_label != 0u && label == p.label_params.ignored_label;
}
