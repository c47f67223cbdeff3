// Operand of any type. Every kernel includes this once for each of its operands, under the operand's name, after the
// functions that read its memory. Needs half.wgsl; `OPERAND` is its type: a constant, or a parameter that replaces it.

override OPERAND: u32;

fn operand_word(i: u32) -> u32 {
    return operand_get(i >> 2u)[i & 3u];
}

/// Returns element i of the operand as it is stored: the bits of an f32, a half, a byte, a word.
fn operand_raw(i: u32) -> u32 {
    if OPERAND == TYPE_F16 {
        return (operand_word(i >> 1u) >> (16u * (i & 1u))) & 0xffffu;
    }
    if OPERAND == TYPE_U8 {
        return (operand_word(i >> 2u) >> (8u * (i & 3u))) & 0xffu;
    }
    return operand_word(i);
}

/// Returns element i of the operand, converted to f32.
fn operand_at(i: u32) -> f32 {
    let raw = operand_raw(i);
    if OPERAND == TYPE_F16 {
        return bits_as_float(half_to_float_bits(raw));
    }
    if OPERAND == TYPE_F32 {
        return bits_as_float(raw);
    }
    return f32(raw);
}

/// Returns four elements of the operand from `i + ahead` on, where i is a multiple of 4 and `ahead` one of 8; beyond the
/// end of a buffer anything. In a loop over `ahead`, what depends on i is computed once.
fn operand_aligned_vec4(i: u32, ahead: u32) -> vec4<f32> {
    if OPERAND == TYPE_F16 {
        let words = operand_get((i >> 3u) + (ahead >> 3u));
        let two = select(words.xy, words.zw, (i & 4u) != 0u);
        return vec4<f32>(unpack_halves(two.x), unpack_halves(two.y));
    }
    if OPERAND == TYPE_U8 {
        return vec4<f32>((vec4<u32>(operand_word((i + ahead) >> 2u)) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu));
    }
    let words = operand_get((i >> 2u) + (ahead >> 2u));
    if OPERAND == TYPE_F32 {
        return bitcast<vec4<f32>>(words);
    }
    return vec4<f32>(words);
}

/// Returns elements i to i + 3 of the operand, of which `live` are needed (1 or more); the others may be anything.
fn operand_vec4(i: u32, live: u32) -> vec4<f32> {
    if (i & 3u) == 0u {
        return operand_aligned_vec4(i, 0u);
    }
    var four = vec4<f32>(operand_at(i), 0.0, 0.0, 0.0);
    if live > 1u { four.y = operand_at(i + 1u); }
    if live > 2u { four.z = operand_at(i + 2u); }
    if live > 3u { four.w = operand_at(i + 3u); }
    return four;
}

/// Returns elements 8o to 8o + 7 of the operand; beyond the end of a buffer anything.
fn operand_vec8(o: u32) -> array<vec4<f32>, 2> {
    if OPERAND == TYPE_F16 {
        let words = operand_get(o);
        return array<vec4<f32>, 2>(
            vec4<f32>(unpack_halves(words.x), unpack_halves(words.y)),
            vec4<f32>(unpack_halves(words.z), unpack_halves(words.w)),
        );
    }
    if OPERAND == TYPE_U8 {
        return array<vec4<f32>, 2>(operand_aligned_vec4(0u, 8u * o), operand_aligned_vec4(4u, 8u * o));
    }
    let lo = operand_get(2u * o);
    let hi = operand_get(2u * o + 1u);
    if OPERAND == TYPE_F32 {
        return array<vec4<f32>, 2>(bitcast<vec4<f32>>(lo), bitcast<vec4<f32>>(hi));
    }
    return array<vec4<f32>, 2>(vec4<f32>(lo), vec4<f32>(hi));
}
