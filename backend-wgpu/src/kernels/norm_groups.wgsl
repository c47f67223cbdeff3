// Groups of a normalisation, over x `[n, h, w, c]`. A kernel declares `p: Params` with a member `shape: Shape`.

struct Shape {
    /// Number of pixels of an image.
    image: u32,
    channels: u32,
    /// Number of groups of an image, 1 with BATCH.
    groups: u32,
    /// Number of elements of a group.
    size: u32,
}

/// 1 if each channel of all images is a group (batch norm).
override BATCH: u32;

/// Returns the index of element m of a group.
fn element_index(group: u32, m: u32) -> u32 {
    let s = p.shape;
    if BATCH != 0u {
        return m * s.channels + group;
    }
    let width = s.channels / s.groups;
    let pixel = group / s.groups * s.image + m / width;
    return pixel * s.channels + group % s.groups * width + m % width;
}

/// Returns the group of element i.
fn group_of_element(i: u32) -> u32 {
    let s = p.shape;
    let channel = i % s.channels;
    if BATCH != 0u {
        return channel;
    }
    return i / (s.image * s.channels) * s.groups + channel / (s.channels / s.groups);
}
