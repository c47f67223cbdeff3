// Loss and divisor, from the workgroups' sums.

struct Params {
    groups: u32,
    /// Divisor of the loss: one of the constants DIVIDE_*.
    divisor: u32,
    fixed: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(8) var<storage, read> partial_totals: array<vec4<u32>>;

var<workgroup> totals: array<vec4<u32>, GROUP>;

fn combine(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
    let sum = bitcast<vec2<f32>>(a.xy) + bitcast<vec2<f32>>(b.xy);
    return vec4<u32>(bitcast<vec2<u32>>(sum), a.z + b.z, 0u);
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    var total = vec4<u32>();
    for (var i = lane; i < p.groups; i += GROUP) {
        total = combine(total, partial_totals[i]);
    }
    totals[lane] = total;
    workgroupBarrier();
    for (var half = GROUP / 2u; half != 0u; half /= 2u) {
        if lane < half {
            totals[lane] = combine(totals[lane], totals[lane + half]);
        }
        workgroupBarrier();
    }
    if lane == 0u {
        let all = totals[0];
        var divisor = p.fixed;
        if p.divisor == DIVIDE_ROWS {
            divisor = f32(all.z);
        } else if p.divisor == DIVIDE_WEIGHTS {
            divisor = bits_as_float(all.y);
        }
        out_set(1u, divisor);
        if all.z == 0u {
            out_set(0u, 0.0);
        } else {
            out_set(0u, divide(bits_as_float(all.x), divisor));
        }
    }
}
