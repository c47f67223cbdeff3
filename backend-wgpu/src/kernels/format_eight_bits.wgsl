// Rounding of f32 to a format of eight bits, to nearest even, by integers: a driver may simplify sums of f32 that round.
// Needs FORMAT_DROPPED_DIGITS, the binary digits that f32 has beyond the format, FORMAT_LEAST_EXPONENT, the exponent field of
// the format's least normal number, and FORMAT_OVERFLOWED, what becomes of larger values than the format has.

fn to_format(s: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(scalar_to_format(s.x), scalar_to_format(s.y), scalar_to_format(s.z), scalar_to_format(s.w));
}

fn scalar_to_format(s: u32) -> u32 {
    let m = s & F32_MAGNITUDE;
    let sign = s ^ m;
    if m >= OVERFLOW_START {
        return sign | select(FORMAT_OVERFLOWED, m, m > F32_INFINITY);
    }
    let field = m >> 23u;
    // Below the least normal number more digits are dropped. 25 leave nothing of any number.
    let dropped = min(FORMAT_DROPPED_DIGITS + max(field, FORMAT_LEAST_EXPONENT) - field, 25u);
    let digits = (m & 0x7fffffu) | 0x800000u;
    let is_odd = (digits >> dropped) & 1u;
    let kept = (digits + (1u << (dropped - 1u)) - 1u + is_odd) >> dropped;
    if kept == 0u {
        return sign;
    }
    // An integer of few digits is exact as f32; its exponent is moved to the place of the last digit.
    return sign | (bitcast<u32>(f32(kept)) + ((field + dropped - 150u) << 23u));
}
