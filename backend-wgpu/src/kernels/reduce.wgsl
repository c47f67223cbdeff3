// Parts of reductions `[outer, len, inner] → [outer, inner]`, for reduce_end.wgsl.

struct Params {
    split: Division,
    inner: u32,
    /// The first result of this launch.
    start: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(8) var<storage, read_write> parts: array<Total>;

fn term(result: u32, l: u32) -> Total {
    let i = p.start + result;
    let v = x_at((i / p.inner * p.split.len + l) * p.inner + i % p.inner);
    if ranks() {
        return vec2<u32>(rank(bitcast<u32>(v)), l);
    }
    return vec2<u32>(bitcast<u32>(select(v, v * v, OP == REDUCE_SQUARES)), 0u);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let s = share(group_number(group, groups), lane);
    let total = together(s, lane);
    if s.live && s.thread == 0u {
        parts[s.part * p.split.results + s.result] = total;
    }
}
