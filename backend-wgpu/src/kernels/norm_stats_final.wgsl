// Means, or variances, from their parts.

struct Params {
    split: Division,
    /// Where the first one goes.
    start: u32,
    /// Elements of a group.
    size: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> saved: array<f32>;
@group(0) @binding(8) var<storage, read> parts: array<Total>;

alias Total = f32;

fn nothing() -> Total {
    return 0.0;
}

fn join(a: Total, b: Total) -> Total {
    return a + b;
}

fn term(group: u32, part: u32) -> Total {
    return parts[part * p.split.results + group];
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
        saved[p.start + s.result] = divide(total, f32(p.size));
    }
}
