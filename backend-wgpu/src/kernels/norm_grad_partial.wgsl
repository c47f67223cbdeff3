// Pass 1 of the gradient of a normalisation: partial sums of u and u · x̂, over groups with u = dy times the scale, or over
// channels with u = dy.

struct Params {
    reduction: ReduceShape,
    shape: Shape,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(7) var<storage, read> scale: array<f32>;
@group(0) @binding(8) var<storage, read_write> partial_totals: array<Total>;
@group(0) @binding(9) var<storage, read> group_stats: array<vec4<f32>>;

alias Total = vec2<f32>;

/// 1 if the sums are over channels, 0 if over groups.
override CHANNELS: u32;
/// 1 if the normalisation has a learned scale.
override SCALED: u32;

fn identity() -> Total {
    return vec2<f32>();
}

fn combine(a: Total, b: Total) -> Total {
    return a + b;
}

fn load_term(result: u32, l: u32) -> Total {
    var i = l * p.shape.channels + result;
    if CHANNELS == 0u {
        i = element_index(result, l);
    }
    let n = group_stats[group_of_element(i)];
    var u = dy_at(i);
    if CHANNELS == 0u && SCALED != 0u {
        u *= scale[i % p.shape.channels];
    }
    return vec2<f32>(u, u * ((x_at(i) - n.x) * n.y));
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
