// Natural logarithm to about an ulp; drivers' `log` are many ulp off. Needs half.wgsl.

/// Computes ln x of a positive finite x, by its bits: f32 subnormals too.
fn logarithm(x: u32) -> f32 {
    var bits = x;
    var below = 0;
    if bits < F32_HIDDEN {
        // The digits of a subnormal are shifted up. An exponent field of 1 means 2^-126, and each place is a factor of
        // 2.
        let shift = countLeadingZeros(bits) - 8u;
        bits = bits << shift;
        below = i32(shift);
    }
    // x = m · 2^e with m in [√½, √2), whose logarithm is a polynomial in m − 1.
    let shifted = bits - 0x3f3504f3u;
    let e = f32((bitcast<i32>(shifted) >> 23u) - below);
    let f = bits_as_float((shifted & (F32_HIDDEN - 1u)) + 0x3f3504f3u) - 1.0;
    let z = f * f;
    var p = 0.0714975386;
    p = p * f - 0.115712007;
    p = p * f + 0.116615111;
    p = p * f - 0.124110507;
    p = p * f + 0.142499365;
    p = p * f - 0.166684802;
    p = p * f + 0.200007075;
    p = p * f - 0.24999989;
    p = p * f + 0.333333312;
    // ln 2 in two parts: the first has so few digits that its product with e is exact.
    return (f - (0.5 * z - (p * f * z + e * LN2_SMALL))) + e * LN2_LARGE;
}

const LN2_LARGE: f32 = 0.693359375;
const LN2_SMALL: f32 = -2.12194440e-4;
