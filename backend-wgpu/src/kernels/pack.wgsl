// y[i] = code of x[i], of halves that are values of a format of eight bits. Four codes are a word.

struct Params {
    len: u32,
}

/// 1 for E4M3, 0 for E5M2.
override IS_E4M3: u32;

@group(0) @binding(0) var<uniform> p: Params;

/// Returns the code of a half, whose upper 16 bits are 0. A NaN gets the largest code.
fn code_of(h: u32) -> u32 {
    let m = h & 0x7fffu;
    // E5M2 is the upper half of a half.
    var code = select(m >> 8u, 0x7fu, m > 0x7c00u);
    if IS_E4M3 != 0u {
        // Exponents of normal numbers are eight lower, and subnormal numbers are multiples of 2^-9.
        let multiple = (0x400u | (m & 0x3ffu)) >> (16u - min(m >> 10u, 8u));
        code = select(min((m - 0x2000u) >> 7u, 0x7fu), multiple, m < 0x2400u);
    }
    return ((h >> 8u) & 0x80u) | code;
}

/// Returns the codes of two packed halves.
fn codes_of(pair: u32) -> u32 {
    return code_of(pair & 0xffffu) | (code_of(pair >> 16u) << 8u);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let stride = groups.x * groups.y * GROUP;
    let words = (p.len >> 2u) + u32((p.len & 3u) != 0u);
    for (var i = group_number(group, groups) * GROUP + lane; i < words; i += stride) {
        let live = min(p.len - 4u * i, 4u);
        var codes = codes_of(x_get(2u * i));
        if live > 2u {
            codes |= codes_of(x_get(2u * i + 1u)) << 16u;
        }
        if live < 4u {
            // Bytes behind the last code stay.
            let mask = (1u << (8u * live)) - 1u;
            codes = (y_get(i) & ~mask) | (codes & mask);
        }
        y_set(i, codes);
    }
}
