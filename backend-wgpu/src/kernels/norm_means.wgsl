// Numbers of a group that the gradient of a normalisation needs for each element. Needs norm_saved.wgsl; a kernel declares
// `p: Params` with a member `means: MeanParams`.

struct MeanParams {
    /// Number of elements of a group, and of groups.
    size: u32,
    groups: u32,
    eps: f32,
    /// 1 if the normalisation subtracts means.
    centered: u32,
}

/// 1 if the normalisation has a learned scale.
override SCALED: u32;

@group(0) @binding(3) var<storage, read> saved: array<f32>;
@group(0) @binding(7) var<storage, read> scale: array<f32>;
/// Mean, 1 / σ, and the means of u and of u · x̂.
@group(0) @binding(9) var<storage, read_write> group_stats: array<vec4<f32>>;

/// Returns mean and 1 / σ of a group.
fn load_group(group: u32) -> vec2<f32> {
    return vec2<f32>(saved[group], inverse_std(saved[p.means.groups + group], p.means.eps));
}

/// Stores the numbers of a group with these sums. In batch normalisation a group is a channel, so that sums are of dy, and
/// the scale is applied here.
fn save_group(group: u32, sums: vec2<f32>) {
    var total = sums;
    if SCALED != 0u && BATCH != 0u {
        total *= scale[group];
    }
    let size = f32(p.means.size);
    let mean = select(0.0, divide(total.x, size), p.means.centered != 0u);
    group_stats[group] = vec4<f32>(load_group(group), mean, divide(total.y, size));
}
