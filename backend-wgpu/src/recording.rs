//! Launches that wait in a queue or are kept as a recording, and how they are encoded.

use std::sync::{Arc, atomic::AtomicU32};

/// Dispatch of a compute shader that waits for submission: pipeline, bindings and grid.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub pipeline: wgpu::ComputePipeline,
    pub bindings: wgpu::BindGroup,
    pub grid: [u32; 3],
    /// Skipped while the number is below the second one: launches that only some levels of detail need.
    pub only: Option<(Arc<AtomicU32>, u32)>,
}

/// Recorded launches of a training step, which can be enqueued again.
#[derive(Debug, Default)]
pub struct Recording {
    pub(crate) launches: Vec<Launch>,
}

impl Recording {
    pub(crate) fn launches(&self) -> &[Launch] {
        &self.launches
    }
}

#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub launches: Vec<Launch>,
    /// Launches of the recording in progress, or `None` while nothing is recorded.
    pub recording: Option<Vec<Launch>>,
    /// True if launches are collected without a limit, because a caller puts timestamps around them.
    pub is_held: bool,
}

/// Encodes all launches into one pass. wgpu inserts barriers where they are needed.
pub(crate) fn encode(launches: &[Launch], encoder: &mut wgpu::CommandEncoder) {
    if launches.is_empty() {
        return;
    }
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    for launch in launches {
        let [x, y, z] = launch.grid;
        pass.set_pipeline(&launch.pipeline);
        pass.set_bind_group(0, &launch.bindings, &[]);
        pass.dispatch_workgroups(x, y, z);
    }
}
