// The gradient by the logits: probabilities less the share of alignments that name a class at a frame (Graves et al. 2006,
// equation 16). A workgroup for a frame. Needs ctc.wgsl.

@group(0) @binding(6) var<storage, read> targets: array<u32>;
@group(0) @binding(7) var<storage, read> input_lengths: array<u32>;
@group(0) @binding(9) var<storage, read> target_lengths: array<u32>;
@group(0) @binding(8) var<storage, read_write> numbers: array<f32>;

/// The state's class: a blank, a letter, a blank, …
fn class_of(sequence: u32, state: u32) -> u32 {
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
    let live = row < p.batch * p.frames;
    let sequence = select(0u, row / p.frames, live);
    let frame = row % p.frames;
    let all = numbers[p.batch * p.frames + sequence];
    let frames = input_lengths[p.first + sequence];
    let counts = live && !is_nan(all) && all >= HARDLY && frame < frames;
    let impossible = p.zero_infinity == 0u && !is_nan(all) && all < HARDLY && frame < frames;
    let states = select(0u, 2u * target_lengths[p.first + sequence] + 1u, counts);
    let first = (p.first * p.frames + row) * p.classes;
    let forward = row * p.states;
    let back = ((p.batch + sequence) * p.frames + frames - 1u - frame) * p.states + states - 1u;
    var most = NEVER;
    for (var state = lane; state < states; state += GROUP) {
        let logit = not_below(x_at(first + class_of(sequence, state)) - numbers[row]);
        // Both have the frame's own probability.
        let assign_work = table_get(forward + state) + (table_get(back - state) - logit);
        table_set(forward + state, assign_work);
        most = max(most, assign_work);
    }
    most = group_most(lane, most);
    var sum = 0.0;
    for (var state = lane; state < states; state += GROUP) {
        let assign_work = exponential(table_get(forward + state) - most);
        table_set(forward + state, assign_work);
        sum += assign_work;
    }
    sum = group_sum(lane, sum);
    storageBarrier();
    for (var class_ = lane; live && class_ < p.classes; class_ += GROUP) {
        var gradient = select(0.0, bits_as_float(F32_NAN), is_nan(all) || impossible);
        if counts {
            var shares = 0.0;
            for (var state = select(1u, 0u, class_ == p.blank); state < states; state += 2u) {
                if class_of(sequence, state) == class_ {
                    shares += table_get(forward + state);
                }
            }
            gradient = exponential(not_below(x_at(first + class_) - numbers[row])) - divide(shares, sum);
        }
        out_set(first + class_, gradient);
    }
}
