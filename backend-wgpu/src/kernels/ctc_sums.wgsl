// Sums over the beginnings of alignments, and over the ends: a workgroup for each sequence and direction, an invocation for
// each state at a time. The ends are the beginnings of the sequence read backwards. A frame of the table is divided by the
// largest sum of the frame before it. The table is `[2, batch, frames, states]`. Needs ctc.wgsl.

@group(0) @binding(6) var<storage, read> targets: array<u32>;
/// Numbers of frames of all sequences, then numbers of letters of all targets.
@group(0) @binding(7) var<storage, read> input_lengths: array<u32>;
@group(0) @binding(9) var<storage, read> target_lengths: array<u32>;
/// Output: log-sum-exp of each frame; then, for each sequence, the logarithm of the sum over all alignments, NaN for an
/// invalid one.
@group(0) @binding(8) var<storage, read_write> log_sums: array<f32>;

/// Returns the class of a state of a sequence of `states` states, read forward or backward.
fn class_of_state(sequence: u32, states: u32, is_reversed: bool, state: u32) -> u32 {
    let at = select(state, states - 1u - state, is_reversed);
    if (at & 1u) == 0u {
        return p.blank;
    }
    return targets[(p.first + sequence) * p.letters + at / 2u];
}

/// Returns the logarithm of the sum over the predecessors of a state: the state itself, the one before, and the one before
/// that if a letter may follow another without a blank.
fn log_sum_predecessors(row: u32, state: u32, may_skip_blank: bool) -> f32 {
    let stay = table_get(row + state);
    var previous = LOG_ZERO;
    var before_blank = LOG_ZERO;
    if state > 0u {
        previous = table_get(row + state - 1u);
    }
    if may_skip_blank {
        before_blank = table_get(row + state - 2u);
    }
    let max_log = max(stay, max(previous, before_blank));
    return max_log + natural_logarithm(exponential(stay - max_log) + exponential(previous - max_log) + exponential(before_blank - max_log));
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number_of_group = group_number(group, groups);
    let is_live = number_of_group < 2u * p.batch;
    let sequence = select(0u, number_of_group / 2u, is_live);
    let is_reversed = (number_of_group & 1u) == 1u;
    let input = input_lengths[p.first + sequence];
    let letters = target_lengths[p.first + sequence];
    var is_invalid = u32(input > p.frames || letters > p.letters);
    for (var i = lane; is_invalid == 0u && i < letters; i += GROUP) {
        let letter = targets[(p.first + sequence) * p.letters + i];
        is_invalid = u32(letter == p.blank || letter >= p.classes);
    }
    let is_valid = is_live && workgroup_sum(lane, f32(is_invalid)) == 0.0;
    let frames = select(0u, input, is_valid);
    let states = select(1u, 2u * letters + 1u, is_valid);
    let first = ((select(0u, p.batch, is_reversed) + sequence) * p.frames) * p.states;
    var log_scale = 0.0;
    var frame_log_scale = 0.0;
    for (var frame = 0u; frame < p.frames; frame += 1u) {
        let row = first + frame * p.states;
        let time = sequence * p.frames + select(frame, frames - 1u - frame, is_reversed);
        var max_log = LOG_ZERO;
        if frame < frames {
            for (var state = lane; state < states; state += GROUP) {
                let class_ = class_of_state(sequence, states, is_reversed, state);
                let logit = x_at((p.first * p.frames + time) * p.classes + class_);
                var sum = clamp_log(logit - log_sums[time]) - frame_log_scale;
                if frame > 0u {
                    let may_skip_blank = state > 1u && class_ != p.blank && class_ != class_of_state(sequence, states, is_reversed, state - 2u);
                    sum += log_sum_predecessors(row - p.states, state, may_skip_blank);
                } else if state > 1u {
                    // An alignment begins with the first blank or the first letter.
                    sum = LOG_ZERO;
                }
                sum = clamp_log(sum);
                table_set(row + state, sum);
                max_log = rank_to_float(max(order_rank(bitcast<u32>(max_log)), order_rank(bitcast<u32>(sum))));
            }
        }
        max_log = workgroup_max(lane, max_log);
        storageBarrier();
        if frame < frames {
            log_scale += frame_log_scale;
            frame_log_scale = select(0.0, max_log, max_log > LOG_ZERO_LIMIT);
        }
    }
    if lane != 0u || is_reversed || !is_live {
        return;
    }
    // It ends with the last blank or the last letter.
    var log_total = select(LOG_ZERO, 0.0, letters == 0u);
    if frames > 0u {
        let row = first + (frames - 1u) * p.states;
        let last_blank = table_get(row + states - 1u);
        var last_letter = LOG_ZERO;
        if states > 1u {
            last_letter = table_get(row + states - 2u);
        }
        let max_log = max(last_blank, last_letter);
        log_total = log_scale + max_log + natural_logarithm(exponential(last_blank - max_log) + exponential(last_letter - max_log));
    }
    if !is_valid {
        log_total = bits_as_float(F32_NAN);
    }
    log_sums[p.batch * p.frames + sequence] = log_total;
    var loss = log_total;
    if !is_nan(log_total) {
        let impossible = bits_as_float(select(F32_INFINITY, 0u, p.zero_infinity == 1u));
        loss = select(impossible, -log_total, log_total >= LOG_ZERO_LIMIT);
    }
    out_set(p.first + sequence, loss);
}
