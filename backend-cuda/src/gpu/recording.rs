//! Recordings of steps as CUDA graphs.

use super::Context;
use crate::{Error, error::driver_error};
use cudarc::driver::{
    result::{graph, stream},
    sys,
};
use std::{collections::BTreeSet, sync::Arc};

/// Recorded step as a CUDA graph. It may outlive the device, but then it can no longer be replayed.
#[derive(Debug)]
pub struct GpuRecording {
    context: Arc<Context>,
    graph: sys::CUgraph,
    launches: sys::CUgraphExec,
    /// Addresses of the memory that the recorded launches use.
    used: BTreeSet<u64>,
}

// SAFETY: as for the device.
unsafe impl Send for GpuRecording {}
// SAFETY: repeating it goes through the device.
unsafe impl Sync for GpuRecording {}

impl GpuRecording {
    /// Ends the recording of a stream and returns its graph, which uses this memory.
    ///
    /// # Safety
    /// The stream lives and records; the context, its own, is current.
    ///
    /// # Errors
    /// The driver's.
    pub(super) unsafe fn end(
        context: &Arc<Context>, stream: sys::CUstream, used: BTreeSet<u64>,
    ) -> Result<Self, Error> {
        let doing = driver_error("end a recording");
        // SAFETY: the caller's promise; the graph is destroyed with the recording, or here.
        unsafe {
            let graph = stream::end_capture(stream).map_err(&doing)?;
            match graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) {
                Ok(launches) => Ok(Self { context: context.clone(), graph, launches, used }),
                Err(error) => {
                    graph::destroy(graph).ok();
                    Err(doing(error))
                }
            }
        }
    }

    /// Returns the addresses of the memory that the recorded launches use.
    pub(super) const fn used(&self) -> &BTreeSet<u64> {
        &self.used
    }

    /// Enqueues the launches of the recording on a stream.
    ///
    /// # Safety
    /// All memory that they name lives; the stream is of the recording's context, which is current.
    ///
    /// # Errors
    /// The driver's.
    pub(super) unsafe fn repeat(&self, stream: sys::CUstream) -> Result<(), Error> {
        // SAFETY: the recording is whole; the rest is the caller's promise.
        unsafe { graph::launch(self.launches, stream) }.map_err(driver_error("repeat a step"))
    }
}

impl Drop for GpuRecording {
    fn drop(&mut self) {
        self.context.enter().ok();
        // SAFETY: both were made for this recording, in a context that it holds.
        unsafe {
            graph::exec_destroy(self.launches).ok();
            graph::destroy(self.graph).ok();
        }
    }
}
