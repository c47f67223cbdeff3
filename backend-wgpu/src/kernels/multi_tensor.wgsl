// Multi-tensor apply: one dispatch for many tensors, each with consecutive workgroups.

struct TensorEntry {
    /// Number of elements of the tensor.
    len: u32,
    /// Number of its first workgroup in this dispatch, and in all dispatches of the operator.
    first_group: u32,
    groups_before: u32,
    /// Offset in the buffer of each role in 4-wide vectors, or NO_TENSOR.
    offsets: array<u32, 5>,
}

@group(0) @binding(9) var<storage, read> tensors: array<TensorEntry>;

const NO_TENSOR: u32 = 0xffffffffu;

/// Returns which of the first `count` tensors a workgroup belongs to, by binary search.
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

