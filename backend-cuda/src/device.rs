//! Device of the CUDA backend: how it is opened, its workspaces, and the dispatch of each operator.

use crate::{
    Cubins, Error,
    gpu::{Gpu, GpuRecording, LaunchOrder},
    kernel_selection::TensorCores,
    kernels::Kernel,
    memory::Memory,
    nccl,
    rank_connection::RankConnection,
    table::Table,
    workspace::{WorkspaceKind, WorkspacePool},
};
use bytemuck::{NoUninit, cast_slice, cast_slice_mut};
use core::{ops::Range, time::Duration};
use gradscale_core::{
    backend::{Backend, Caps, Control, DType, Data, DataMut, DeviceResult, GradReduce, Launch, OnDevice, UniqueId},
    ops::Attention,
    stats::{FlushRule, Stats},
};
use half::slice::HalfFloatSliceExt;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// Default maximum of bytes of a copy of the rows of a product. An image of 3 channels in SegNet's batch takes as many (12 ×
/// 360 × 480 pixels of 8 halves), and half of an H100's L2 holds them.
const MAX_COPY_BYTES: u64 = 32 << 20;

/// When convolutions are computed from halo tiles (`conv_halo.cu`), if their kernel has passed its self-test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HaloTiles {
    /// Where the model expects that they are fastest.
    #[default]
    Modelled,
    /// Wherever they are possible, to test and to measure them.
    Always,
    /// Never, to measure the other kernels.
    Never,
}

/// Device of the CUDA backend: an NVIDIA GPU with its workspaces.
#[derive(Debug)]
pub struct Cuda {
    pub(crate) gpu: Arc<Gpu>,
    workspace: Mutex<WorkspacePool>,
    warpgroups: bool,
    halo_tiles: HaloTiles,
    /// Kernel, and the one that is launched in its place.
    variant: Option<[&'static Kernel; 2]>,
    f32_tensor_cores: bool,
    launch_order: LaunchOrder,
    /// Result of each self-test on this device, by name; an error describes the first difference.
    pub(crate) self_test_results: Mutex<HashMap<String, Result<(), String>>>,
    recording: AtomicBool,
    /// Maximum number of bytes of a copy of the rows of a product.
    max_copy_bytes: u64,
    /// Connection to the devices of other ranks, once joined.
    pub(crate) connection: Mutex<Option<RankConnection>>,
    pub(crate) nccl: bool,
}

impl Cuda {
    /// Returns the number of devices; 0 without a driver.
    #[must_use]
    pub fn count() -> usize {
        Gpu::count().unwrap_or(0)
    }

    /// Opens the device of that number, with machine code [where a program looks for it](Cubins::of_user).
    ///
    /// The environment can disable parts, to measure them: with `GRADSCALE_WARPGROUPS=0` the device is [without
    /// warpgroups](Self::without_warpgroups), with `GRADSCALE_F32_TENSOR_CORES=0` [without tensor cores for
    /// f32](Self::without_f32_tensor_cores), with `GRADSCALE_DEPENDENT_LAUNCH=0` [without dependent
    /// launches](Self::without_dependent_launches).
    ///
    /// # Errors
    /// [`Error::NoLibrary`] without NVIDIA's driver, or without its run-time compiler and machine code for the device;
    /// [`Error::NoDevice`], [`Error::TooOld`], and the driver's.
    pub fn open(ordinal: usize) -> Result<Self, Error> {
        Self::open_with(ordinal, Cubins::of_user())
    }

    /// Opens a device with machine code from `cubins`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(ordinal: usize, cubins: Cubins) -> Result<Self, Error> {
        let device = Self::on(Gpu::open(ordinal, cubins)?);
        let is_off = |name: &str| std::env::var_os(name).is_some_and(|value| value == "0");
        let device = if is_off("GRADSCALE_WARPGROUPS") { device.without_warpgroups() } else { device };
        let device = if is_off("GRADSCALE_F32_TENSOR_CORES") { device.without_f32_tensor_cores() } else { device };
        Ok(if is_off("GRADSCALE_DEPENDENT_LAUNCH") { device.without_dependent_launches() } else { device })
    }

    /// Creates the device of an opened GPU.
    fn on(gpu: Gpu) -> Self {
        let (warpgroups, launch_order) = (gpu.arch() == 90, gpu.launch_order());
        Self {
            gpu: Arc::new(gpu),
            workspace: Mutex::default(),
            warpgroups,
            halo_tiles: HaloTiles::default(),
            variant: None,
            f32_tensor_cores: true,
            launch_order,
            self_test_results: Mutex::default(),
            recording: AtomicBool::new(false),
            max_copy_bytes: MAX_COPY_BYTES,
            connection: Mutex::default(),
            nccl: true,
        }
    }

    /// Disables products by warpgroups (wgmma) and TMA on sm_90, to measure how much they help.
    #[must_use]
    pub fn without_warpgroups(self) -> Self {
        Self { warpgroups: false, ..self }
    }

    /// Selects when convolutions of few channels are computed from halo tiles on sm_90.
    #[must_use]
    pub fn with_halo_tiles(self, halo_tiles: HaloTiles) -> Self {
        Self { halo_tiles, ..self }
    }

    /// Launches a variant in the place of a kernel with the same parameters, to measure what a part of it costs. Self-tests
    /// that the kernel has passed count for the variant.
    #[must_use]
    pub fn with_variant(self, kernel: &'static Kernel, variant: &'static Kernel) -> Self {
        Self { variant: Some([kernel, variant]), ..self }
    }

    /// Disables programmatic dependent launch, by which a kernel's launch overlaps with the end of the kernel before,
    /// to measure how much it helps. It is available from compute capability 9.0 and CUDA 12.3 on.
    #[must_use]
    pub fn without_dependent_launches(self) -> Self {
        Self { launch_order: LaunchOrder::Serial, ..self }
    }

    /// Disables products of f32 operands by tensor cores on sm_90, as six products of bfloat16. Then f32 products have the
    /// bits that other devices give.
    #[must_use]
    pub fn without_f32_tensor_cores(self) -> Self {
        Self { f32_tensor_cores: false, ..self }
    }

    /// Limits the scratch memory for copies of operands that are not aligned, and for the parts of f32 operands. A larger
    /// operand is copied in bands of rows, one after another, or one row of tiles or one image at a time.
    #[must_use]
    pub fn with_max_copy_bytes(self, max_copy_bytes: u64) -> Self {
        Self { max_copy_bytes, ..self }
    }

    /// Disables NCCL, which is used by default if all ranks have it. Gradients are then sent through host memory, with
    /// the same bits.
    #[must_use]
    pub fn without_nccl(self) -> Self {
        Self { nccl: false, ..self }
    }

    /// Returns the self-test results of the architecture-specific modules used so far. A module that failed is replaced
    /// by another.
    #[must_use]
    pub fn self_test_results(&self) -> BTreeMap<String, Result<(), String>> {
        let self_test_results = self.self_test_results.lock().unwrap_or_else(PoisonError::into_inner);
        self_test_results.iter().map(|(name, proof)| (name.clone(), proof.clone())).collect()
    }

    /// Returns true while launches are recorded instead of run.
    pub(crate) fn is_recording(&self) -> bool {
        self.recording.load(Relaxed)
    }

    /// Returns true if matrix products use warpgroup instructions (compute capability 9.0).
    pub(crate) const fn has_warpgroups(&self) -> bool {
        self.warpgroups
    }

    /// Returns the instructions of the device's tensor cores that kernels may use.
    pub(crate) fn tensor_cores(&self) -> TensorCores {
        if self.has_warpgroups() {
            TensorCores::Wgmma
        } else if self.gpu().arch() < 80 {
            TensorCores::M16n8k8
        } else {
            TensorCores::M16n8k16
        }
    }

    /// Returns when convolutions are computed from halo tiles.
    pub(crate) const fn halo_tiles(&self) -> HaloTiles {
        self.halo_tiles
    }

    /// Returns true if products of f32 operands may use tensor cores, which needs warpgroups.
    pub(crate) const fn has_f32_tensor_cores(&self) -> bool {
        self.warpgroups && self.f32_tensor_cores
    }

    /// Returns the maximum number of bytes of a copy of the rows of a product.
    pub(crate) const fn max_copy_bytes(&self) -> u64 {
        self.max_copy_bytes
    }

    /// Returns the GPU of the device, with its stream and loaded kernels.
    #[must_use]
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Returns the address of a workspace of at least `bytes` bytes.
    pub(crate) fn workspace_address(&self, kind: WorkspaceKind, bytes: usize) -> Result<u64, Error> {
        self.workspace.lock().unwrap_or_else(PoisonError::into_inner).reserve(&self.gpu, kind, bytes)
    }

    /// Returns length and grid of a kernel that computes `len` dense results.
    pub(crate) fn elementwise_grid(&self, kernel: &'static Kernel, len: usize) -> Result<(u32, [u32; 3]), Error> {
        let len = u32::try_from(len).expect("fewer than 2^32 elements, as descriptors say");
        Ok((len, [self.fill_device(kernel, len.div_ceil(8 * 256))?, 1, 1]))
    }

    /// Returns the number of blocks of a kernel that would have work for `max_blocks`: no more than the device holds at
    /// once, so that all end together.
    pub(crate) fn fill_device(&self, kernel: &'static Kernel, max_blocks: u32) -> Result<u32, Error> {
        Ok(max_blocks.min(self.gpu.resident_blocks(kernel)?))
    }

    /// Launches a kernel; nothing if it has no blocks.
    ///
    /// # Safety
    /// As [`Gpu::launch`].
    pub(crate) unsafe fn launch<P: NoUninit>(
        &self, kernel: &'static Kernel, blocks: [u32; 3], params: &P,
    ) -> Result<(), Error> {
        if blocks.contains(&0) {
            return Ok(());
        }
        let kernel = match self.variant {
            Some([replaced, variant]) if core::ptr::eq(replaced, kernel) => variant,
            Some(_) | None => kernel,
        };
        // SAFETY: the caller's promise.
        unsafe { self.gpu.launch(kernel, self.launch_order, blocks, params) }
    }
}

impl Backend for Cuda {
    type Buffer = Memory;
    type Table = Table;
    type Recording = GpuRecording;
    type Error = Error;

    fn caps(&self) -> Caps<'_> {
        // `cvt.rn.f16.f32` keeps subnormals, and kernels are compiled without flush to zero.
        Caps { name: self.gpu.name(), flush: FlushRule::Nearest, f32_subnormals: true, max_buffer: self.gpu.memory() }
    }

    fn scratch_peak(&self) -> Option<u64> {
        Some(self.workspace.lock().unwrap_or_else(PoisonError::into_inner).take_peak())
    }

    fn check_eight_bit_products(&self) -> Result<(), Error> {
        self.require_eight_bit_products()
    }

    fn workspace(&self) -> u64 {
        self.workspace.lock().unwrap_or_else(PoisonError::into_inner).bytes()
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Memory, Error> {
        Memory::new(&self.gpu, dtype, len)
    }

    fn write(&self, src: Data<'_>, dst: &mut Memory) -> DeviceResult<Self> {
        let at = dst.expect_len(src.len()).typed_address(src.dtype());
        // SAFETY: `dst` holds as many elements of that type.
        unsafe { self.gpu.copy_in(bytes_of(src), at) }
    }

    fn prefetch(&self, src: Data<'_>, dst: &mut Memory) -> DeviceResult<Self> {
        let at = dst.expect_len(src.len()).prefetch_address(src.dtype());
        // SAFETY: as above.
        unsafe { self.gpu.upload_async(bytes_of(src), at) }
    }

    async fn read(&self, src: &Memory, dst: DataMut<'_>) -> DeviceResult<Self> {
        let at = src.expect_len(dst.len()).typed_address(dst.dtype());
        let bytes: &mut [u8] = match dst {
            DataMut::F32(dst) => cast_slice_mut(dst),
            DataMut::F16(dst) => cast_slice_mut(dst.reinterpret_cast_mut()),
            DataMut::U8(dst) => dst,
            DataMut::U32(dst) => cast_slice_mut(dst),
        };
        // SAFETY: `src` holds as many elements of that type.
        unsafe { self.gpu.copy_out(&mut [(at, bytes)]) }
    }

    fn table(&self, slots: u16, hyperparameters: u16) -> Result<Table, Error> {
        Table::new(&self.gpu, slots, hyperparameters)
    }

    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Table) -> DeviceResult<Self> {
        table.upload(control, clear)?;
        self.gpu.mark()
    }

    async fn collect(
        &self, table: &Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Memory], values: &mut [f32],
    ) -> DeviceResult<Self> {
        let (at, len) = table.row_range(&rows);
        let mut bytes = vec![0; len];
        let mut parts = vec![(at, &mut bytes[..])];
        let scalars = values.chunks_mut(1).zip(scalars);
        parts.extend(
            scalars.map(|(value, scalar)| (scalar.expect_len(1).typed_address(DType::F32), cast_slice_mut(value))),
        );
        parts.retain(|(_, part)| !part.is_empty());
        // SAFETY: these rows are in the table, and scalars have a first element.
        unsafe { self.gpu.copy_out(&mut parts)? };
        table.decode_rows(&rows, &bytes, out)
    }

    fn record(&self, work: impl FnOnce() -> DeviceResult<Self>) -> Result<Option<GpuRecording>, Error> {
        self.gpu.start_recording()?;
        self.recording.store(true, Relaxed);
        let result = work();
        self.recording.store(false, Relaxed);
        let recording = self.gpu.stop_recording();
        result?;
        recording.map(Some)
    }

    fn replay(&self, step: &GpuRecording) -> DeviceResult<Self> {
        // SAFETY: the trait's promise: buffers and table still live. Scratch memory lives as long as the device.
        unsafe { self.gpu.repeat(step) }
    }

    /// Times each piece of work by two events around it.
    fn time(&self, times: &mut [Duration], work: impl FnMut(usize) -> DeviceResult<Self>) -> Result<bool, Error> {
        self.gpu.time(times, work).map(|()| true)
    }

    /// The kernels take every shape.
    fn fuses_attention(&self, _: &Attention) -> bool {
        true
    }

    fn launch(&self, launch: Launch<OnDevice<'_, Self>>) -> DeviceResult<Self> {
        match launch {
            Launch::Unary { op, len, x, y } => self.run_unary(op, len, x, &y),
            Launch::Round { format, len, x, y } => self.run_round(format, len, x, &y),
            Launch::RoundBlocks { format, rows, columns, x, y } => {
                self.run_round_blocks(format, [rows, columns], x, &y)
            }
            Launch::Pack { format, len, x, y } => self.run_pack(format, len, x, y),
            Launch::Unpack { format, len, x, y } => self.run_unpack(format, len, x, y),
            Launch::Binary { p, a, b, y } => self.run_binary(&p, a, b, &y),
            Launch::Sum { len, terms, y } => self.run_sum(len, terms, y),
            Launch::Reduce { p, x, y } => self.run_reduce(&p, x, &y),
            Launch::Copy { p, x, y } => self.run_copy(&p, x, &y),
            Launch::Gemm { p, a, b, bias, y } => self.run_gemm(&p, a, b, bias, &y),
            Launch::Conv { p, pass, a, b, bias, y } => self.run_conv(&p, pass, a, b, bias, &y),
            Launch::Pool { p, x, indices, y } => self.run_pool(&p, x, indices.as_deref(), &y),
            Launch::Unpool { p, way, x, indices, y } => self.run_unpool(&p, way, x, indices, &y),
            Launch::Rows { p, way, x, indices, y } => self.run_rows(&p, way, x, indices, &y),
            Launch::RoiAlign { p, way, x, boxes, y } => self.run_roi_align(&p, way, x, boxes, &y),
            Launch::RoiPool { p, x, boxes, indices, y } => self.run_roi_pool(&p, x, boxes, indices, &y),
            Launch::RoiUnpool { p, x, boxes, indices, y } => self.run_roi_unpool(&p, x, boxes, indices, &y),
            Launch::Norm { p, x, affine, saved, y } => self.run_norm(&p, x, affine, saved, &y),
            Launch::NormVjp { p, x, dy, dx, affine } => self.run_norm_vjp(&p, x, dy, &dx, affine.as_ref()),
            Launch::Softmax { p, x, selection, y } => self.run_softmax(&p, x, selection, &y),
            Launch::SoftmaxVjp { p, y, dy, dx } => self.run_softmax_vjp(&p, y, dy, &dx),
            Launch::Attention { p, x, log_sums, y } => self.run_attention(&p, x, log_sums, &y),
            Launch::AttentionVjp { p, x, y, log_sums, dy, dp, ds, dq, dk, dv } => {
                self.run_attention_vjp(&p, x, [y, log_sums, dy], [&dp, &ds], [&dq, &dk, &dv])
            }
            Launch::Lstm { p, x, y, state } => self.run_lstm(&p, x, &y, state),
            Launch::LstmVjp { p, x, dh, dc, y, state } => self.run_lstm_vjp(&p, x, dh, dc, &y, state),
            Launch::Gru { p, x, y } => self.run_gru(&p, x, &y),
            Launch::GruVjp { p, x, dh, y, dx, state } => self.run_gru_vjp(&p, x, dh, &y, &dx, state),
            Launch::CrossEntropy { p, x, out } => self.run_cross_entropy(&p, x, out),
            Launch::CrossEntropyVjp { p, x, out, g, dx } => self.run_cross_entropy_vjp(&p, x, out, g, &dx),
            Launch::Ctc { p, x, losses, gradient } => self.run_ctc(&p, x, losses, gradient.as_deref()),
            Launch::GlobalNorm { gradients, norm } => self.run_global_norm(gradients, norm),
            Launch::Optimize { p, table, guard, norm, parameters } => {
                self.run_optimize(&p, table, &guard, norm, parameters)
            }
        }
    }

    fn collective_backend(&self) -> Option<&'static str> {
        self.collective_backend()
    }

    fn new_unique_id(&self) -> Result<UniqueId, Error> {
        nccl::create_unique_id()
    }

    fn init_rank(&mut self, unique_id: &UniqueId, rank: u32, ranks: u32) -> DeviceResult<Self> {
        self.join_ranks(unique_id, rank, ranks)
    }

    fn grad_reduce(&self, part: GradReduce<'_, Memory>) -> DeviceResult<Self> {
        self.run_grad_reduce(part)
    }
}

fn bytes_of(data: Data<'_>) -> &[u8] {
    match data {
        Data::F32(data) => cast_slice(data),
        Data::F16(data) => cast_slice(data.reinterpret_cast()),
        Data::U8(data) => data,
        Data::U32(data) => cast_slice(data),
    }
}
