// Pass 1 of the statistics of a normalisation: partial sums of x, or of squared distances from the mean, over groups.

struct Params {
    reduction: ReduceShape,
    shape: Shape,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(7) var<storage, read> saved: array<f32>;
@group(0) @binding(8) var<storage, read_write> partial_totals: array<Total>;

alias Total = f32;

/// 0: sums of x. 1: sums of squared distances from the mean.
override SQUARED_DISTANCES: u32;

fn identity() -> Total {
    return 0.0;
}

fn combine(a: Total, b: Total) -> Total {
    return a + b;
}

fn load_term(group: u32, m: u32) -> Total {
    let v = x_at(element_index(group, m));
    if SQUARED_DISTANCES == 0u {
        return v;
    }
    let distance = v - saved[group];
    return distance * distance;
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
        partial_totals[s.part * p.reduction.results + s.result] = total;
    }
}
