// Merge of the statistics of a workgroup: a reduction over each subgroup, then one atomic operation per subgroup.

fn merge_count(lane: u32, i: u32, more: u32) {
    let sum = subgroupAdd(more);
    if subgroupBroadcastFirst(lane) == lane {
        atomicAdd(&group_counts[i], sum);
    }
}

fn merge_max(lane: u32, i: u32, value: u32) {
    let largest = subgroupMax(value);
    if subgroupBroadcastFirst(lane) == lane {
        atomicMax(&group_counts[i], largest);
    }
}
