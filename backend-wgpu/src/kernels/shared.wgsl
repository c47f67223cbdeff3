// Stores of results anywhere: neighbours in a word may belong to another invocation. A half is written by clearing and
// setting its own bits, each at once, so that two writers of one word never lose each other's. Needs store.wgsl; `Y` is
// the type of y.

override Y: u32;

/// Replaces the bits of `mask`, of which no other invocation writes any.
fn put_bits(word: u32, mask: u32, bits: u32) {
    y_and(word, ~mask);
    y_or(word, bits);
}

/// What stands in element i.
fn before(i: u32) -> f32 {
    if Y == TYPE_F16 {
        return number(float_bits((y_load(i >> 1u) >> (16u * (i & 1u))) & 0xffffu));
    }
    return number(y_load(i));
}

/// What stands in element i, if the store adds to it.
fn summand(e: Epilogue, i: u32) -> f32 {
    if e.add {
        return before(i);
    }
    return 0.0;
}

fn put_half(i: u32, s: u32) {
    let shift = 16u * (i & 1u);
    put_bits(i >> 1u, 0xffffu << shift, half_bits(s) << shift);
}

/// Stores one element.
fn put(e: Epilogue, i: u32, v: f32) {
    let s = finish(e, v, summand(e, i));
    if Y == TYPE_F16 {
        put_half(i, s);
    } else {
        y_store(i, s);
    }
}

/// Stores `live` elements (0 to 4) from element i on.
fn put4(e: Epilogue, i: u32, v: vec4<f32>, live: u32) {
    if live < 4u || Y != TYPE_F16 {
        if live > 0u { put(e, i, v.x); }
        if live > 1u { put(e, i + 1u, v.y); }
        if live > 2u { put(e, i + 2u, v.z); }
        if live > 3u { put(e, i + 3u, v.w); }
        return;
    }
    let a = finish(e, v.x, summand(e, i));
    let b = finish(e, v.y, summand(e, i + 1u));
    let c = finish(e, v.z, summand(e, i + 2u));
    let d = finish(e, v.w, summand(e, i + 3u));
    if (i & 1u) == 0u {
        // Whole words, which are nobody else's.
        y_store(i >> 1u, half_bits(a) | (half_bits(b) << 16u));
        y_store((i >> 1u) + 1u, half_bits(c) | (half_bits(d) << 16u));
    } else {
        put_half(i, a);
        y_store((i >> 1u) + 1u, half_bits(b) | (half_bits(c) << 16u));
        put_half(i + 3u, d);
    }
}
