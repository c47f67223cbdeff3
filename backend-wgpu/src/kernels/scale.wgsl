// 2^k by exponent arithmetic, with the bits of core's `Factor`: rounded once, to nearest even, where the result is an
// f32 subnormal. Needs half.wgsl.

/// Returns `to − from` of two exponents, saturating and clamped to the range that changes a result.
fn exponent_step(origin: i32, site: i32) -> i32 {
    let k = site - origin;
    // Signs that differ, and a result whose sign is not that of the first: the difference left i32.
    if ((site ^ origin) & (site ^ k)) < 0 {
        return select(MAX_STEP, -MAX_STEP, site < 0);
    }
    return clamp(k, -MAX_STEP, MAX_STEP);
}

/// Returns the bits of x · 2^k; ±0, ±∞ and NaN stay.
fn scaled_bits(x: u32, k: i32) -> u32 {
    let field = i32((x & F32_MAGNITUDE) >> 23u);
    // A normal number that stays normal keeps its digits.
    if min(field, field + k) > 0 && max(field, field + k) < 255 {
        return x + (bitcast<u32>(k) << 23u);
    }
    return scaled_special_bits(x, k);
}

/// Returns what `scaled_bits` does for `live` of four numbers. Its common case has no branch for each number.
fn scaled_vec4(x: vec4<u32>, k: i32, live: u32) -> vec4<u32> {
    if k == 0 {
        return x;
    }
    let m = x & vec4<u32>(F32_MAGNITUDE);
    let field = vec4<i32>(m >> vec4<u32>(23u));
    let moved = field + vec4<i32>(k);
    let is_normal = (min(field, moved) > vec4<i32>(0)) & (max(field, moved) < vec4<i32>(255));
    let is_zero = m == vec4<u32>(0u);
    var s = select(x + vec4<u32>(bitcast<u32>(k) << 23u), x, is_zero);
    let is_special = !(is_normal | is_zero);
    if any(is_special) {
        // A place is selected by comparisons, because a dynamic index may move a vector to memory.
        for (var j = 0u; j < live; j += 1u) {
            let is_place = vec4<u32>(0u, 1u, 2u, 3u) == vec4<u32>(j);
            s = select(s, vec4<u32>(scaled_special_bits(place_of_vec4(x, j), k)), is_place & is_special);
        }
    }
    return s;
}

/// Returns number j of four.
fn place_of_vec4(x: vec4<u32>, j: u32) -> u32 {
    return select(select(x.x, x.y, j == 1u), select(x.z, x.w, j == 3u), j > 1u);
}

/// Returns the bits of x · 2^k for every x.
fn scaled_special_bits(x: u32, k: i32) -> u32 {
    let sign = x & ~F32_MAGNITUDE;
    let m = x & F32_MAGNITUDE;
    if k == 0 || m == 0u || m >= F32_INFINITY {
        return x;
    }
    var digits = m & (F32_HIDDEN - 1u);
    var field = i32(m >> 23u);
    if field == 0 {
        let shift = countLeadingZeros(digits) - 8u;
        digits = digits << shift;
        field = 1 - i32(shift);
    }
    field += k;
    if field >= 255 {
        return sign | F32_INFINITY;
    }
    if field >= 1 {
        return sign | (u32(field) << 23u) | (digits & (F32_HIDDEN - 1u));
    }
    return sign | round_shift(digits | F32_HIDDEN, u32(min(1 - field, 25)));
}
