// Second pass of reductions: results from partial results.

struct Params {
    store: Store,
    reduction: ReduceShape,
    /// Number of values of each result.
    len: u32,
    /// Index of the first result of this launch.
    start: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(8) var<storage, read> partial_totals: array<Total>;

fn load_term(result: u32, part: u32) -> Total {
    return partial_totals[part * p.reduction.results + result];
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number_of_group = group_number(group, groups);
    begin_store(lane);
    let e = epilogue();
    let s = assign_work(number_of_group, lane);
    let total = workgroup_reduce(s, lane);
    if s.is_live && s.thread == 0u {
        let i = p.start + s.result;
        if OP == REDUCE_ARGMAX {
            // Integers are neither scaled nor observed.
            if e.dtype == TYPE_U8 {
                let shift = 8u * (i & 3u);
                store_bits(i >> 2u, 0xffu << shift, (total.y & 0xffu) << shift);
            } else {
                y_store(i, total.y);
            }
        } else if OP == REDUCE_MAX {
            store_scalar(e, i, rank_to_float(total.x));
        } else if OP == REDUCE_MEAN {
            store_scalar(e, i, divide(bits_as_float(total.x), f32(p.len)));
        } else {
            store_scalar(e, i, bits_as_float(total.x));
        }
    }
    end_store(lane, number_of_group);
}
