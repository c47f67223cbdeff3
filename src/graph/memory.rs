//! Which buffers share memory.
//!
//! A buffer is free as soon as the last launch that uses it is done; the next one of the same type and length takes
//! its place. Deterministic: the same trace always gets the same places.

use super::{Buf, Program, Purpose};
use gradscale_core::backend::DType;
use std::collections::HashMap;

/// Gives every virtual buffer of `program` a place in the arena.
pub(super) fn assign(program: &mut Program, buffers: &[(DType, usize)], keep: bool) {
    let mut last: Vec<Option<usize>> = vec![None; buffers.len()];
    for (at, launch) in program.launches.iter().enumerate() {
        for buf in launch.buffers() {
            if let Buf::Arena(i) = buf {
                last[i] = Some(at);
            }
        }
    }
    // The loss is read when the step is over.
    let mut pinned = vec![keep; buffers.len()];
    if let Buf::Arena(i) = program.output.buf {
        pinned[i] = true;
    }
    // A repeat reads them again.
    for input in program.inputs.iter().filter(|_| program.holds) {
        if let Buf::Arena(i) = *input {
            pinned[i] = true;
        }
    }
    let mut arena: Vec<(DType, usize)> = Vec::new();
    let mut free: HashMap<(DType, usize), Vec<usize>> = HashMap::new();
    let mut place: Vec<Option<usize>> = vec![None; buffers.len()];
    let mut take = |i: usize, place: &mut Vec<Option<usize>>, free: &mut HashMap<(DType, usize), Vec<usize>>| {
        if place[i].is_none() {
            let reused = free.get_mut(&buffers[i]).and_then(Vec::pop);
            place[i] = Some(reused.unwrap_or_else(|| {
                arena.push(buffers[i]);
                arena.len() - 1
            }));
        }
    };
    for input in &program.inputs {
        if let Buf::Arena(i) = *input {
            take(i, &mut place, &mut free);
        }
    }
    for (at, launch) in program.launches.iter().enumerate() {
        let used: Vec<usize> = launch
            .buffers()
            .into_iter()
            .filter_map(|buf| if let Buf::Arena(i) = buf { Some(i) } else { None })
            .collect();
        used.iter().for_each(|&i| take(i, &mut place, &mut free));
        for i in used {
            if last[i] == Some(at)
                && !pinned[i]
                && let Some(place) = place[i]
            {
                last[i] = None;
                free.entry(buffers[i]).or_default().push(place);
            }
        }
    }
    program.rename(|i| place[i].unwrap_or_default());
    debug_assert!(matches!(program.purpose, Purpose::Train { .. }) || program.gradients.is_empty());
    program.arena = arena;
}
