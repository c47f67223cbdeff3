// Connectionist temporal classification in logarithms (`core::ops::Ctc`; Graves et al. 2006, equations 6 to 8 and 16). One
// block for each frame, or for each sequence and direction.

struct CtcParams {
    const void* logits;
    const u32* targets;
    const u32* input_lengths;
    const u32* target_lengths;
    float* losses;
    // Output: gradient of the logits, or null if no gradient is needed.
    float* gradient;
    // Log-sum-exp of each frame, then for each sequence the logarithm of the sum over all alignments.
    float* log_sums;
    // Forward variables, then backward variables: [2, batch, frames, states].
    float* path_sums;
    u32 type;
    u32 batch, frames, classes;
    // Maximum number of letters of a target, and of states of an alignment.
    u32 letters, states;
    u32 blank;
    // 1: an impossible target has loss 0 and gradient 0; 0: loss infinity and gradient NaN at its frames.
    u32 zero_infinity;
};

// Logarithm of a probability of zero, and the threshold below which one counts as zero. Finite, so that differences of two
// are no NaN.
#define LOG_ZERO (-1e30f)
#define LOG_ZERO_THRESHOLD (-1e29f)

DEVICE bool is_nan(float x) { return (float_as_bits(x) & 0x7FFFFFFFu) > 0x7F800000u; }
// Limits a logarithm to LOG_ZERO from below. Keeps NaN.
DEVICE float clamp_log(float log) { return log < LOG_ZERO ? LOG_ZERO : log; }

// Returns the maximum over all threads of a block, ignoring NaN. All threads call it.
DEVICE float block_max(float v) {
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
    float max_log = bits_as_float(0xFF800000u);
    for (u32 c = thread_index(); c < p.classes; c += THREADS) {
        const float v = load(p.logits, p.type, first + c);
        max_log = v > max_log ? v : max_log;
    }
    max_log = block_max(max_log);
    double sum[1] = {0};
    for (u32 c = thread_index(); c < p.classes; c += THREADS) sum[0] += expf(load(p.logits, p.type, first + c) - max_log);
    block_reduce(sum);
    if (thread_index() == 0) p.log_sums[row] = max_log + logf((float)sum[0]);
}

// Alignment states of a sequence, read forward or backward.
struct Alignment {
    const u32* target;
    u32 states, blank;
    bool is_reversed;
    // Returns the class of a state: a blank, a letter, a blank, …
    DEVICE_MEMBER u32 class_of(u32 state) const {
        const u32 at = is_reversed ? states - 1 - state : state;
        return at % 2 == 0 ? blank : target[at / 2];
    }
};

// Returns the logarithm of the sum over the predecessors of a state: the state itself, the one before, and the one before
// that if a letter may follow another without a blank.
DEVICE float log_sum_predecessors(const float* row, u32 state, bool may_skip_blank) {
    const float stay = row[state], previous = state > 0 ? row[state - 1] : LOG_ZERO, before_blank = may_skip_blank ? row[state - 2] : LOG_ZERO;
    float max_log = previous > stay ? previous : stay;
    max_log = before_blank > max_log ? before_blank : max_log;
    return max_log + logf(expf(stay - max_log) + expf(previous - max_log) + expf(before_blank - max_log));
}

// Computes forward and backward variables; the latter are the forward variables of the reversed sequence. Each frame is
// divided by the maximum of the frame before, so that values stay in range.
KERNEL(ctc_sums, CtcParams) {
    const u32 sequence = block_x() / 2;
    const bool is_reversed = block_x() % 2 == 1;
    const u32 letters = p.target_lengths[sequence], input = p.input_lengths[sequence];
    const u32* target = p.targets + (u64)sequence * p.letters;
    double invalid[1] = {input > p.frames || letters > p.letters ? 1.0 : 0.0};
    if (invalid[0] == 0) {
        for (u32 i = thread_index(); i < letters; i += THREADS) {
            if (target[i] == p.blank || target[i] >= p.classes) invalid[0] = 1;
        }
    }
    block_reduce(invalid);
    const bool valid = invalid[0] == 0;
    const u32 frames = valid ? input : 0, states = valid ? 2 * letters + 1 : 1;
    const Alignment alignment = {target, states, p.blank, is_reversed};
    float* path_sums = p.path_sums + ((is_reversed ? (u64)p.batch : 0) + sequence) * p.frames * p.states;
    float log_scale = 0.0f, frame_log_scale = 0.0f;
    for (u32 frame = 0; frame < frames; frame++) {
        float* row = path_sums + (u64)frame * p.states;
        const u64 time = (u64)sequence * p.frames + (is_reversed ? frames - 1 - frame : frame);
        float max_log = LOG_ZERO;
        for (u32 state = thread_index(); state < states; state += THREADS) {
            const u32 c = alignment.class_of(state);
            float sum = clamp_log(load(p.logits, p.type, time * p.classes + c) - p.log_sums[time]) - frame_log_scale;
            if (frame > 0) {
                const bool may_skip_blank = state > 1 && c != p.blank && c != alignment.class_of(state - 2);
                sum += log_sum_predecessors(row - p.states, state, may_skip_blank);
            } else if (state > 1) {
                // An alignment begins with the first blank or the first letter.
                sum = LOG_ZERO;
            }
            sum = clamp_log(sum);
            row[state] = sum;
            max_log = sum > max_log ? sum : max_log;
        }
        // Contains a barrier, so the row is complete for the next frame.
        max_log = block_max(max_log);
        log_scale += frame_log_scale;
        frame_log_scale = max_log > LOG_ZERO_THRESHOLD ? max_log : 0.0f;
    }
    if (thread_index() != 0 || is_reversed) return;
    // An alignment ends with the last blank or the last letter.
    float log_total = letters == 0 ? 0.0f : LOG_ZERO;
    if (frames > 0) {
        const float* row = path_sums + (u64)(frames - 1) * p.states;
        const float last_blank = row[states - 1], last_letter = states > 1 ? row[states - 2] : LOG_ZERO;
        const float max_log = last_blank > last_letter ? last_blank : last_letter;
        log_total = log_scale + max_log + logf(expf(last_blank - max_log) + expf(last_letter - max_log));
    }
    if (!valid) log_total = bits_as_float(0x7FC00000u);
    p.log_sums[(u64)p.batch * p.frames + sequence] = log_total;
    const float impossible = p.zero_infinity != 0 ? 0.0f : bits_as_float(0x7F800000u);
    p.losses[sequence] = is_nan(log_total) ? log_total : log_total < LOG_ZERO_THRESHOLD ? impossible : -log_total;
}

// Computes the gradient: softmax minus the posterior probability of a class at a frame.
KERNEL(ctc_gradient, CtcParams) {
    const u32 row = block_x(), sequence = row / p.frames, frame = row % p.frames;
    const float log_total = p.log_sums[(u64)p.batch * p.frames + sequence];
    const u32 frames = p.input_lengths[sequence];
    const bool is_counted = !is_nan(log_total) && log_total >= LOG_ZERO_THRESHOLD && frame < frames;
    const Alignment alignment = {p.targets + (u64)sequence * p.letters, is_counted ? 2 * p.target_lengths[sequence] + 1 : 0,
                                 p.blank, false};
    const u32 states = alignment.states;
    const u64 first = (u64)row * p.classes;
    float* posteriors = p.path_sums + (u64)row * p.states;
    const float* reversed_sums = p.path_sums + (((u64)p.batch + sequence) * p.frames + (is_counted ? frames - 1 - frame : 0)) * p.states;
    float max_log = LOG_ZERO;
    for (u32 state = thread_index(); state < states; state += THREADS) {
        const float logit = load(p.logits, p.type, first + alignment.class_of(state)) - p.log_sums[row];
        // Both variables contain the probability of the frame, so it is subtracted once.
        posteriors[state] += reversed_sums[states - 1 - state] - clamp_log(logit);
        max_log = posteriors[state] > max_log ? posteriors[state] : max_log;
    }
    max_log = block_max(max_log);
    double sum[1] = {0};
    for (u32 state = thread_index(); state < states; state += THREADS) {
        posteriors[state] = expf(posteriors[state] - max_log);
        sum[0] += posteriors[state];
    }
    // Contains barriers, so all posteriors are complete.
    block_reduce(sum);
    for (u32 c = thread_index(); c < p.classes; c += THREADS) {
        float gradient = is_nan(log_total) ? log_total : 0.0f;
        if (log_total < LOG_ZERO_THRESHOLD && p.zero_infinity == 0 && frame < frames) gradient = bits_as_float(0x7FC00000u);
        if (is_counted) {
            float class_posterior = 0.0f;
            for (u32 state = c == p.blank ? 0 : 1; state < states; state += 2) {
                if (alignment.class_of(state) == c) class_posterior += posteriors[state];
            }
            const float probability = expf(clamp_log(load(p.logits, p.type, first + c) - p.log_sums[row]));
            gradient = probability - class_posterior / (float)sum[0];
        }
        p.gradient[first + c] = gradient;
    }
}
