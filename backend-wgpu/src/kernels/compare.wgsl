// Compares words with the expected words of a self-test, counts differences, and overwrites the words, so that a kernel
// which stores nothing in the next run is found.

struct Params {
    /// First word of y, words to compare, words that are skipped in the middle (from and to, counted from the first), the
    /// word that replaces those read, and the counter.
    start: u32,
    count: u32,
    skip_from: u32,
    skip_to: u32,
    replacement: u32,
    counter: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> y: array<u32>;
@group(0) @binding(5) var<storage, read> expected: array<u32>;
@group(0) @binding(6) var<storage, read_write> differing: array<atomic<u32>>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let stride = groups.x * groups.y * GROUP;
    for (var i = group_number(group, groups) * GROUP + lane; i < p.count; i += stride) {
        let compared = i < p.skip_from || i >= p.skip_to;
        if compared && y[p.start + i] != expected[i] {
            atomicAdd(&differing[p.counter], 1u);
        }
        y[p.start + i] = p.replacement;
    }
}
