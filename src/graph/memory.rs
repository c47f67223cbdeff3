//! Memory planning: assignment of a program's virtual buffers to shared memory by liveness.
//!
//! Two buffers of one type can share memory if their live ranges do not overlap. Places in the arena are assigned to
//! the largest buffers first. So a later buffer fits into any place that is free, and it takes the smallest of these.
//! The plan is deterministic: the same trace always gets the same places.

use super::{BufferId, Program, Purpose, free_places::FreePlaces};
use gradscale_core::backend::DType;
use std::{cmp::Reverse, ops::RangeInclusive};

/// Assigns a place in the arena to every virtual buffer of `program`.
pub(super) fn assign(program: &mut Program, buffers: &[(DType, usize)], keep: bool) {
    let used = uses(program, buffers.len(), keep);
    let mut order: Vec<usize> = (0..buffers.len()).filter(|&i| used[i].is_some()).collect();
    order.sort_by_key(|&i| (Reverse(buffers[i].1), used[i].as_ref().map(|used| *used.start()), i));
    // Places of each type, with their indices in the arena.
    let mut types: Vec<(DType, FreePlaces, Vec<usize>)> = Vec::new();
    let mut arena = Vec::new();
    let mut place_of = vec![0; buffers.len()];
    for i in order {
        let (Some(used), (dtype, _)) = (&used[i], buffers[i]) else { continue };
        let known = types.iter().position(|(known, ..)| *known == dtype).unwrap_or_else(|| {
            types.push((dtype, FreePlaces::new(program.launches.len()), Vec::new()));
            types.len() - 1
        });
        let (_, places, indices) = &mut types[known];
        // The last place is the smallest.
        let at = places.take(used);
        if at == indices.len() {
            indices.push(arena.len());
            arena.push(buffers[i]);
        }
        place_of[i] = indices[at];
    }
    program.rename(|i| place_of[i]);
    debug_assert!(matches!(program.purpose, Purpose::Train { .. }) || program.gradients.is_empty());
    program.arena = arena;
}

/// Returns the live range of each buffer: the first and the last launch that uses it.
fn uses(program: &Program, count: usize, keep: bool) -> Vec<Option<RangeInclusive<usize>>> {
    let end = if keep { usize::MAX } else { 0 };
    let mut used: Vec<Option<RangeInclusive<usize>>> = vec![None; count];
    let mut see = |buf: BufferId, start: usize, end: usize| {
        if let BufferId::Arena(i) = buf {
            let (first, last) = used[i].take().map_or((start, end), |used| (*used.start(), end.max(*used.end())));
            used[i] = Some(first..=last);
        }
    };
    // Inputs are written before the first launch, and a repeat reads them again.
    let held = if program.repeats { usize::MAX } else { end };
    program.inputs.iter().for_each(|&input| see(input, 0, held));
    for (at, launch) in program.launches.iter().enumerate() {
        launch.buffers().into_iter().for_each(|buf| see(buf, at, end.max(at)));
    }
    // The host writes these before the launch, so no other buffer may have the place then.
    for sync in &program.stats_syncs {
        sync.clone().buffers().for_each(|buf| see(*buf, sync.before, end.max(sync.before)));
    }
    for beside in &program.aux_outputs {
        see(beside.value.buf, program.launches.len(), usize::MAX);
    }
    // The loss is read after the step.
    see(program.output.buf, program.launches.len(), usize::MAX);
    used
}
