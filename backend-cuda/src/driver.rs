//! What the backend asks of a driver: memory, launches, recordings. `Gpu` is CUDA's; tests have one that runs the same
//! kernels on the CPU.

use crate::{Error, kernels::Kernel};
use bytemuck::{NoUninit, Pod, Zeroable};
use core::fmt::Debug;

/// Matrices of halves, one behind the other, as the copy engine is to see them: sizes and the box's sides innermost first.
#[derive(Clone, Copy, Debug)]
pub struct Tiled {
    /// The first element's address, a multiple of 16.
    pub at: u64,
    /// Elements of a row, rows, matrices.
    pub sizes: [u32; 3],
    /// Bytes from row to row and from matrix to matrix, multiples of 16.
    pub strides: [u64; 2],
    /// Elements of a row (64), rows and matrices (at most 256) of a box.
    pub tile: [u32; 3],
}

/// Images of halves with windows moving over them, as the copy engine is to see them: [c, w, h, n], 64 channels and
/// `pixels` windows at a time. Pairs are of columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// The first element's address, a multiple of 16.
    pub at: u64,
    /// Channels (a multiple of 64), columns, rows, images.
    pub sizes: [u32; 4],
    /// Where the first window begins, before it is moved by a tap: -128 … 127.
    pub first: [i32; 2],
    /// How many there are.
    pub counts: [u32; 2],
    /// Pixels from one to the next, at most 8.
    pub step: [u32; 2],
    /// Windows in a box, at most 1024.
    pub pixels: u32,
}

impl Windows {
    /// Where the last window begins, from the last pixel.
    #[must_use]
    pub fn last(&self) -> [i64; 2] {
        [0, 1].map(|d| {
            let way = i64::from(self.counts[d].saturating_sub(1)) * i64::from(self.step[d]);
            i64::from(self.first[d]) + way + 1 - i64::from(self.sizes[d + 1])
        })
    }

    /// Whether the copy engine can count so far, with taps of these reaches.
    #[must_use]
    pub fn fits(&self, reach: [u32; 2]) -> bool {
        let byte = |place: i64| i8::try_from(place).is_ok();
        self.sizes[0].is_multiple_of(64)
            && self.first.iter().all(|&place| byte(i64::from(place)))
            && self.last().into_iter().all(byte)
            && self.step.iter().all(|&step| step <= 8)
            && reach.iter().all(|&reach| reach < 256)
    }
}

/// The same in the copy engine's own words (PTX ISA, "Tensors").
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct TensorMap(pub [u64; 16]);

/// A device driver with one stream of work, in which everything runs in the order of the calls, and copies beside it.
///
/// # Safety
/// Memory that [`Driver::alloc`] returns is `bytes` long, aligned to 256 bytes, and nobody else's until it is freed.
pub unsafe trait Driver: Debug + Send + Sync + 'static {
    /// A recorded list of launches.
    type Recording: Debug;

    /// For people.
    fn name(&self) -> &str;
    /// Compute capability, as in `sm_80`.
    fn arch(&self) -> u32;
    /// Blocks run on so many multiprocessors.
    fn multiprocessors(&self) -> u32;
    /// Bytes of memory.
    fn memory(&self) -> u64;

    /// Memory with any content.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], and the driver's.
    fn alloc(&self, bytes: usize) -> Result<u64, Error>;

    /// Frees memory after the work already enqueued.
    ///
    /// # Safety
    /// `at` comes from [`Driver::alloc`], and nothing enqueued later uses it.
    unsafe fn free(&self, at: u64);

    /// Copies to the device; `src` may be reused on return.
    ///
    /// # Safety
    /// Device memory from `dst` on is as long as `src`.
    ///
    /// # Errors
    /// The driver's.
    unsafe fn copy_in(&self, src: &[u8], dst: u64) -> Result<(), Error>;

    /// What is enqueued before this comes before every later [`Driver::copy_beside`].
    ///
    /// # Errors
    /// The driver's.
    fn mark(&self) -> Result<(), Error>;

    /// Copies to the device beside all that was enqueued since the last [`Driver::mark`], which must not use that
    /// memory. Whatever is enqueued later comes after it. `src` may be reused on return.
    ///
    /// # Safety
    /// As [`Driver::copy_in`].
    ///
    /// # Errors
    /// The driver's.
    unsafe fn copy_beside(&self, src: &[u8], dst: u64) -> Result<(), Error>;

    /// Copies to the host, each part from its address, and waits, once for all.
    ///
    /// # Safety
    /// Device memory from each address on is as long as its part.
    ///
    /// # Errors
    /// The driver's, also those of earlier work.
    unsafe fn copy_out(&self, parts: &mut [(u64, &mut [u8])]) -> Result<(), Error>;

    /// Fills with zeros.
    ///
    /// # Safety
    /// Device memory from `at` on has `bytes` bytes.
    ///
    /// # Errors
    /// The driver's.
    unsafe fn zero(&self, at: u64, bytes: usize) -> Result<(), Error>;

    /// Launches a kernel; compiles it first where it is new.
    ///
    /// # Safety
    /// `params` are laid out as what the kernel takes (`repr(C)`), and all memory it names is there and as long as the kernel expects.
    ///
    /// # Errors
    /// [`Error::Compile`], and the driver's.
    unsafe fn launch<P: NoUninit>(&self, kernel: &'static Kernel, blocks: [u32; 3], params: &P) -> Result<(), Error>;

    /// What kernels hand to the copy engine.
    ///
    /// # Errors
    /// The driver's.
    fn tensor_map(&self, tensor: &Tiled) -> Result<TensorMap, Error>;

    /// The same for pixels.
    ///
    /// # Errors
    /// The driver's.
    fn window_map(&self, windows: &Windows) -> Result<TensorMap, Error>;

    /// From here on launches are kept, not run.
    ///
    /// # Errors
    /// The driver's.
    fn start_recording(&self) -> Result<(), Error>;

    /// The launches since the start.
    ///
    /// # Errors
    /// The driver's.
    fn stop_recording(&self) -> Result<Self::Recording, Error>;

    /// Runs a recording.
    ///
    /// # Safety
    /// All memory that its launches name still lives.
    ///
    /// # Errors
    /// The driver's.
    unsafe fn repeat(&self, recording: &Self::Recording) -> Result<(), Error>;
}
