// dx = (u − mean(u) − x̂ · mean(u · x̂)) / √(var + eps), u = dy · scale[c]. With given statistics both means are 0.

struct Params {
    store: Store,
    shape: Shape,
    len: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(7) var<storage, read> scale: array<f32>;
@group(0) @binding(9) var<storage, read> group_stats: array<vec4<f32>>;

/// 1 if the normalisation has a learned scale.
override SCALED: u32;

/// Numbers of four elements: members of `group_stats`, and scales.
struct Vec4Numbers {
    stats: mat4x4<f32>,
    scales: vec4<f32>,
}

var<private> numbers: array<Vec4Numbers, 2>;

/// Returns the numbers of four channels; their members of `group_stats` become vectors.
fn numbers_of_vec4(channel: u32, group: u32) -> Vec4Numbers {
    var n = Vec4Numbers();
    if BATCH != 0u {
        n.stats = transpose(mat4x4<f32>(
            group_stats[group],
            group_stats[group + 1u],
            group_stats[group + 2u],
            group_stats[group + 3u],
        ));
    } else {
        let own = group_stats[group];
        n.stats = mat4x4<f32>(vec4<f32>(own.x), vec4<f32>(own.y), vec4<f32>(own.z), vec4<f32>(own.w));
    }
    if SCALED != 0u {
        n.scales = vec4<f32>(scale[channel], scale[channel + 1u], scale[channel + 2u], scale[channel + 3u]);
    }
    return n;
}

fn gradient_vec4(n: Vec4Numbers, x: vec4<f32>, dy: vec4<f32>) -> vec4<f32> {
    var u = dy;
    if SCALED != 0u {
        u *= n.scales;
    }
    return (u - n.stats[2] - (x - n.stats[0]) * n.stats[1] * n.stats[3]) * n.stats[1];
}

fn gradient(at: Place, x: f32, dy: f32) -> f32 {
    let n = group_stats[at.group];
    var u = dy;
    if SCALED != 0u {
        u *= scale[at.channel];
    }
    return (u - n.z - (x - n.x) * n.y * n.w) * n.y;
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
        var x = x_vec8(o);
        var v = dy_vec8(o);
        if has_whole_vec8() {
            if !has_numbers {
                let at = place_of(8u * o);
                numbers[0] = numbers_of_vec4(at.channel, at.group);
                numbers[1] = numbers_of_vec4(at.channel + 4u, at.group + 4u * BATCH);
                has_numbers = keeps_numbers;
            }
            v[0] = gradient_vec4(numbers[0], x[0], v[0]);
            v[1] = gradient_vec4(numbers[1], x[1], v[1]);
        } else {
            var at = place_of(8u * o);
            for (var j = 0u; j < 8u; j += 1u) {
                var element = 0.0;
                if j < live {
                    element = gradient(at, x[0].x, v[0].x);
                }
                x = push_vec8(x, 0.0);
                v = push_vec8(v, element);
                at = next_place(at);
            }
        }
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
