// Many tensors in one dispatch: each has workgroups of its own, one behind the other.

struct TensorEntry {
    /// Elements.
    len: u32,
    /// The first of its workgroups, in this dispatch and in all of the call.
    first_group: u32,
    groups_before: u32,
    /// Where it begins in the buffer of each role, in fours of elements, or ABSENT.
    offsets: array<u32, 5>,
}

@group(0) @binding(9) var<storage, read> tensors: array<TensorEntry>;

const ABSENT: u32 = 0xffffffffu;

/// Which one of the first `count` has this workgroup.
fn find_tensor(group: u32, count: u32) -> u32 {
    var low = 0u;
    var high = count;
    while high - low > 1u {
        let middle = (low + high) / 2u;
        if tensors[middle].first_group <= group {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

