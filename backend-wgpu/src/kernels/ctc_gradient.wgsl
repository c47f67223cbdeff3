// Gradient of the logits: the probability of a class minus the share of alignments that emit it at a frame (Graves et al.
// 2006, equation 16). One workgroup per frame. Needs ctc.wgsl.

@group(0) @binding(6) var<storage, read> targets: array<u32>;
@group(0) @binding(7) var<storage, read> input_lengths: array<u32>;
@group(0) @binding(9) var<storage, read> target_lengths: array<u32>;
@group(0) @binding(8) var<storage, read_write> log_sums: array<f32>;

/// Returns the class of a state: a blank, a letter, a blank, …
fn class_of_state(sequence: u32, state: u32) -> u32 {
    if (state & 1u) == 0u {
        return p.blank;
    }
    return targets[(p.first + sequence) * p.letters + state / 2u];
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group_number(group, groups);
    let is_live = row < p.batch * p.frames;
    let sequence = select(0u, row / p.frames, is_live);
    let frame = row % p.frames;
    let log_total = log_sums[p.batch * p.frames + sequence];
    let frames = input_lengths[p.first + sequence];
    let is_counted = is_live && !is_nan(log_total) && log_total >= LOG_ZERO_LIMIT && frame < frames;
    let impossible = p.zero_infinity == 0u && !is_nan(log_total) && log_total < LOG_ZERO_LIMIT && frame < frames;
    let states = select(0u, 2u * target_lengths[p.first + sequence] + 1u, is_counted);
    let first = (p.first * p.frames + row) * p.classes;
    let forward = row * p.states;
    let back = ((p.batch + sequence) * p.frames + frames - 1u - frame) * p.states + states - 1u;
    var max_log = LOG_ZERO;
    for (var state = lane; state < states; state += GROUP) {
        let logit = clamp_log(x_at(first + class_of_state(sequence, state)) - log_sums[row]);
        // Forward and backward variables both contain the probability of the frame, so one is divided out.
        let assign_work = table_get(forward + state) + (table_get(back - state) - logit);
        table_set(forward + state, assign_work);
        max_log = max(max_log, assign_work);
    }
    max_log = workgroup_max(lane, max_log);
    var sum = 0.0;
    for (var state = lane; state < states; state += GROUP) {
        let assign_work = exponential(table_get(forward + state) - max_log);
        table_set(forward + state, assign_work);
        sum += assign_work;
    }
    sum = workgroup_sum(lane, sum);
    storageBarrier();
    for (var class_ = lane; is_live && class_ < p.classes; class_ += GROUP) {
        var gradient = select(0.0, bits_as_float(F32_NAN), is_nan(log_total) || impossible);
        if is_counted {
            var shares = 0.0;
            for (var state = select(1u, 0u, class_ == p.blank); state < states; state += 2u) {
                if class_of_state(sequence, state) == class_ {
                    shares += table_get(forward + state);
                }
            }
            gradient = exponential(clamp_log(x_at(first + class_) - log_sums[row])) - divide(shares, sum);
        }
        out_set(first + class_, gradient);
    }
}
