// How the invocations of a workgroup add up what they have seen: those of a subgroup together, then one of them for all.

fn merge_count(lane: u32, i: u32, more: u32) {
    let sum = subgroupAdd(more);
    if subgroupBroadcastFirst(lane) == lane {
        atomicAdd(&group_counts[i], sum);
    }
}

fn merge_most(lane: u32, i: u32, most: u32) {
    let largest = subgroupMax(most);
    if subgroupBroadcastFirst(lane) == lane {
        atomicMax(&group_counts[i], largest);
    }
}
