// Many tensors in one dispatch: each has workgroups of its own, one behind the other.

struct Listed {
    /// Elements.
    len: u32,
    /// The first of its workgroups, in this dispatch and in all of the call.
    first: u32,
    before: u32,
    /// Where it begins in the buffer of each role, in fours of elements, or ABSENT.
    places: array<u32, 5>,
}

@group(0) @binding(9) var<storage, read> list: array<Listed>;

const ABSENT: u32 = 0xffffffffu;

/// Which one of the first `count` has this workgroup.
fn listed(group: u32, count: u32) -> u32 {
    var here = 0u;
    var behind = count;
    while behind - here > 1u {
        let middle = (here + behind) / 2u;
        if list[middle].first <= group {
            here = middle;
        } else {
            behind = middle;
        }
    }
    return here;
}

