// Numbers of the groups of a normalisation's gradient from partial sums: the means of u and u · x̂.

struct Params {
    reduction: ReduceShape,
    means: MeanParams,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(8) var<storage, read> partial_totals: array<Total>;

alias Total = vec2<f32>;

/// 1 if each channel of all images is a group (batch norm).
override BATCH: u32;

fn identity() -> Total {
    return vec2<f32>();
}

fn combine(a: Total, b: Total) -> Total {
    return a + b;
}

fn load_term(group: u32, part: u32) -> Total {
    return partial_totals[part * p.reduction.results + group];
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let s = assign_work(group_number(group, groups), lane);
    let total = workgroup_reduce(s, lane);
    if s.is_live && s.thread == 0u {
        save_group(s.result, total);
    }
}
