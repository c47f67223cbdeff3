
/// Invocations of a workgroup, in every kernel that walks over elements.
const GROUP: u32 = 256u;

/// Returns the number of a workgroup in a grid of rows and columns.
fn group_number(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x + groups.x * (group.y + groups.y * group.z);
}

