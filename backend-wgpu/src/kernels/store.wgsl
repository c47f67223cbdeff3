// Epilogue of every operator: scale, add, observe. Bits and counts are those of core (`Factor`, `Stats`) on every device,
// whatever it does with subnormals. Needs half.wgsl, scale.wgsl, logarithm.wgsl, and merge.wgsl or merge_subgroups.wgsl.
// A kernel declares `p: Params`, whose first member is `store: Store`. It calls `begin_store`, a `store_…` function of
// elementwise.wgsl or shared.wgsl, and `end_store`.

/// Slots of origin and site, maximum detail, and 2 · the type of y + (1 to add to it, else 0).
struct Store {
    origin: u32,
    site: u32,
    detail: u32,
    dtype_and_add: u32,
}

/// Exponents, seed and level of detail of the step: core's `Control::words`.
@group(0) @binding(1) var<storage, read> control: array<u32>;
/// Statistics rows of all slots, ROW_WORDS words each.
@group(0) @binding(2) var<storage, read_write> rows: array<atomic<u32>>;
/// Σu, Σu², Σ ln|u|, Σ ln²|u| of each workgroup, for moments.wgsl.
@group(0) @binding(4) var<storage, read_write> partials: array<vec4<f32>>;

fn seed() -> vec2<u32> {
    return vec2<u32>(control[CONTROL_SEED], control[CONTROL_SEED + 1u]);
}

fn exponent(slot: u32) -> i32 {
    return bitcast<i32>(control[CONTROL_HEADER + slot]);
}

fn hyperparameter(index: u32) -> f32 {
    return bits_as_float(control[CONTROL_HEADER + control[CONTROL_SLOTS] + index]);
}

struct Epilogue {
    step: i32,
    detail: u32,
    add: bool,
    /// Type of the store's destination y.
    dtype: u32,
}

fn store_detail() -> u32 {
    return min(p.store.detail, control[CONTROL_DETAIL]);
}

fn epilogue() -> Epilogue {
    let step = exponent_step(exponent(p.store.origin), exponent(p.store.site));
    return Epilogue(step, store_detail(), (p.store.dtype_and_add & 1u) != 0u, p.store.dtype_and_add >> 1u);
}

/// Statistics of the values that an invocation has stored.
struct StatsAccumulator {
    count: u32,
    /// Number of zeros that stand for values that are not there. `zeros`, `small` and `low` count them, too.
    padding: u32,
    zeros: u32,
    infinite: u32,
    nan: u32,
    /// Number of values below the flush threshold, zeros included, and below the least normal number.
    small: u32,
    low: u32,
    /// Number of values at or above the overflow threshold, ∞ and NaN included.
    large: u32,
    amax: u32,
    sums: vec4<f32>,
}

var<private> stats: StatsAccumulator;
/// Which of the kernel's OBSERVED_SITES the values of `stats` belong to. The store has the first one; cast.wgsl has others.
var<private> observed_site: u32;
var<workgroup> group_counts: array<atomic<u32>, 8u * OBSERVED_SITES>;
var<workgroup> group_bins: array<atomic<u32>, ROW_BINS * OBSERVED_SITES>;
var<workgroup> group_sums: array<vec4<f32>, GROUP>;

fn begin_store(lane: u32) {
    if lane < 8u * OBSERVED_SITES {
        atomicStore(&group_counts[lane], 0u);
    }
    for (var bin = lane; bin < ROW_BINS * OBSERVED_SITES; bin += GROUP) {
        atomicStore(&group_bins[bin], 0u);
    }
    workgroupBarrier();
}

fn count_true(flags: vec4<bool>) -> u32 {
    let ones = select(vec4<u32>(0u), vec4<u32>(1u), flags);
    return (ones.x + ones.y) + (ones.z + ones.w);
}

/// Observes the first `live` of four stored values, given as bits.
fn observe_vec4(s: vec4<u32>, detail: u32, live: u32) {
    var m = s & vec4<u32>(F32_MAGNITUDE);
    stats.count += live;
    if live < 4u {
        m = select(vec4<u32>(), m, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(live));
        stats.padding += 4u - live;
    }
    stats.zeros += count_true(m == vec4<u32>(0u));
    stats.small += count_true(m < vec4<u32>(FLUSH_END));
    stats.low += count_true(m < vec4<u32>(SUBNORMAL_END));
    // Values that overflow are rare, so that the others do not pay for their counts.
    if largest_of_vec4(m) >= OVERFLOW_START {
        let infinity = vec4<u32>(F32_INFINITY);
        stats.large += count_true(m >= vec4<u32>(OVERFLOW_START));
        stats.infinite += count_true(m == infinity);
        stats.nan += count_true(m > infinity);
        m = select(vec4<u32>(), m, m < infinity);
    }
    stats.amax = max(stats.amax, largest_of_vec4(m));
    if detail >= DETAIL_FULL {
        for (var j = 0u; j < live; j += 1u) {
            observe_magnitude(place_of_vec4(s, j), place_of_vec4(m, j), detail);
        }
    }
}

fn largest_of_vec4(m: vec4<u32>) -> u32 {
    return max(max(m.x, m.y), max(m.z, m.w));
}

/// Observes the binade of a finite value, and its moments if they are requested; `m` is 0 for any other value.
fn observe_magnitude(s: u32, m: u32, detail: u32) {
    if m == 0u {
        return;
    }
    atomicAdd(&group_bins[ROW_BINS * observed_site + ((m + KEY_CONSTANT) >> 23u)], 1u);
    if detail >= DETAIL_MOMENTS {
        let u = bits_as_float(s);
        let log = logarithm(m);
        stats.sums += vec4<f32>(u, u * u, log, log * log);
    }
}

/// Scales up to 4 contiguous results, adds the previous values, observes them, and returns their f32 bits in the format of
/// the store; `live` is their number.
fn finish_vec4(e: Epilogue, v: vec4<f32>, before: vec4<f32>, live: u32) -> vec4<u32> {
    var s = scaled_vec4(bitcast<vec4<u32>>(v), e.step, live);
    if e.add {
        s = bitcast<vec4<u32>>(before + bitcast<vec4<f32>>(s));
    }
    if e.detail != 0u {
        observe_vec4(s, e.detail, live);
    }
    return to_format(s);
}

/// Scales, adds and observes one result, as `finish_vec4` does four.
fn finish_scalar(e: Epilogue, v: f32, before: f32) -> u32 {
    return finish_vec4(e, vec4<f32>(v, 0.0, 0.0, 0.0), vec4<f32>(before, 0.0, 0.0, 0.0), 1u).x;
}

/// Merges the statistics of workgroup `group` of this launch into the row. Call in uniform control flow.
fn end_store(lane: u32, group: u32) {
    merge_stats(lane, p.store.site, store_detail(), group);
}

/// Merges the statistics of a workgroup into the row of a slot. Counts may be added in any order; sums are written to
/// place `place` of `partials`, which moments.wgsl adds in order. Call in uniform control flow.
fn merge_stats(lane: u32, site: u32, detail: u32, place: u32) {
    if detail == 0u {
        return;
    }
    let first_count = 8u * observed_site;
    merge_count(lane, first_count + 0u, stats.count);
    merge_count(lane, first_count + 1u, stats.zeros - stats.padding);
    merge_count(lane, first_count + 2u, stats.infinite);
    merge_count(lane, first_count + 3u, stats.nan);
    merge_count(lane, first_count + 4u, stats.small - stats.zeros);
    merge_count(lane, first_count + 5u, stats.large - stats.infinite - stats.nan);
    merge_count(lane, first_count + 6u, stats.low - stats.small);
    merge_max(lane, first_count + 7u, stats.amax);
    group_sums[lane] = stats.sums;
    workgroupBarrier();
    let row = site * ROW_WORDS;
    // A workgroup without values leaves an empty row empty.
    let has_values = atomicLoad(&group_counts[first_count]) != 0u;
    if has_values {
        if lane < 7u {
            let more = atomicLoad(&group_counts[first_count + lane]);
            let old = atomicAdd(&rows[row + 2u * lane], more);
            if old + more < old {
                atomicAdd(&rows[row + 2u * lane + 1u], 1u);
            }
        } else if lane == 7u {
            atomicMax(&rows[row + ROW_AMAX], atomicLoad(&group_counts[first_count + 7u]));
        } else if lane == 8u {
            atomicMax(&rows[row + ROW_DETAIL], detail);
        }
    }
    if has_values && detail >= DETAIL_FULL {
        for (var bin = lane; bin < ROW_BINS; bin += GROUP) {
            let more = atomicLoad(&group_bins[ROW_BINS * observed_site + bin]);
            if more != 0u {
                // A full bin stays full: the invocation whose addition wraps it sets it to the maximum afterwards.
                let old = atomicAdd(&rows[row + ROW_HISTOGRAM + bin], more);
                if old + more < old {
                    atomicMax(&rows[row + ROW_HISTOGRAM + bin], 0xffffffffu);
                }
            }
        }
    }
    if detail >= DETAIL_MOMENTS {
        for (var half = GROUP / 2u; half != 0u; half /= 2u) {
            if lane < half {
                group_sums[lane] += group_sums[lane + half];
            }
            workgroupBarrier();
        }
        if lane == 0u {
            partials[place] = group_sums[0];
        }
    }
}
