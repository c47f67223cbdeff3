//! Launch of a kernel: constants, parameters, buffers, grid.

use crate::{
    Error, Memory, Table, Wgpu,
    device::ALIGNMENT,
    kernel::{self, FIRST_OPERAND, Kernel, function::FunctionText},
    memory::Bytes,
    recording::Launch,
};
use gradscale_core::{
    backend::{Buffer, Cast, DType, Store},
    stats::Detail,
};
use std::sync::atomic::Ordering::Relaxed;

/// Number of invocations of a workgroup, in all kernels that iterate over elements.
pub(crate) const WORKGROUP_SIZE: u32 = 256;
/// Maximum number of workgroups of a kernel with a grid-stride loop. More do not make a device faster, and each one merges
/// its statistics into the row.
pub(crate) const MAX_STRIDED_WORKGROUPS: u32 = 2048;

/// Bytes of the sums of a workgroup: four f32.
pub(crate) const PARTIAL_SUMS_BYTES: u64 = 16;

/// Launch of a kernel: its constants, parameters and bindings.
pub(crate) struct KernelLaunch<'a> {
    kernel: &'static Kernel,
    function: Option<FunctionText>,
    constants: Vec<(&'static str, u32)>,
    params: Vec<u32>,
    buffers: Vec<(u32, wgpu::BufferBinding<'a>)>,
    store: Option<ObservedStore<'a>>,
    /// Casts that the kernel observes besides the store.
    casts: Vec<ObservedStore<'a>>,
    partials: Option<OwnPartials<'a>>,
    operands: u32,
}

/// Memory of an operator for the sums of workgroups: first those of the store, and those of each cast `stride` sums later.
#[derive(Clone, Copy)]
pub(crate) struct OwnPartials<'a> {
    pub buffer: &'a wgpu::Buffer,
    /// Number of sums, of which a whole number of bindings' alignments fits.
    pub stride: u32,
}

/// Statistics row of a store or of a cast, and its level of detail.
struct ObservedStore<'a> {
    table: &'a Table,
    slot: u32,
    detail: Detail,
}

impl<'a> KernelLaunch<'a> {
    pub fn new(kernel: &'static Kernel) -> Self {
        Self {
            kernel,
            function: None,
            constants: vec![],
            params: vec![],
            buffers: vec![],
            store: None,
            casts: vec![],
            partials: None,
            operands: 0,
        }
    }

    /// Sets an `override` constant of the kernel's pipeline.
    pub fn constant(mut self, name: &'static str, value: u32) -> Self {
        self.constants.push((name, value));
        self
    }

    /// Sets the function that an elementwise kernel applies.
    pub fn function(self, function: FunctionText) -> Self {
        Self { function: Some(function), ..self }
    }

    /// Appends members of `Params`, in order; those of a store come first, by [`Call::store`].
    pub fn params(mut self, words: impl IntoIterator<Item = u32>) -> Self {
        self.params.extend(words);
        self
    }

    /// Binds all of a buffer that belongs to the backend.
    pub fn buffer(self, binding: u32, buffer: &'a wgpu::Buffer) -> Self {
        self.part(binding, Bytes::whole(buffer))
    }

    /// Binds memory that the kernel does not read as an operand.
    pub fn memory(self, binding: u32, memory: &'a Memory) -> Self {
        self.part(binding, memory.bytes())
    }

    /// Binds bytes of a buffer from a multiple of [`ALIGNMENT`] on.
    pub fn part(mut self, binding: u32, Bytes { buffer, start, size }: Bytes<'a>) -> Self {
        let size = wgpu::BufferSize::new(size);
        self.buffers.push((binding, wgpu::BufferBinding { buffer, offset: start, size }));
        self
    }

    /// Binds some memory in place of an operand that the kernel does not access.
    pub fn dummy_operand(self, binding: u32, any: &'a Memory) -> Self {
        self.part(binding, dummy_range(any))
    }

    /// Binds the next operand, and sets its type if that is a constant.
    pub fn operand(self, memory: &'a Memory) -> Self {
        self.operand_as(memory.bytes(), memory.dtype())
    }

    fn operand_as(mut self, bytes: Bytes<'a>, dtype: DType) -> Self {
        let operand = &self.kernel.operands[self.operands as usize];
        if operand.dtype.is_none() {
            self.constants.push((upper(operand.name), dtype.code()));
        }
        self.operands += 1;
        let binding = FIRST_OPERAND + self.operands - 1;
        self.part(binding, bytes)
    }

    /// Binds the next operand. Without one, binds any memory, which the kernel does not access.
    pub fn optional_operand(self, memory: Option<&'a Memory>, any: &'a Memory) -> Self {
        match memory {
            Some(memory) => self.operand(memory),
            None => self.operand_as(dummy_range(any), DType::F32),
        }
    }

    /// Sets the store of a kernel that leaves storing and observing to the next kernel; otherwise as [`Call::store`].
    pub fn store_later(self, store: &'a Store<'_, Wgpu>) -> Self {
        let mut call = self.store(store);
        call.params[2] = Detail::None.code();
        call.store = call.store.map(|seen| ObservedStore { detail: Detail::None, ..seen });
        call
    }

    /// Appends the members of `Cast` in cast.wgsl, of which the kernel observes the values if `is_observed`.
    pub fn cast(mut self, cast: &'a Cast<'_, Wgpu>, is_observed: bool) -> Self {
        let Cast { table, from, to, detail } = cast;
        if is_observed {
            self.casts.push(ObservedStore { table, slot: u32::from(to.0), detail: *detail });
        }
        self.params([u32::from(from.0), u32::from(to.0), detail.code(), 0])
    }

    /// Sets the memory for the sums of workgroups, in place of scratch memory of the launch.
    pub fn partials(self, partials: OwnPartials<'a>) -> Self {
        Self { partials: Some(partials), ..self }
    }

    /// Sets destination and epilogue: the first four words of `Params`, control, rows and y.
    pub fn store(mut self, store: &'a Store<'_, Wgpu>) -> Self {
        let Store { y, table, from, to, detail, add } = store;
        let how = 2 * y.dtype().code() + u32::from(*add);
        self.params.splice(0..0, [u32::from(from.0), u32::from(to.0), detail.code(), how]);
        self.store = Some(ObservedStore { table, slot: u32::from(to.0), detail: *detail });
        self.buffer(1, &table.control).buffer(2, &table.rows).memory(3, y)
    }
}

/// Returns the start of a memory, as a binding that is not accessed.
fn dummy_range(memory: &Memory) -> Bytes<'_> {
    let all = memory.bytes();
    Bytes { size: all.size.min(ALIGNMENT), ..all }
}

/// Returns the name of the WGSL constant that holds the type of an operand.
fn upper(name: &str) -> &'static str {
    match name {
        "x" => "X",
        "a" => "A",
        "b" => "B",
        "offset" => "OFFSET",
        "dy" => "DY",
        "u" => "U",
        "v" => "V",
        "labels" => "LABELS",
        "lengths" => "LENGTHS",
        "selection" => "SELECTION",
        other => panic!("no constant for an operand {other}"),
    }
}

/// Returns the workgroups of a kernel with a grid-stride loop over `items`.
pub(crate) fn strided_workgroups(items: u32) -> u32 {
    items.div_ceil(WORKGROUP_SIZE).clamp(1, MAX_STRIDED_WORKGROUPS)
}

impl Wgpu {
    /// Enqueues a launch of `groups` workgroups, which the kernel numbers by `group_number`.
    pub(crate) fn launch(&self, call: KernelLaunch<'_>, groups: u32) -> Result<(), Error> {
        self.launch_grid(call, self.grid(groups))
    }

    /// Returns a grid of at least `groups` workgroups, which has at most 65535 in each direction. Kernels ignore surplus
    /// ones in its last row.
    pub(crate) fn grid(&self, groups: u32) -> [u32; 3] {
        let most = self.max_groups();
        if groups <= most { [groups, 1, 1] } else { [most, groups.div_ceil(most), 1] }
    }

    /// Enqueues the launch of a kernel on a grid of workgroups.
    pub(crate) fn launch_grid(&self, mut call: KernelLaunch<'_>, grid: [u32; 3]) -> Result<(), Error> {
        let groups = grid.iter().product::<u32>();
        let partials = match (&call.partials, &call.store) {
            (Some(own), _) => Some(own.buffer.clone()),
            // Kernels without a store have no sums. Others write them at the highest level of detail only.
            (None, None) => None,
            (None, Some(seen)) if seen.detail == Detail::Moments => {
                Some(self.partial_sums(PARTIAL_SUMS_BYTES * u64::from(groups))?)
            }
            (None, Some(_)) => Some(self.partial_sums(PARTIAL_SUMS_BYTES)?),
        };
        let windows = self.windows_of(&call);
        let mut constants = core::mem::take(&mut call.constants);
        if windows > 1 {
            constants.push(("WINDOW", self.window_bytes().ilog2()));
        }
        let pipeline = self.pipeline(call.kernel, windows, call.function, constants)?;
        let mut buffers = core::mem::take(&mut call.buffers);
        if let Some(partials) = &partials {
            buffers.push((4, partials.as_entire_buffer_binding()));
        }
        let dummy_buffer = if windows > 1 { Some(self.dummy_buffer()?) } else { None };
        if let Some(dummy_buffer) = &dummy_buffer {
            buffers = self.split_into_bindings(call.kernel, windows, buffers, dummy_buffer);
        }
        let bindings = self.bind(&pipeline, &call.params, buffers)?;
        self.enqueue(Launch { pipeline, bindings, grid, only: None })?;
        let Some(partials) = partials else { return Ok(()) };
        let stride = PARTIAL_SUMS_BYTES * call.partials.map_or(0, |own| u64::from(own.stride));
        for (start, seen) in (0..).map(|i| i * stride).zip(call.store.iter().chain(&call.casts)) {
            if seen.detail == Detail::Moments {
                let size = wgpu::BufferSize::new(PARTIAL_SUMS_BYTES * u64::from(groups));
                self.merge_moments(seen, groups, wgpu::BufferBinding { buffer: &partials, offset: start, size })?;
            }
        }
        Ok(())
    }

    /// Adds the sums of all workgroups of the last launch to the statistics row, in steps that request sums.
    fn merge_moments(
        &self, seen: &ObservedStore<'_>, groups: u32, partials: wgpu::BufferBinding<'_>,
    ) -> Result<(), Error> {
        let pipeline = self.pipeline(&kernel::MOMENTS, 1, None, vec![])?;
        let buffers = vec![(2, seen.table.rows.as_entire_buffer_binding()), (4, partials)];
        let bindings = self.bind(&pipeline, &[groups, seen.slot], buffers)?;
        let only = (seen.table.detail.clone(), Detail::Moments.code());
        if self.is_recording() || only.0.load(Relaxed) >= only.1 {
            self.enqueue(Launch { pipeline, bindings, grid: [1; 3], only: Some(only) })?;
        }
        Ok(())
    }

    /// Returns how many windows each tensor of a call needs: one, or a power of two (few variants), or the maximum.
    fn windows_of(&self, call: &KernelLaunch<'_>) -> u32 {
        let is_tensor = |binding: u32| call.kernel.tensors().any(|tensor| tensor.binding == binding);
        let tensors = call.buffers.iter().filter(|(binding, _)| is_tensor(*binding));
        let largest = tensors.map(|(_, bound)| bound.size.map_or(0, wgpu::BufferSize::get)).max().unwrap_or(0);
        if largest <= self.largest_binding() {
            return 1;
        }
        let needed = u32::try_from(largest.div_ceil(self.window_bytes())).unwrap_or(u32::MAX);
        needed.checked_next_power_of_two().unwrap_or(u32::MAX).min(self.max_windows())
    }

    /// Returns the same buffers, with tensors divided into windows. Windows after a tensor's end may contain anything:
    /// for a read tensor its own beginning, for a written one a part of `others`, because writable memory may be bound
    /// only once.
    fn split_into_bindings<'a>(
        &self, kernel: &Kernel, windows: u32, buffers: Vec<(u32, wgpu::BufferBinding<'a>)>,
        dummy_buffer: &'a wgpu::Buffer,
    ) -> Vec<(u32, wgpu::BufferBinding<'a>)> {
        let (mut all, mut used) = (Vec::new(), 0);
        let size = self.window_bytes();
        for (binding, bound) in buffers {
            let Some(tensor) = kernel.tensors().find(|tensor| tensor.binding == binding) else {
                all.push((binding, bound));
                continue;
            };
            let whole = bound.size.map_or(0, wgpu::BufferSize::get);
            for window in 0..windows {
                let start = u64::from(window) * size;
                let rest = wgpu::BufferSize::new(whole.saturating_sub(start).min(size));
                let seen = if rest.is_some() {
                    wgpu::BufferBinding { buffer: bound.buffer, offset: bound.offset + start, size: rest }
                } else if tensor.is_written() {
                    used += ALIGNMENT;
                    let size = wgpu::BufferSize::new(ALIGNMENT);
                    wgpu::BufferBinding { buffer: dummy_buffer, offset: used - ALIGNMENT, size }
                } else {
                    let size = wgpu::BufferSize::new(whole.min(ALIGNMENT));
                    wgpu::BufferBinding { buffer: bound.buffer, offset: bound.offset, size }
                };
                all.push((tensor.window(window), seen));
            }
        }
        all
    }

    fn bind(
        &self, pipeline: &wgpu::ComputePipeline, params: &[u32], buffers: Vec<(u32, wgpu::BufferBinding<'_>)>,
    ) -> Result<wgpu::BindGroup, Error> {
        for (_, bound) in &buffers {
            let bytes = bound.size.map_or_else(|| bound.buffer.size() - bound.offset, wgpu::BufferSize::get);
            self.check_binding_size(bytes)?;
        }
        // Uniform structs are multiples of 16 bytes.
        let mut words = params.to_vec();
        words.resize(params.len().next_multiple_of(4).max(4), 0);
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let uniform = self.new_buffer(4 * words.len() as u64, usage)?;
        self.queue().write_buffer(&uniform, 0, bytemuck::cast_slice(&words));
        let mut entries = vec![wgpu::BindGroupEntry { binding: 0, resource: uniform.as_entire_binding() }];
        entries.extend(
            buffers.into_iter().map(|(binding, bound)| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(bound),
            }),
        );
        let layout = pipeline.get_bind_group_layout(0);
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries };
        self.capture_validation_error(|| self.device().create_bind_group(&descriptor))
    }
}
