// Stores of results anywhere: neighbours in a word may belong to another invocation. A half is written by clearing and
// setting its own bits, each at once, so that two writers of one word never lose each other's. Needs
// store.wgsl.

/// Replaces the bits of `mask`, of which no other invocation writes any.
fn store_bits(word: u32, mask: u32, bits: u32) {
    y_and(word, ~mask);
    y_or(word, bits);
}

/// Returns the value of element i before the store, or 0 unless the store adds to it.
fn previous_value(e: Epilogue, i: u32) -> f32 {
    if !e.add {
        return 0.0;
    }
    if e.dtype == TYPE_F16 {
        return bits_as_float(half_to_float_bits((y_load(i >> 1u) >> (16u * (i & 1u))) & 0xffffu));
    }
    return bits_as_float(y_load(i));
}

fn store_half(i: u32, s: u32) {
    let shift = 16u * (i & 1u);
    store_bits(i >> 1u, 0xffffu << shift, float_to_half_bits(s) << shift);
}

/// Writes the finished bits of one element.
fn store_finished(e: Epilogue, i: u32, s: u32) {
    if e.dtype == TYPE_F16 {
        store_half(i, s);
    } else {
        y_store(i, s);
    }
}

/// Stores one element through the epilogue.
fn store_scalar(e: Epilogue, i: u32, v: f32) {
    store_finished(e, i, finish_scalar(e, v, previous_value(e, i)));
}

/// Stores `live` elements (0 to 4) from element i on.
fn store_vec4(e: Epilogue, i: u32, v: vec4<f32>, live: u32) {
    var before = vec4<f32>();
    if e.add {
        if live > 0u { before.x = previous_value(e, i); }
        if live > 1u { before.y = previous_value(e, i + 1u); }
        if live > 2u { before.z = previous_value(e, i + 2u); }
        if live > 3u { before.w = previous_value(e, i + 3u); }
    }
    let s = finish_vec4(e, v, before, live);
    if live < 4u || e.dtype != TYPE_F16 {
        if live > 0u { store_finished(e, i, s.x); }
        if live > 1u { store_finished(e, i + 1u, s.y); }
        if live > 2u { store_finished(e, i + 2u, s.z); }
        if live > 3u { store_finished(e, i + 3u, s.w); }
    } else if (i & 1u) == 0u {
        // Whole words, which no other invocation writes.
        y_store(i >> 1u, pack_halves(s.x, s.y));
        y_store((i >> 1u) + 1u, pack_halves(s.z, s.w));
    } else {
        store_half(i, s.x);
        y_store((i >> 1u) + 1u, pack_halves(s.y, s.z));
        store_half(i + 3u, s.w);
    }
}
