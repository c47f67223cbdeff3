// How the invocations of a workgroup add up what they have seen: each by itself.

fn merge_count(lane: u32, i: u32, more: u32) {
    atomicAdd(&group_counts[i], more);
}

fn merge_most(lane: u32, i: u32, most: u32) {
    atomicMax(&group_counts[i], most);
}
