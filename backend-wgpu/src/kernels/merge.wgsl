// Merge of the statistics of a workgroup: one atomic operation per invocation.

fn merge_count(lane: u32, i: u32, more: u32) {
    atomicAdd(&group_counts[i], more);
}

fn merge_max(lane: u32, i: u32, value: u32) {
    atomicMax(&group_counts[i], value);
}
