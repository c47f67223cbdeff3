// Parts of the sums over groups: of x, or of squared distances from the mean.

struct Params {
    split: Division,
    shape: Shape,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(7) var<storage, read> saved: array<f32>;
@group(0) @binding(8) var<storage, read_write> parts: array<Total>;

alias Total = f32;

/// 0 x, 1 squared distances.
override SECOND: u32;

fn nothing() -> Total {
    return 0.0;
}

fn join(a: Total, b: Total) -> Total {
    return a + b;
}

fn term(group: u32, m: u32) -> Total {
    let v = x_at(member(group, m));
    if SECOND == 0u {
        return v;
    }
    let distance = v - saved[group];
    return distance * distance;
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
