// Pass 2 of the gradient of a normalisation: means of u and u · x̂ of each group from partial sums. In batch normalisation a
// group is a channel, so partial sums are of dy, and the scale is applied here.

struct Params {
    reduction: ReduceShape,
    /// Number of elements of a group.
    size: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(7) var<storage, read> scale: array<f32>;
@group(0) @binding(8) var<storage, read> partial_totals: array<Total>;
@group(0) @binding(9) var<storage, read_write> group_stats: array<vec4<f32>>;

alias Total = vec2<f32>;

/// 1 if the gradient must still be multiplied by the scale.
override SCALED: u32;
/// 1 if the normalisation subtracts means.
override CENTERED: u32;

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
    var total = workgroup_reduce(s, lane);
    if s.is_live && s.thread == 0u {
        if SCALED != 0u {
            total *= scale[s.result];
        }
        let size = f32(p.size);
        group_stats[s.result].z = select(0.0, divide(total.x, size), CENTERED != 0u);
        group_stats[s.result].w = divide(total.y, size);
    }
}
