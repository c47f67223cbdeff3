// Sums of squares of gradients, for global_norm.wgsl. A square may exceed f32's range, so there are three sums: of
// large values times 2^-88, of medium values, and of small values times 2^88 (Blue, ACM TOMS 4, 1978). Sums of 2^32
// squares of each kind stay normal numbers.

struct Params {
    /// Number of gradients whose squares are summed.
    count: u32,
    /// Number of workgroups of the launch.
    groups: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(5) var<storage, read> gradients: array<u32>;
/// Three sums of squares of each workgroup, in the order of the gradients.
@group(0) @binding(11) var<storage, read_write> parts: array<vec4<f32>>;

/// Number of elements of gradients that one invocation sums.
const ELEMENTS_PER_THREAD: u32 = 64u;
/// Bits of 2^40 and 2^-48.
const LARGE_MIN_BITS: u32 = 0x53800000u;
const SMALL_END_BITS: u32 = 0x27800000u;

var<workgroup> sums: array<vec4<f32>, GROUP>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number_of_group = group_number(group, groups);
    let one = tensors[find_tensor(number_of_group, p.count)];
    let own = number_of_group - one.first_group;
    let start = own * (ELEMENTS_PER_THREAD * GROUP) + lane;
    var sum = vec4<f32>();
    for (var k = 0u; k < ELEMENTS_PER_THREAD; k += 1u) {
        let i = start + k * GROUP;
        if i < one.len {
            let m = gradients[4u * one.offsets[0] + i] & F32_MAGNITUDE;
            if m >= LARGE_MIN_BITS {
                let v = bits_as_float(scaled_bits(m, -88));
                sum.x += v * v;
            } else if m >= SMALL_END_BITS {
                sum.y += bits_as_float(m) * bits_as_float(m);
            } else {
                let v = bits_as_float(scaled_bits(m, 88));
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
    if lane == 0u && number_of_group < p.groups {
        parts[one.groups_before + own] = sums[0];
    }
}
