// Means (stage 0) or variances (stage 1) of the groups of a normalisation from partial sums, and 1 / √(variance + eps).

struct Params {
    reduction: ReduceShape,
    stage: u32,
    /// Number of elements of a group.
    size: u32,
    eps: f32,
    /// 1 if the normalisation subtracts means.
    centered: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
/// Means, then variances of all groups.
@group(0) @binding(3) var<storage, read_write> saved: array<f32>;
@group(0) @binding(8) var<storage, read> partial_totals: array<Total>;
@group(0) @binding(9) var<storage, read_write> group_stats: array<vec4<f32>>;

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
    if !s.is_live || s.thread != 0u {
        return;
    }
    let number = divide(total, f32(p.size));
    if p.stage == 0u {
        saved[s.result] = number;
        return;
    }
    var mean = 0.0;
    if p.centered != 0u {
        mean = saved[s.result];
    } else {
        saved[s.result] = mean;
    }
    saved[p.reduction.results + s.result] = number;
    group_stats[s.result] = vec4<f32>(mean, inverse_std(number, p.eps), 0.0, 0.0);
}
