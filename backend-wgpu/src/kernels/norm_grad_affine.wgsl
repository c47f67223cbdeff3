// The gradient of scale, Σ dy · x̂, or of shift, Σ dy, from their parts.

struct Params {
    store: Store,
    split: Division,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(8) var<storage, read> parts: array<Total>;

alias Total = vec2<f32>;

/// Whether it is that of the scale.
override SCALE: u32;

fn nothing() -> Total {
    return vec2<f32>();
}

fn join(a: Total, b: Total) -> Total {
    return a + b;
}

fn term(channel: u32, part: u32) -> Total {
    return parts[part * p.split.results + channel];
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number_of_group = group_number(group, groups);
    begin_store(lane);
    let e = epilogue();
    let s = share(number_of_group, lane);
    let total = together(s, lane);
    if s.live && s.thread == 0u {
        put(e, s.result, select(total.x, total.y, SCALE != 0u));
    }
    end_store(lane, number_of_group);
}
