// Gradient of the scale, Σ dy · x̂, or of the shift, Σ dy, from partial sums.

struct Params {
    store: Store,
    reduction: ReduceShape,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(8) var<storage, read> partial_totals: array<Total>;

alias Total = vec2<f32>;

/// Output of the kernel: 1 for the gradient of the scale, 0 for that of the shift.
override SCALE: u32;

fn identity() -> Total {
    return vec2<f32>();
}

fn combine(a: Total, b: Total) -> Total {
    return a + b;
}

fn load_term(channel: u32, part: u32) -> Total {
    return partial_totals[part * p.reduction.results + channel];
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
        store_scalar(e, s.result, select(total.x, total.y, SCALE != 0u));
    }
    end_store(lane, number_of_group);
}
