// Pass 2 of the statistics of a normalisation: means or variances from partial sums.

struct Params {
    reduction: ReduceShape,
    /// Index in `saved` of the first mean or variance that this launch writes.
    start: u32,
    /// Number of elements of a group.
    size: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> saved: array<f32>;
@group(0) @binding(8) var<storage, read> partial_totals: array<Total>;

alias Total = f32;

fn identity() -> Total {
    return 0.0;
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
        saved[p.start + s.result] = divide(total, f32(p.size));
    }
}
