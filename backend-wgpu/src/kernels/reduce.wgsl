// First pass of reductions `[outer, len, inner] → [outer, inner]`: partial results, for reduce_end.wgsl.

struct Params {
    reduction: ReduceShape,
    inner: u32,
    /// Index of the first result of this launch.
    start: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(8) var<storage, read_write> partial_totals: array<Total>;

fn load_term(result: u32, l: u32) -> Total {
    let i = p.start + result;
    let v = x_at((i / p.inner * p.reduction.len + l) * p.inner + i % p.inner);
    if uses_ranks() {
        return vec2<u32>(order_rank(bitcast<u32>(v)), l);
    }
    return vec2<u32>(bitcast<u32>(select(v, v * v, OP == REDUCE_SQUARES)), 0u);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let s = assign_work(group_number(group, groups), lane);
    let total = workgroup_reduce(s, lane);
    if s.is_live && s.thread == 0u {
        partial_totals[s.part * p.reduction.results + s.result] = total;
    }
}
