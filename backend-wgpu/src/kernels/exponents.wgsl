// Exponents that a kernel without a store reads. Needs scale.wgsl.

/// Exponents of the step: core's `Control::words`.
@group(0) @binding(1) var<storage, read> control: array<u32>;

fn exponent(slot: u32) -> i32 {
    return bitcast<i32>(control[CONTROL_HEADER + slot]);
}
