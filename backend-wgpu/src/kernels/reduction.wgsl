// Accumulator of reductions. Reference: core's `ReduceOp`. Needs math.wgsl.

/// Bits of a sum, or the order rank of a value and its index.
alias Total = vec2<u32>;

/// 0 sum, 1 mean, 2 largest, 3 sum of squares, 4 index of the largest.
override OP: u32;

fn uses_ranks() -> bool {
    return OP == REDUCE_MAX || OP == REDUCE_ARGMAX;
}

/// Returns the neutral element of the reduction: for maxima, below all ranks and after all indices.
fn identity() -> Total {
    return select(vec2<u32>(), vec2<u32>(0u, 0xffffffffu), uses_ranks());
}

fn combine(a: Total, b: Total) -> Total {
    if uses_ranks() {
        return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
    }
    return vec2<u32>(bitcast<u32>(bits_as_float(a.x) + bits_as_float(b.x)), 0u);
}
