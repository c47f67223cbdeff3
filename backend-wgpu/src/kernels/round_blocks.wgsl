// y[i] = x[i], rounded to a format of eight bits in blocks of a row, which have an exponent each. Every invocation rounds
// whole blocks: it finds the largest finite magnitude, then rounds value by value. Reference: core's `BlockFormat`.

struct Params {
    store: Store,
    rows: u32,
    columns: u32,
    /// Values of a block, and blocks of a row; the last of these may be shorter.
    size: u32,
    blocks: u32,
    /// 1 if the exponent of a block whose largest value would saturate is one more.
    rounds_up: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

/// Exponent field of the largest number of the format.
const LARGEST_FIELD: u32 = FORMAT_LARGEST >> 23u;
const MIN_BLOCK_EXPONENT: i32 = -127;

/// Returns the bits of value i at the exponent of the store, with the destination's added if asked.
fn value_bits(e: Epilogue, i: u32) -> u32 {
    let raw = x_raw(i);
    var u = raw;
    if X == TYPE_F16 {
        u = half_to_float_bits(raw);
    }
    u = scaled_bits(u, e.step);
    if e.add {
        u = bitcast<u32>(bits_as_float(y_get(i)) + bits_as_float(u));
    }
    return u;
}

fn block_exponent(amax: u32) -> i32 {
    if amax == 0u {
        return 0;
    }
    let saturates = (amax & 0x7fffffu) > (FORMAT_LARGEST & 0x7fffffu);
    let more = select(0, 1, p.rounds_up != 0u && saturates);
    return max(i32(amax >> 23u) - i32(LARGEST_FIELD) + more, MIN_BLOCK_EXPONENT);
}

/// Returns the bits of a value as the format is to round it: a number that is not zero stays one, and none is too large.
fn to_block(u: u32, k: i32) -> u32 {
    let s = scaled_bits(u, -k);
    let m = s & F32_MAGNITUDE;
    if (u & F32_MAGNITUDE) == 0u || m >= F32_INFINITY {
        return s;
    }
    return (s ^ m) | clamp(m, F32_HIDDEN, FORMAT_LARGEST);
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
    for (var block = number_of_group * GROUP + lane; block < p.rows * p.blocks; block += groups.x * groups.y * GROUP) {
        let row = block / p.blocks;
        let first = (block - row * p.blocks) * p.size;
        let start = row * p.columns + first;
        let end = start + min(p.size, p.columns - first);
        var amax = 0u;
        for (var i = start; i < end; i += 1u) {
            let m = value_bits(e, i) & F32_MAGNITUDE;
            amax = max(amax, select(0u, m, m < F32_INFINITY));
        }
        let k = block_exponent(amax);
        for (var i = start; i < end; i += 1u) {
            let s = to_block(value_bits(e, i), k);
            if e.detail != 0u {
                observe_vec4(vec4<u32>(s, 0u, 0u, 0u), e.detail, 1u);
            }
            y_set(i, scaled_bits(scalar_to_format(s), k));
        }
    }
    end_store(lane, number_of_group);
}
