// Connectionist temporal classification (`core::ops::Ctc`; Graves et al. 2006, equations 6 to 8 and 16, in logarithms): a
// block for each frame, or for each sequence and direction.

struct CtcParams {
    const void* logits;
    const u32* targets;
    const u32* input_lengths;
    const u32* target_lengths;
    float* losses;
    // Or null.
    float* gradient;
    // Of each frame the logarithm of its sum of exponentials; then of each sequence that of the sum over all alignments.
    float* numbers;
    // Sums over beginnings of alignments, then over ends: [2, batch, frames, states].
    float* table;
    u32 type;
    u32 batch, frames, classes;
    // Room for letters of a target, and for states of an alignment.
    u32 letters, states;
    u32 blank;
    // 1: an impossible target has loss 0 and gradient 0; 0: loss infinity and gradient NaN at its frames.
    u32 zero_infinity;
};

// The logarithm of what never happens, and what is below this was never.
#define NEVER (-1e30f)
#define HARDLY (-1e29f)

DEVICE bool is_nan(float x) { return (bits_of(x) & 0x7FFFFFFFu) > 0x7F800000u; }
// NaN stays.
DEVICE float not_below(float log) { return log < NEVER ? NEVER : log; }

// The largest of all threads' numbers, NaN aside. All take part.
DEVICE float most_of_block(float v) {
    SHARED float warps[THREADS / 32];
    for (u32 mask = 16; mask != 0; mask /= 2) {
        const float other = shuffle_xor(v, mask);
        v = other > v ? other : v;
    }
    barrier();
    if (thread_index() % 32 == 0) warps[thread_index() / 32] = v;
    barrier();
    for (u32 w = 0; w < THREADS / 32; w++) v = warps[w] > v ? warps[w] : v;
    return v;
}

KERNEL(ctc_rows, CtcParams) {
    const u32 row = block_x();
    const u64 first = (u64)row * p.classes;
    float most = of_bits(0xFF800000u);
    for (u32 c = thread_index(); c < p.classes; c += THREADS) {
        const float v = load(p.logits, p.type, first + c);
        most = v > most ? v : most;
    }
    most = most_of_block(most);
    double sum[1] = {0};
    for (u32 c = thread_index(); c < p.classes; c += THREADS) sum[0] += expf(load(p.logits, p.type, first + c) - most);
    over_block(sum);
    if (thread_index() == 0) p.numbers[row] = most + logf((float)sum[0]);
}

// A sequence's letters, read from the front or from the back.
struct Alignment {
    const u32* target;
    u32 states, blank;
    bool back;
    // The class of a state: a blank, a letter, a blank, …
    DEVICE_MEMBER u32 class_of(u32 state) const {
        const u32 at = back ? states - 1 - state : state;
        return at % 2 == 0 ? blank : target[at / 2];
    }
};

// The logarithm of the sum of what comes from a state, from the one before, and from the one before that where a letter
// may follow another without a blank.
DEVICE float sum_before(const float* row, u32 state, bool jumps) {
    const float same = row[state], near = state > 0 ? row[state - 1] : NEVER, far = jumps ? row[state - 2] : NEVER;
    float most = near > same ? near : same;
    most = far > most ? far : most;
    return most + logf(expf(same - most) + expf(near - most) + expf(far - most));
}

// The ends are the beginnings of the sequence read backwards. A frame is divided by the largest sum of the frame before.
KERNEL(ctc_sums, CtcParams) {
    const u32 sequence = block_x() / 2;
    const bool back = block_x() % 2 == 1;
    const u32 letters = p.target_lengths[sequence], input = p.input_lengths[sequence];
    const u32* target = p.targets + (u64)sequence * p.letters;
    double wrong[1] = {input > p.frames || letters > p.letters ? 1.0 : 0.0};
    if (wrong[0] == 0) {
        for (u32 i = thread_index(); i < letters; i += THREADS) {
            if (target[i] == p.blank || target[i] >= p.classes) wrong[0] = 1;
        }
    }
    over_block(wrong);
    const bool valid = wrong[0] == 0;
    const u32 frames = valid ? input : 0, states = valid ? 2 * letters + 1 : 1;
    const Alignment alignment = {target, states, p.blank, back};
    float* table = p.table + ((back ? (u64)p.batch : 0) + sequence) * p.frames * p.states;
    float divided = 0.0f, by = 0.0f;
    for (u32 frame = 0; frame < frames; frame++) {
        float* row = table + (u64)frame * p.states;
        const u64 time = (u64)sequence * p.frames + (back ? frames - 1 - frame : frame);
        float most = NEVER;
        for (u32 state = thread_index(); state < states; state += THREADS) {
            const u32 c = alignment.class_of(state);
            float sum = not_below(load(p.logits, p.type, time * p.classes + c) - p.numbers[time]) - by;
            if (frame > 0) {
                const bool jumps = state > 1 && c != p.blank && c != alignment.class_of(state - 2);
                sum += sum_before(row - p.states, state, jumps);
            } else if (state > 1) {
                // An alignment begins with the first blank or the first letter.
                sum = NEVER;
            }
            sum = not_below(sum);
            row[state] = sum;
            most = sum > most ? sum : most;
        }
        // With a barrier: the row is there for the next one.
        most = most_of_block(most);
        divided += by;
        by = most > HARDLY ? most : 0.0f;
    }
    if (thread_index() != 0 || back) return;
    // It ends with the last blank or the last letter.
    float all = letters == 0 ? 0.0f : NEVER;
    if (frames > 0) {
        const float* row = table + (u64)(frames - 1) * p.states;
        const float one = row[states - 1], other = states > 1 ? row[states - 2] : NEVER;
        const float most = one > other ? one : other;
        all = divided + most + logf(expf(one - most) + expf(other - most));
    }
    if (!valid) all = of_bits(0x7FC00000u);
    p.numbers[(u64)p.batch * p.frames + sequence] = all;
    const float impossible = p.zero_infinity != 0 ? 0.0f : of_bits(0x7F800000u);
    p.losses[sequence] = is_nan(all) ? all : all < HARDLY ? impossible : -all;
}

// Probabilities less the share of alignments that name a class at a frame.
KERNEL(ctc_gradient, CtcParams) {
    const u32 row = block_x(), sequence = row / p.frames, frame = row % p.frames;
    const float all = p.numbers[(u64)p.batch * p.frames + sequence];
    const u32 frames = p.input_lengths[sequence];
    const bool counts = !is_nan(all) && all >= HARDLY && frame < frames;
    const Alignment alignment = {p.targets + (u64)sequence * p.letters, counts ? 2 * p.target_lengths[sequence] + 1 : 0,
                                 p.blank, false};
    const u32 states = alignment.states;
    const u64 first = (u64)row * p.classes;
    float* shares = p.table + (u64)row * p.states;
    const float* back = p.table + (((u64)p.batch + sequence) * p.frames + (counts ? frames - 1 - frame : 0)) * p.states;
    float most = NEVER;
    for (u32 state = thread_index(); state < states; state += THREADS) {
        const float logit = load(p.logits, p.type, first + alignment.class_of(state)) - p.numbers[row];
        // Both have the frame's own probability.
        shares[state] += back[states - 1 - state] - not_below(logit);
        most = shares[state] > most ? shares[state] : most;
    }
    most = most_of_block(most);
    double sum[1] = {0};
    for (u32 state = thread_index(); state < states; state += THREADS) {
        shares[state] = expf(shares[state] - most);
        sum[0] += shares[state];
    }
    // With barriers: all shares are there.
    over_block(sum);
    for (u32 c = thread_index(); c < p.classes; c += THREADS) {
        float gradient = is_nan(all) ? all : 0.0f;
        if (all < HARDLY && p.zero_infinity == 0 && frame < frames) gradient = of_bits(0x7FC00000u);
        if (counts) {
            float of_class = 0.0f;
            for (u32 state = c == p.blank ? 0 : 1; state < states; state += 2) {
                if (alignment.class_of(state) == c) of_class += shares[state];
            }
            const float probability = expf(not_below(load(p.logits, p.type, first + c) - p.numbers[row]));
            gradient = probability - of_class / (float)sum[0];
        }
        p.gradient[first + c] = gradient;
    }
}
