// Sums over the beginnings of alignments, and over the ends: a workgroup for each sequence and direction, an invocation for
// each state at a time. The ends are the beginnings of the sequence read backwards. A frame of the table is divided by the
// largest sum of the frame before it. The table is `[2, batch, frames, states]`. Needs ctc.wgsl.

@group(0) @binding(6) var<storage, read> targets: array<u32>;
/// Lengths of inputs, then of targets.
@group(0) @binding(7) var<storage, read> input_lengths: array<u32>;
@group(0) @binding(9) var<storage, read> target_lengths: array<u32>;
/// Of each frame the logarithm of its sum of exponentials; then of each sequence that of the sum over all alignments, NaN
/// for an invalid one.
@group(0) @binding(8) var<storage, read_write> numbers: array<f32>;

/// The class of a state of a sequence with so many states, read from the front or from the back.
fn class_of(sequence: u32, states: u32, back: bool, state: u32) -> u32 {
    let at = select(state, states - 1u - state, back);
    if (at & 1u) == 0u {
        return p.blank;
    }
    return targets[(p.first + sequence) * p.letters + at / 2u];
}

/// The logarithm of the sum of what comes from a state, from the one before, and from the one before that where a letter
/// may follow another without a blank.
fn sum_before(row: u32, state: u32, jumps: bool) -> f32 {
    let same = table_get(row + state);
    var near = NEVER;
    var far = NEVER;
    if state > 0u {
        near = table_get(row + state - 1u);
    }
    if jumps {
        far = table_get(row + state - 2u);
    }
    let most = max(same, max(near, far));
    return most + natural_logarithm(exponential(same - most) + exponential(near - most) + exponential(far - most));
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number_of_group = group_number(group, groups);
    let live = number_of_group < 2u * p.batch;
    let sequence = select(0u, number_of_group / 2u, live);
    let back = (number_of_group & 1u) == 1u;
    let input = input_lengths[p.first + sequence];
    let letters = target_lengths[p.first + sequence];
    var wrong = u32(input > p.frames || letters > p.letters);
    for (var i = lane; wrong == 0u && i < letters; i += GROUP) {
        let letter = targets[(p.first + sequence) * p.letters + i];
        wrong = u32(letter == p.blank || letter >= p.classes);
    }
    let valid = live && group_sum(lane, f32(wrong)) == 0.0;
    let frames = select(0u, input, valid);
    let states = select(1u, 2u * letters + 1u, valid);
    let first = ((select(0u, p.batch, back) + sequence) * p.frames) * p.states;
    var divided = 0.0;
    var by = 0.0;
    for (var frame = 0u; frame < p.frames; frame += 1u) {
        let row = first + frame * p.states;
        let time = sequence * p.frames + select(frame, frames - 1u - frame, back);
        var most = NEVER;
        if frame < frames {
            for (var state = lane; state < states; state += GROUP) {
                let class_ = class_of(sequence, states, back, state);
                let logit = x_at((p.first * p.frames + time) * p.classes + class_);
                var sum = not_below(logit - numbers[time]) - by;
                if frame > 0u {
                    let jumps = state > 1u && class_ != p.blank && class_ != class_of(sequence, states, back, state - 2u);
                    sum += sum_before(row - p.states, state, jumps);
                } else if state > 1u {
                    // An alignment begins with the first blank or the first letter.
                    sum = NEVER;
                }
                sum = not_below(sum);
                table_set(row + state, sum);
                most = rank_to_float(max(order_rank(bitcast<u32>(most)), order_rank(bitcast<u32>(sum))));
            }
        }
        most = group_most(lane, most);
        storageBarrier();
        if frame < frames {
            divided += by;
            by = select(0.0, most, most > HARDLY);
        }
    }
    if lane != 0u || back || !live {
        return;
    }
    // It ends with the last blank or the last letter.
    var all = select(NEVER, 0.0, letters == 0u);
    if frames > 0u {
        let row = first + (frames - 1u) * p.states;
        let one = table_get(row + states - 1u);
        var other = NEVER;
        if states > 1u {
            other = table_get(row + states - 2u);
        }
        let most = max(one, other);
        all = divided + most + natural_logarithm(exponential(one - most) + exponential(other - most));
    }
    if !valid {
        all = bits_as_float(F32_NAN);
    }
    numbers[p.batch * p.frames + sequence] = all;
    var loss = all;
    if !is_nan(all) {
        let impossible = bits_as_float(select(F32_INFINITY, 0u, p.zero_infinity == 1u));
        loss = select(impossible, -all, all >= HARDLY);
    }
    out_set(p.first + sequence, loss);
}
