// The norm, from the sums of squares.wgsl: B · 2^176 + M + S · 2^-176 under the root.

struct Params {
    count: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(11) var<storage, read> parts: array<vec4<f32>>;

var<workgroup> sums: array<vec4<f32>, GROUP>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    var sum = vec4<f32>();
    for (var i = lane; i < p.count; i += GROUP) {
        sum += parts[i];
    }
    sums[lane] = sum;
    workgroupBarrier();
    for (var half = GROUP / 2u; half != 0u; half /= 2u) {
        if lane < half {
            sums[lane] += sums[lane + half];
        }
        workgroupBarrier();
    }
    if lane == 0u {
        let total = bitcast<vec4<u32>>(sums[0]);
        // A sum is 0, at least 2^-122, ∞ or NaN. S is negligible compared with B.
        if total.x != 0u {
            let root = square_root(bits_as_float(total.x) + bits_as_float(scaled_bits(total.y, -176)));
            y[0] = bits_as_float(scaled_bits(bitcast<u32>(root), 88));
        } else if total.y != 0u {
            y[0] = square_root(bits_as_float(total.y) + bits_as_float(scaled_bits(total.z, -176)));
        } else {
            y[0] = bits_as_float(scaled_bits(bitcast<u32>(square_root(bits_as_float(total.z))), -88));
        }
    }
}
