// Results of reductions, from their parts.

struct Params {
    store: Store,
    split: Division,
    /// Values behind each result.
    len: u32,
    /// The first result of this launch.
    start: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(8) var<storage, read> parts: array<Total>;

fn term(result: u32, part: u32) -> Total {
    return parts[part * p.split.results + result];
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
    let s = share(number_of_group, lane);
    let total = together(s, lane);
    if s.live && s.thread == 0u {
        let i = p.start + s.result;
        if OP == REDUCE_ARGMAX {
            // Integers are neither scaled nor observed.
            if e.dtype == TYPE_U8 {
                let shift = 8u * (i & 3u);
                put_bits(i >> 2u, 0xffu << shift, (total.y & 0xffu) << shift);
            } else {
                y_store(i, total.y);
            }
        } else if OP == REDUCE_MAX {
            put(e, i, of_rank(total.x));
        } else if OP == REDUCE_MEAN {
            put(e, i, divide(number(total.x), f32(p.len)));
        } else {
            put(e, i, number(total.x));
        }
    }
    end_store(lane, number_of_group);
}
