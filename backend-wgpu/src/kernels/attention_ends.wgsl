// The number of columns that each row of an attention reads, in the place of its logarithm of a sum: attention.wgsl has no
// binding left for the lengths of sequences.

struct Params {
    rows: u32,
    /// Number of rows of a sequence: those of all its heads.
    sequence_rows: u32,
    columns: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let stride = groups.x * groups.y * GROUP;
    for (var row = group_number(group, groups) * GROUP + lane; row < p.rows; row += stride) {
        log_sums_set(row, min(lengths_raw(row / p.sequence_rows), p.columns));
    }
}
