// Test of the conversions that a device's kernels use, against those by integers: each half decoded, and for each half
// eight f32 encoded. Needs half.wgsl and the conversions under test.

struct Params {
    /// Number of a half, and of an encoded f32, for which another one is converted: faults that tests plant.
    decode_fault: u32,
    encode_fault: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
/// Number of wrong results: decoded, encoded.
@group(0) @binding(3) var<storage, read_write> wrong: array<atomic<u32>>;

/// Returns the bits of f32 number `i` of the eight that are encoded for a half.
fn case_to_encode(half: u32, i: u32) -> u32 {
    let sign = (half & F16_SIGN) << 16u;
    let value = decode_by_integers(half);
    // Halfway to the next half: an odd multiple of 2^-25 below the least normal half, else one digit more.
    let m = half & (F16_SIGN - 1u);
    let subnormal_tie = sign | (bitcast<u32>(f32(2u * m + 1u)) - (25u << 23u));
    let tie = select(value + (1u << 12u), subnormal_tie, m < 0x400u);
    switch i {
        case 0u: { return value; }
        case 1u: { return value + 1u; }
        case 2u: { return value - 1u; }
        case 3u: { return tie; }
        case 4u: { return tie + 1u; }
        case 5u: { return tie - 1u; }
        // All exponents: f32 subnormals, values below and above all halves, and NaN.
        case 6u: { return (half << 16u) | ((half * 40503u) & 0xffffu); }
        default: { return (half << 16u) | 1u; }
    }
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let half = id.x;
    let other = (half * 40503u) & 0xffffu;
    // Both places of a word. A planted fault converts the half whose lowest bit differs, or the f32 of the other sign.
    let fault = u32(half == p.decode_fault);
    let two = bitcast<vec2<u32>>(unpack_halves((half ^ fault) | (other << 16u)));
    let one = half_to_float_bits(other);
    let right = vec2<u32>(decode_by_integers(half), decode_by_integers(other));
    if any(two != right) || one != right.y {
        atomicAdd(&wrong[0], 1u);
    }
    for (var i = 0u; i < 8u; i += 1u) {
        let x = case_to_encode(half, i);
        let y = case_to_encode(other, i);
        let fault = u32(8u * half + i == p.encode_fault) << 31u;
        let packed = pack_halves(x ^ fault, y);
        let both = encode_by_integers(x) | (encode_by_integers(y) << 16u);
        if packed != both || float_to_half_bits(y) != both >> 16u {
            atomicAdd(&wrong[1], 1u);
        }
    }
}
