// Many sums at once, each of many terms: a workgroup forms 256 / threads results side by side, with so many invocations
// for each; `parts` workgroups share the terms of the same results. The order of all additions follows from these
// numbers, and so from the shape alone. A kernel declares `p: Params` with a member `split: Division`, a type `Total`, and
// `nothing()`, `join(a, b)`, `term(result, l)`.

struct Division {
    results: u32,
    /// Terms of each result.
    len: u32,
    /// A power of two, at most 256.
    threads: u32,
    parts: u32,
}

/// 1: neighbours among the invocations take neighbouring terms of a result; 0: terms of neighbouring results.
override ALONG: u32;

/// What an invocation does.
struct Share {
    result: u32,
    part: u32,
    thread: u32,
    /// From one thread to the next.
    apart: u32,
    live: bool,
}

var<workgroup> totals: array<Total, GROUP>;

fn share(group: u32, lane: u32) -> Share {
    let s = p.split;
    let side = GROUP / s.threads;
    let sides = (s.results - 1u) / side + 1u;
    let along = ALONG != 0u;
    let part = group / sides;
    let result = (group % sides) * side + select(lane % side, lane / s.threads, along);
    let thread = select(lane / side, lane % s.threads, along);
    return Share(result, part, thread, select(side, 1u, along), part < s.parts && result < s.results);
}

/// The total of an invocation's terms: sums of 32, which are added up.
fn own_total(s: Share) -> Total {
    var total = nothing();
    if !s.live {
        return total;
    }
    let size = (p.split.len + p.split.parts - 1u) / p.split.parts;
    let start = min(s.part * size, p.split.len);
    let count = min(size, p.split.len - start);
    var at = s.thread;
    while at < count {
        var few = nothing();
        for (var k = 0u; k < 32u && at < count; k += 1u) {
            few = join(few, term(s.result, start + at));
            at += p.split.threads;
        }
        total = join(total, few);
    }
    return total;
}

/// The total of a result's threads, for its thread 0. In uniform control flow.
fn together(s: Share, lane: u32) -> Total {
    totals[lane] = own_total(s);
    workgroupBarrier();
    for (var half = p.split.threads / 2u; half != 0u; half /= 2u) {
        if s.thread < half {
            totals[lane] = join(totals[lane], totals[lane + half * s.apart]);
        }
        workgroupBarrier();
    }
    return totals[lane];
}
