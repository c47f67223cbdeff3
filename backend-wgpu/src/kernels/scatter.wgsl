// y[index[i]] += x[i] row by row, from zeros, in the order of i. Reference: core's `Rows`. A workgroup owns a row of the
// table: it looks through all indices for its own, 256 at a time, so that sums have one order and need no atomics.

struct Params {
    store: Store,
    count: u32,
    table: u32,
    width: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

/// Bits for 256 indices: 1 if the index names the row.
var<workgroup> named: array<atomic<u32>, 8>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number_of_group = group_number(group, groups);
    begin_store(lane);
    let e = epilogue();
    for (var row = number_of_group; row < p.table; row += groups.x * groups.y) {
        for (var first = 0u; first < p.width; first += GROUP) {
            let column = first + lane;
            var sum = 0.0;
            for (var start = 0u; start < p.count; start += GROUP) {
                if lane < 8u {
                    atomicStore(&named[lane], 0u);
                }
                workgroupBarrier();
                let i = start + lane;
                if i < p.count && indices_get(i) == row {
                    atomicOr(&named[lane >> 5u], 1u << (lane & 31u));
                }
                workgroupBarrier();
                for (var word = 0u; word < 8u; word += 1u) {
                    var rest = atomicLoad(&named[word]);
                    while rest != 0u {
                        let next = start + 32u * word + firstTrailingBit(rest);
                        rest &= rest - 1u;
                        if column < p.width {
                            sum += x_at(next * p.width + column);
                        }
                    }
                }
                workgroupBarrier();
            }
            if column < p.width {
                store_scalar(e, row * p.width + column, sum);
            }
        }
    }
    end_store(lane, number_of_group);
}
