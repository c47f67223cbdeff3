// Parallel reduction of many results of many terms each. A workgroup computes 256 / threads results with `threads`
// invocations each, and `parts` workgroups share the terms of the same results. The order of all additions depends on
// these numbers, and so on the shape alone. A kernel declares `p: Params` with a member `reduction: ReduceShape`, a type
// `Total`, and `identity()`, `combine(a, b)`, `load_term(result, l)`.

struct ReduceShape {
    results: u32,
    /// Number of terms that are reduced to each result.
    len: u32,
    /// Number of threads that reduce the same result: a power of two, at most 256.
    threads: u32,
    parts: u32,
}

/// 1: the terms of a result are contiguous, so neighbouring invocations take neighbouring terms. 0: results are
/// contiguous, so they take terms of neighbouring results.
override CONTIGUOUS_TERMS: u32;

/// Result that an invocation works on, and its share of the terms.
struct WorkAssignment {
    result: u32,
    part: u32,
    thread: u32,
    /// Lanes between the threads that reduce the same result.
    stride: u32,
    is_live: bool,
}

var<workgroup> thread_totals: array<Total, GROUP>;

fn assign_work(group: u32, lane: u32) -> WorkAssignment {
    let s = p.reduction;
    let results_per_group = GROUP / s.threads;
    let groups_per_pass = (s.results - 1u) / results_per_group + 1u;
    let is_contiguous = CONTIGUOUS_TERMS != 0u;
    let part = group / groups_per_pass;
    let result = (group % groups_per_pass) * results_per_group + select(lane % results_per_group, lane / s.threads, is_contiguous);
    let thread = select(lane / results_per_group, lane % s.threads, is_contiguous);
    return WorkAssignment(result, part, thread, select(results_per_group, 1u, is_contiguous), part < s.parts && result < s.results);
}

/// Returns the total of an invocation's terms. It combines 32 terms before it touches the total, so that rounding errors of
/// long sums stay small.
fn thread_partial(s: WorkAssignment) -> Total {
    var total = identity();
    if !s.is_live {
        return total;
    }
    let size = (p.reduction.len + p.reduction.parts - 1u) / p.reduction.parts;
    let start = min(s.part * size, p.reduction.len);
    let count = min(size, p.reduction.len - start);
    var index = s.thread;
    while index < count {
        var partial_total = identity();
        for (var k = 0u; k < 32u && index < count; k += 1u) {
            partial_total = combine(partial_total, load_term(s.result, start + index));
            index += p.reduction.threads;
        }
        total = combine(total, partial_total);
    }
    return total;
}

/// Returns the total of all threads of a result to its thread 0. Requires uniform control flow.
fn workgroup_reduce(s: WorkAssignment, lane: u32) -> Total {
    thread_totals[lane] = thread_partial(s);
    workgroupBarrier();
    for (var half = p.reduction.threads / 2u; half != 0u; half /= 2u) {
        if s.thread < half {
            thread_totals[lane] = combine(thread_totals[lane], thread_totals[lane + half * s.stride]);
        }
        workgroupBarrier();
    }
    return thread_totals[lane];
}
