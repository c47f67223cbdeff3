// Many sums at once, each of many terms: a workgroup forms 256 / threads results side by side, with so many invocations
// for each; `parts` workgroups share the terms of the same results. The order of all additions follows from these
// numbers, and so from the shape alone. A kernel declares `p: Params` with a member `split: Division`, a type `Total`, and
// `nothing()`, `join(a, b)`, `term(result, l)`.

struct ReduceShape {
    results: u32,
    /// Terms of each result.
    len: u32,
    /// A power of two, at most 256.
    threads: u32,
    parts: u32,
}

/// 1: neighbours among the invocations take neighbouring terms of a result; 0: terms of neighbouring results.
override CONTIGUOUS_TERMS: u32;

/// What an invocation does.
struct WorkAssignment {
    result: u32,
    part: u32,
    thread: u32,
    /// From one thread to the next.
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

/// The total of an invocation's terms: sums of 32, which are added up.
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

/// The total of a result's threads, for its thread 0. In uniform control flow.
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
