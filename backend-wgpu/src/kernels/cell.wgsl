// Hidden units of recurrent cells. A kernel declares `p: Params` with a member `shape: CellShape`, and `GATES`, the number of
// gates of its cell.

struct CellShape {
    /// Number of hidden units of all rows, and of a row.
    units: u32,
    hidden: u32,
    /// Step that is read of x, and number of its steps.
    step: u32,
    steps: u32,
}

/// Returns the place of the first gate of a unit in the products with h.
fn gate_of_unit(unit: u32) -> u32 {
    return unit + (GATES - 1u) * (unit / p.shape.hidden) * p.shape.hidden;
}

/// Returns the place of the first gate of a unit in the products with the inputs of all steps.
fn gate_of_step(unit: u32) -> u32 {
    let row = unit / p.shape.hidden;
    return gate_of_unit(unit) + (row * (p.shape.steps - 1u) + p.shape.step) * GATES * p.shape.hidden;
}
