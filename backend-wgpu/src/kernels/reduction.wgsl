// What reductions do with two values. Reference: core's `ReduceOp`. Needs math.wgsl.

/// Bits of a sum, or a rank and where it stands.
alias Total = vec2<u32>;

/// 0 sum, 1 mean, 2 largest, 3 sum of squares, 4 index of the largest.
override OP: u32;

fn ranks() -> bool {
    return OP == REDUCE_MAX || OP == REDUCE_ARGMAX;
}

/// Below all ranks, and behind all places.
fn nothing() -> Total {
    return select(vec2<u32>(), vec2<u32>(0u, 0xffffffffu), ranks());
}

fn join(a: Total, b: Total) -> Total {
    if ranks() {
        return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
    }
    return vec2<u32>(bitcast<u32>(number(a.x) + number(b.x)), 0u);
}
