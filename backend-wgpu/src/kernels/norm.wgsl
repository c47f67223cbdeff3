// y = (x − mean) / √(var + eps) · scale[c] + shift[c]. Reference: core's `Norm`.

struct Params {
    store: Store,
    shape: Shape,
    len: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(6) var<storage, read> scale: array<f32>;
@group(0) @binding(7) var<storage, read> shift: array<f32>;
@group(0) @binding(9) var<storage, read> group_stats: array<vec4<f32>>;

/// 1 if the normalisation has a learned scale and shift.
override AFFINE: u32;

/// Numbers of four neighbouring elements.
struct Vec4Numbers {
    means: vec4<f32>,
    inverses: vec4<f32>,
    scales: vec4<f32>,
    shifts: vec4<f32>,
}

var<private> numbers: array<Vec4Numbers, 2>;

/// Returns the numbers of four channels.
fn numbers_of_vec4(channel: u32, group: u32) -> Vec4Numbers {
    var n = Vec4Numbers();
    let a = group_stats[group].xy;
    n.means = vec4<f32>(a.x);
    n.inverses = vec4<f32>(a.y);
    if BATCH != 0u {
        let b = group_stats[group + 1u].xy;
        let c = group_stats[group + 2u].xy;
        let d = group_stats[group + 3u].xy;
        n.means = vec4<f32>(a.x, b.x, c.x, d.x);
        n.inverses = vec4<f32>(a.y, b.y, c.y, d.y);
    }
    if AFFINE != 0u {
        n.scales = vec4<f32>(scale[channel], scale[channel + 1u], scale[channel + 2u], scale[channel + 3u]);
        n.shifts = vec4<f32>(shift[channel], shift[channel + 1u], shift[channel + 2u], shift[channel + 3u]);
    }
    return n;
}

fn normalize_vec4(n: Vec4Numbers, v: vec4<f32>) -> vec4<f32> {
    let normalized = (v - n.means) * n.inverses;
    if AFFINE != 0u {
        return normalized * n.scales + n.shifts;
    }
    return normalized;
}

fn normalize(at: Place, v: f32) -> f32 {
    let n = group_stats[at.group];
    let normalized = (v - n.x) * n.y;
    if AFFINE != 0u {
        return normalized * scale[at.channel] + shift[at.channel];
    }
    return normalized;
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
    let stride = groups.x * groups.y * GROUP;
    let keeps_numbers = repeats_channels(8u * stride);
    var has_numbers = false;
    for (var o = number_of_group * GROUP + lane; o < vec8_count(p.len); o += stride) {
        let live = elements_in_vec8(o, p.len);
        var v = x_vec8(o);
        if has_whole_vec8() {
            if !has_numbers {
                let at = place_of(8u * o);
                numbers[0] = numbers_of_vec4(at.channel, at.group);
                numbers[1] = numbers_of_vec4(at.channel + 4u, at.group + 4u * BATCH);
                has_numbers = keeps_numbers;
            }
            v[0] = normalize_vec4(numbers[0], v[0]);
            v[1] = normalize_vec4(numbers[1], v[1]);
        } else {
            var at = place_of(8u * o);
            for (var j = 0u; j < 8u; j += 1u) {
                var element = 0.0;
                if j < live {
                    element = normalize(at, v[0].x);
                }
                v = push_vec8(v, element);
                at = next_place(at);
            }
        }
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
