// Statistics of a normalisation: sums of x (stage 0), and of squared distances from the mean (stage 1). If one workgroup adds
// all terms of a group, one launch has both stages and saves mean and variance. Else a launch has one stage, and
// norm_stats_final.wgsl adds its partial sums.
//
// A kernel declares its `Total` of a group, or of the groups of eight channels, with `load_term`, `over_size`, `load_means`
// and `save`.

struct Params {
    reduction: ReduceShape,
    shape: Shape,
    /// Stages of the launch: the first one, and the one after the last.
    stages: vec2<u32>,
    eps: f32,
    /// 1 if the normalisation subtracts means.
    centered: u32,
    /// Number of groups of all images.
    groups: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
/// Means, then variances of all groups.
@group(0) @binding(3) var<storage, read_write> saved: array<f32>;
@group(0) @binding(8) var<storage, read_write> partial_totals: array<Total>;
/// Mean and 1 / σ of each group, so that elements do not compute them again.
@group(0) @binding(9) var<storage, read_write> group_stats: array<vec4<f32>>;

/// Means of an invocation's groups, in the stage that needs them.
var<private> center: Total;
var<private> squares_distances: bool;

fn save_group(group: u32, mean: f32, variance: f32) {
    saved[group] = mean;
    saved[p.groups + group] = variance;
    group_stats[group] = vec4<f32>(mean, inverse_std(variance, p.eps), 0.0, 0.0);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let s = assign_work(group_number(group, groups), lane);
    let is_whole = p.reduction.parts == 1u;
    let is_saving = s.is_live && s.thread == 0u;
    for (var stage = p.stages.x; stage < p.stages.y; stage += 1u) {
        if stage == 1u {
            squares_distances = true;
            if !is_whole && s.is_live && p.centered != 0u {
                center = load_means(s.result);
            }
        }
        let total = workgroup_reduce(s, lane);
        if !is_whole {
            if is_saving {
                partial_totals[s.part * p.reduction.results + s.result] = total;
            }
        } else if stage == 0u {
            center = over_size(thread_totals[lane - s.thread * s.stride]);
            // All have read the total before the next stage replaces it.
            workgroupBarrier();
        } else if is_saving {
            save(s.result, center, over_size(total));
        }
    }
}
