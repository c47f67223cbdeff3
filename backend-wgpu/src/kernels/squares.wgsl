// Sums of squares of up to six buffers, for global_norm.wgsl. A square may leave f32, so there are three sums: of what
// is large, times 2^-88, of what is not, and of what is small, times 2^88 (Blue, ACM TOMS 4, 1978). Sums of 2^32 squares
// of each stay normal numbers.

struct Params {
    /// Elements of each buffer.
    lens: array<vec4<u32>, 2>,
    /// The first workgroup of each buffer.
    starts: array<vec4<u32>, 2>,
    /// Where the first workgroup leaves its sums.
    part: u32,
    /// Workgroups.
    count: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(5) var<storage, read> gradients0: array<u32>;
@group(0) @binding(6) var<storage, read> gradients1: array<u32>;
@group(0) @binding(7) var<storage, read> gradients2: array<u32>;
@group(0) @binding(8) var<storage, read> gradients3: array<u32>;
@group(0) @binding(9) var<storage, read> gradients4: array<u32>;
@group(0) @binding(10) var<storage, read> gradients5: array<u32>;
@group(0) @binding(11) var<storage, read_write> parts: array<vec4<f32>>;

/// Elements of an invocation.
const EACH: u32 = 64u;
/// Bits of 2^40 and 2^-48.
const LARGE: u32 = 0x53800000u;
const SMALL: u32 = 0x27800000u;

var<workgroup> sums: array<vec4<f32>, GROUP>;

fn bits_of(buffer: u32, i: u32) -> u32 {
    switch buffer {
        case 0u: { return gradients0[i]; }
        case 1u: { return gradients1[i]; }
        case 2u: { return gradients2[i]; }
        case 3u: { return gradients3[i]; }
        case 4u: { return gradients4[i]; }
        default: { return gradients5[i]; }
    }
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number_of_group = group_number(group, groups);
    var buffer = 0u;
    for (var j = 1u; j < 6u; j += 1u) {
        buffer = select(buffer, j, number_of_group >= p.starts[j >> 2u][j & 3u]);
    }
    let len = p.lens[buffer >> 2u][buffer & 3u];
    let start = (number_of_group - p.starts[buffer >> 2u][buffer & 3u]) * (EACH * GROUP) + lane;
    var sum = vec4<f32>();
    for (var k = 0u; k < EACH; k += 1u) {
        let i = start + k * GROUP;
        if i < len {
            let m = bits_of(buffer, i) & F32_MAGNITUDE;
            if m >= LARGE {
                let v = number(scaled_bits(m, -88));
                sum.x += v * v;
            } else if m >= SMALL {
                sum.y += number(m) * number(m);
            } else {
                let v = number(scaled_bits(m, 88));
                sum.z += v * v;
            }
        }
    }
    sums[lane] = sum;
    workgroupBarrier();
    for (var half = GROUP / 2u; half != 0u; half /= 2u) {
        if lane < half {
            sums[lane] += sums[lane + half];
        }
        workgroupBarrier();
    }
    if lane == 0u && number_of_group < p.count {
        parts[p.part + number_of_group] = sums[0];
    }
}
