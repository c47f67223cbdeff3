// Stores of contiguous results, eight at a time: the invocation that stores element 8o owns all words up to element 8o
// + 7. Needs store.wgsl.

/// Returns how many of `len` elements are in the 8-wide vector `o`, at most 8.
fn elements_in_vec8(o: u32, len: u32) -> u32 {
    return min(len - 8u * o, 8u);
}

/// Returns the number of 8-wide vectors that hold `len` elements, the last one possibly in part.
fn vec8_count(len: u32) -> u32 {
    return (len >> 3u) + u32((len & 7u) != 0u);
}

/// Stores `live` elements (1 to 8) from element 8o on: first those of `lo`, then those of `hi`.
fn store_vec8(e: Epilogue, o: u32, lo: vec4<f32>, hi: vec4<f32>, live: u32) {
    let is_half = e.dtype == TYPE_F16;
    let more = max(live, 4u) - 4u;
    // Words after the last element must not change, so they are read first, as is the first term of a sum. Eight whole
    // results need no read: without it a cast from f32 to half moves 6 bytes per element instead of 8.
    let is_whole = live == 8u;
    var first = vec4<u32>();
    var second = vec4<u32>();
    if !is_whole || e.add {
        if is_half {
            first = y_get(o);
        } else {
            first = y_get(2u * o);
            if more > 0u {
                second = y_get(2u * o + 1u);
            }
        }
    }
    var before = array<vec4<f32>, 2>(bitcast<vec4<f32>>(first), bitcast<vec4<f32>>(second));
    if is_half && e.add {
        before[0] = vec4<f32>(unpack_halves(first.x), unpack_halves(first.y));
        before[1] = vec4<f32>(unpack_halves(first.z), unpack_halves(first.w));
    }
    let a = finish_vec4(e, lo, before[0], min(live, 4u));
    let b = finish_vec4(e, hi, before[1], more);
    if is_half {
        var words = vec4<u32>(
            pack_halves(a.x, a.y),
            pack_halves(a.z, a.w),
            pack_halves(b.x, b.y),
            pack_halves(b.z, b.w),
        );
        if !is_whole {
            let halves = vec4<u32>(0u, 2u, 4u, 6u);
            let fresh = select(vec4<u32>(), vec4<u32>(0xffffu), vec4<u32>(live) > halves)
                | select(vec4<u32>(), vec4<u32>(0xffff0000u), vec4<u32>(live) > halves + vec4<u32>(1u));
            words = (first & ~fresh) | (words & fresh);
        }
        y_set(o, words);
    } else if is_whole {
        y_set(2u * o, a);
        y_set(2u * o + 1u, b);
    } else {
        let places = vec4<u32>(0u, 1u, 2u, 3u);
        y_set(2u * o, select(first, a, places < vec4<u32>(live)));
        if more > 0u {
            y_set(2u * o + 1u, select(second, b, places < vec4<u32>(more)));
        }
    }
}
