//! Recorded launches.

use crate::{
    objects::{Executable, Graph, Handle, KernelLaunch, Work},
    state::{forbidden, state},
    status::{self, Status, done},
};
use core::ffi::c_ulonglong;
use std::sync::Arc;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) -> Status {
    let mut state = state();
    done(state.entered().and_then(|context| {
        let capture = state.stream(stream).capture.take().ok_or(status::INVALID_VALUE)?;
        if capture.invalid {
            return Err(status::CAPTURE_INVALIDATED);
        }
        let handle = state.handle();
        state.graphs.insert(handle, Graph { context, launches: Arc::new(capture.launches) });
        // SAFETY: the caller's memory.
        unsafe { graph.write(handle) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(
    executable: *mut Handle, graph: Handle, _flags: c_ulonglong,
) -> Status {
    let mut state = state();
    done(state.entered().and_then(|context| {
        if state.device().faults.allocation_fails() {
            return Err(status::OUT_OF_MEMORY);
        }
        let Some(Graph { launches, .. }) = state.graphs.get(&graph) else { forbidden("a graph that was destroyed") };
        let made = Executable { context, launches: launches.clone() };
        let handle = state.handle();
        state.executables.insert(handle, made);
        // SAFETY: the caller's memory.
        unsafe { executable.write(handle) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(executable: Handle, stream: Handle) -> Status {
    let mut state = state();
    let current = state.current();
    let launches = match state.executables.get(&executable) {
        Some(found) if found.context == current => found.launches.clone(),
        Some(_) => forbidden("a recording of another context"),
        None => forbidden("a recording that was destroyed"),
    };
    let mut named: Vec<u64> = launches.iter().flat_map(KernelLaunch::named).collect();
    named.sort_unstable();
    named.dedup();
    done(state.enqueue(stream, Work::Graph(launches), named))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(executable: Handle) -> Status {
    let mut state = state();
    state.current();
    if state.executables.remove(&executable).is_none() {
        forbidden("a recording is destroyed that is none any more");
    }
    status::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: Handle) -> Status {
    let mut state = state();
    state.current();
    if state.graphs.remove(&graph).is_none() {
        forbidden("a graph is destroyed that is none any more");
    }
    status::SUCCESS
}
