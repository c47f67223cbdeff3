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

/// Element of x: its channel and group, and the place of the channel in the group and of the pixel in the image.
struct Place {
    channel: u32,
    group: u32,
    channel_in_group: u32,
    pixel: u32,
}

/// Returns the number of channels of a group.
fn group_width() -> u32 {
    return p.shape.channels / p.shape.groups;
}

/// Returns the place of element i.
fn place_of(i: u32) -> Place {
    let s = p.shape;
    let pixel = i / s.channels;
    let channel = i - pixel * s.channels;
    if BATCH != 0u {
        return Place(channel, channel, 0u, 0u);
    }
    let width = group_width();
    let image = pixel / s.image;
    let group = channel / width;
    return Place(channel, image * s.groups + group, channel - group * width, pixel - image * s.image);
}

/// Returns the place of the next element, which takes no division.
fn next_place(at: Place) -> Place {
    let s = p.shape;
    var next = Place(at.channel + 1u, at.group + 1u, 0u, at.pixel);
    let is_last = next.channel == s.channels;
    if BATCH != 0u {
        next.channel = select(next.channel, 0u, is_last);
        next.group = next.channel;
        return next;
    }
    if at.channel_in_group + 1u != group_width() {
        next.group = at.group;
        next.channel_in_group = at.channel_in_group + 1u;
    } else if is_last {
        next.channel = 0u;
        next.pixel = at.pixel + 1u;
        if next.pixel == s.image {
            next.pixel = 0u;
        } else {
            next.group -= s.groups;
        }
    }
    return next;
}

/// True if eight elements from a multiple of 8 on are channels of one pixel: of eight groups with BATCH, else of one.
fn has_whole_vec8() -> bool {
    return p.shape.channels % 8u == 0u && (BATCH != 0u || group_width() % 8u == 0u);
}

/// True if elements at this distance have the same channel and group: in batch normalisation an invocation then needs the
/// numbers of its eight channels once.
fn repeats_channels(distance: u32) -> bool {
    return BATCH != 0u && distance % p.shape.channels == 0u;
}

/// Returns the index of element m of a group.
fn element_index(group: u32, m: u32) -> u32 {
    let s = p.shape;
    if BATCH != 0u {
        return m * s.channels + group;
    }
    let width = group_width();
    let image = group / s.groups;
    let row = m / width;
    return (image * s.image + row) * s.channels + (group - image * s.groups) * width + (m - row * width);
}
