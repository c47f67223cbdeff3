// Casts of values that are not stored: scaled and observed as by a store, and rounded to halves, with which the kernel goes
// on. Reference: core's `Cast`. A kernel declares `p.casts: array<Cast, CASTS>`. Needs store.wgsl.

/// Number of casts of a kernel.
const CASTS: u32 = OBSERVED_SITES - 1u;

/// Slots of origin and site, and maximum detail; its size is a multiple of 16 bytes, as uniform arrays require.
struct Cast {
    origin: u32,
    site: u32,
    detail: u32,
    padding: u32,
}

/// Statistics of the casts. While values are cast, `stats` has those of one of them, in turn, and `cast_stats` those of the
/// other.
var<private> cast_stats: StatsAccumulator;
var<private> last_stats: StatsAccumulator;

fn cast_step(i: u32) -> i32 {
    return exponent_step(exponent(p.casts[i].origin), exponent(p.casts[i].site));
}

fn cast_detail(i: u32) -> u32 {
    return min(p.casts[i].detail, control[CONTROL_DETAIL]);
}

/// Casts the first `live` of four values, of which the first `observed` are observed, and returns the halves, packed.
fn cast_vec4(v: vec4<f32>, step: i32, detail: u32, live: u32, observed: u32) -> vec2<u32> {
    let s = scaled_vec4(bitcast<vec4<u32>>(v), step, live);
    if detail != 0u && observed != 0u {
        observe_vec4(s, detail, observed);
    }
    return vec2<u32>(pack_halves(s.x, s.y), pack_halves(s.z, s.w));
}

/// Makes `stats` those of the other cast.
fn swap_stats() {
    let other = cast_stats;
    cast_stats = stats;
    stats = other;
}

/// Begins the statistics of the store after the last cast, when `stats` has those of the first one.
fn begin_store_after_casts() {
    last_stats = cast_stats;
    cast_stats = stats;
    stats = StatsAccumulator();
    observed_site = 0u;
}

/// Merges the statistics of the store, and of the casts if `sites` is OBSERVED_SITES, into their rows. Sums are written to
/// `partials` at `group`, and for casts `sums_stride` later each. Call in uniform control flow.
fn end_sites(lane: u32, group: u32, sites: u32, sums_stride: u32) {
    var site = p.store.site;
    var detail = store_detail();
    for (var i = 0u; i < sites; i += 1u) {
        observed_site = i;
        if i != 0u {
            site = p.casts[i - 1u].site;
            detail = cast_detail(i - 1u);
        }
        merge_stats(lane, site, detail, group + i * sums_stride);
        stats = cast_stats;
        cast_stats = last_stats;
    }
}
