// y[i] = value of the code x[i] of a format of eight bits, as a half. Four codes are a word.

struct Params {
    len: u32,
}

/// 1 for E4M3, 0 for E5M2.
override IS_E4M3: u32;

@group(0) @binding(0) var<uniform> p: Params;

/// Returns the half of a code, whose upper 24 bits are 0.
fn half_of(code: u32) -> u32 {
    let m = code & 0x7fu;
    // E5M2 is the upper half of a half.
    var half = m << 8u;
    if IS_E4M3 != 0u {
        // Exponents of normal numbers are eight higher in a half. Subnormal numbers are multiples of 2^-9, which is 121
        // exponents below 1, whose exponent field is 127 in f32.
        let multiple = select((bitcast<u32>(f32(m)) >> 13u) - (121u << 10u), 0u, m == 0u);
        half = select((m << 7u) + 0x2000u, multiple, m < 8u);
        half = select(half, 0x7e00u, m == 0x7fu);
    }
    return ((code & 0x80u) << 8u) | half;
}

/// Returns two packed halves of the two lower codes of a word.
fn halves_of(codes: u32) -> u32 {
    return half_of(codes & 0xffu) | (half_of((codes >> 8u) & 0xffu) << 16u);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let stride = groups.x * groups.y * GROUP;
    let words = (p.len >> 1u) + (p.len & 1u);
    for (var i = group_number(group, groups) * GROUP + lane; i < words; i += stride) {
        var halves = halves_of(x_get(i >> 1u) >> (16u * (i & 1u)));
        if 2u * i + 1u == p.len {
            // The half behind the last value stays.
            halves = (y_get(i) & 0xffff0000u) | (halves & 0xffffu);
        }
        y_set(i, halves);
    }
}
