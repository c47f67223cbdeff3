// Stores of results that lie side by side, eight at a time: whoever stores element 8o owns all words up to 8o + 7.
// Needs store.wgsl; `Y` is the type of y.

override Y: u32;

/// How many of `len` elements lie in eighth `o`, at most 8.
fn live_of(o: u32, len: u32) -> u32 {
    return min(len - 8u * o, 8u);
}

/// Eights in `len` elements.
fn eights(len: u32) -> u32 {
    return (len >> 3u) + u32((len & 7u) != 0u);
}

fn finish4(e: Epilogue, v: vec4<f32>, before: vec4<f32>, live: u32) -> vec4<u32> {
    var s = vec4<u32>();
    if live > 0u { s.x = finish(e, v.x, before.x); }
    if live > 1u { s.y = finish(e, v.y, before.y); }
    if live > 2u { s.z = finish(e, v.z, before.z); }
    if live > 3u { s.w = finish(e, v.w, before.w); }
    return s;
}

/// Stores `live` elements (1 to 8) from element 8o on: first those of `lo`, then those of `hi`.
fn put8(e: Epilogue, o: u32, lo: vec4<f32>, hi: vec4<f32>, live: u32) {
    let more = max(live, 4u) - 4u;
    if Y == TYPE_F16 {
        let old = y_get(o);
        var before = array<vec4<f32>, 2>();
        if e.add {
            before[0] = vec4<f32>(two_halves(old.x), two_halves(old.y));
            before[1] = vec4<f32>(two_halves(old.z), two_halves(old.w));
        }
        let a = finish4(e, lo, before[0], live);
        let b = finish4(e, hi, before[1], more);
        let fresh = vec4<u32>(
            half_bits(a.x) | (half_bits(a.y) << 16u),
            half_bits(a.z) | (half_bits(a.w) << 16u),
            half_bits(b.x) | (half_bits(b.y) << 16u),
            half_bits(b.z) | (half_bits(b.w) << 16u),
        );
        // What lies behind the last element stays.
        var words = select(old, fresh, vec4<bool>(live > 1u, live > 3u, live > 5u, live > 7u));
        if (live & 1u) == 1u {
            let c = live >> 1u;
            words[c] = (old[c] & 0xffff0000u) | (fresh[c] & 0xffffu);
        }
        y_set(o, words);
    } else {
        let old = y_get(2u * o);
        let a = finish4(e, lo, bitcast<vec4<f32>>(old), live);
        y_set(2u * o, select(old, a, vec4<bool>(live > 0u, live > 1u, live > 2u, live > 3u)));
        if more > 0u {
            let old = y_get(2u * o + 1u);
            let b = finish4(e, hi, bitcast<vec4<f32>>(old), more);
            y_set(2u * o + 1u, select(old, b, vec4<bool>(more > 0u, more > 1u, more > 2u, more > 3u)));
        }
    }
}
