// Gradient of a normalisation: sums of u and u · x̂, over groups with u = dy times the scale, or over channels with u = dy.
// If one workgroup adds all terms of a group, it also computes the group's means. Else norm_grad_means.wgsl does.
//
// A kernel declares its `Total` of a result, or of the results of eight channels, with `load_term`, `start` and
// `save_means`.

struct Params {
    reduction: ReduceShape,
    shape: Shape,
    means: MeanParams,
    /// 1 if means of groups are wanted besides the sums.
    has_means: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(8) var<storage, read_write> partial_totals: array<Total>;

/// 1 if the sums are over channels, 0 if over groups.
override CHANNELS: u32;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let s = assign_work(group_number(group, groups), lane);
    if s.is_live {
        start(s.result);
    }
    let total = workgroup_reduce(s, lane);
    if s.is_live && s.thread == 0u {
        partial_totals[s.part * p.reduction.results + s.result] = total;
        if p.has_means != 0u && p.reduction.parts == 1u {
            save_means(s.result, total);
        }
    }
}
