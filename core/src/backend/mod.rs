//! The contract between the engine and a device.
//!
//! **A step is a function of ([`Control`], batch) to (rows of [`Stats`], loss).** Whatever changes from step to step
//! (exponents, learning rates, the seed, how much to observe) lies in device memory, in a [`Backend::Table`], and
//! operators name it by [`Slot`] or [`Dial`]. So the launches of one step are the launches of the next: they can be
//! recorded and repeated, and nothing in between asks the host.
//!
//! **Order.** Methods enqueue, in the order of the calls; [`Backend::prefetch`] may overtake. Only [`Backend::read`] and [`Backend::collect`] wait. Where
//! waiting blocks (CPU, CUDA, native wgpu) their futures are ready at the first poll.
//!
//! **Buffers** come from this device. They hold at least the elements that a descriptor states, in one of the types
//! that a method names; elements beyond are neither read nor written. Where a method names no type, it takes F32 and
//! F16, each buffer by itself. Operators compute in f32.
//!
//! **Errors** cover what a caller cannot foresee; anything else (a buffer too short or of a wrong type) may panic. An
//! error of earlier work may surface in any later call; a `read` or `collect` that succeeds vouches for all before
//! it. After [`ErrorKind::DeviceLost`] every buffer, table and recording is void.
//!
//! **A new backend** writes the methods without a body. Every operator then answers [`ErrorKind::Unsupported`], and
//! the conformance suite turns from *unsupported* to *passed* operator by operator.

mod abi;
mod buffer;
mod control;
mod error;
mod store;

pub use abi::ABI;
pub use buffer::{Buffer, DType, Data, DataMut};
pub use control::{Control, Dial, Slot};
pub use error::{Error, ErrorKind};
pub use store::{Normed, Param, Scored, Store};

use crate::{
    descriptor::{Binary, Conv2d, Gemm, Norm, Optimizer, Pass, Pool, Reduce, Rows, Strided, Unary, Way, Xent},
    scaled::Scaled,
    stats::{FlushRule, Stats},
};
use core::{future::Future, ops::Range};

/// Result of a call that only enqueues.
pub type Done<B> = Result<(), <B as Backend>::Error>;

/// What a device is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps<'a> {
    /// For people.
    pub name: &'a str,
    /// What its stores of half do with small numbers. Probed at start-up.
    pub flush: FlushRule,
    /// Whether f32 subnormals are kept, in arithmetic and in statistics.
    pub f32_subnormals: bool,
    /// Largest buffer in bytes.
    pub max_buffer: u64,
}

fn no<E: Error>(operator: &'static str) -> Result<(), E> {
    Err(E::unsupported(operator))
}

/// A device. Operators read half or f32, accumulate in f32 and write through a [`Store`].
#[allow(unused_variables, reason = "the names of parameters are documentation where the body is a default")]
pub trait Backend: Sized {
    /// Device memory.
    type Buffer: Buffer;
    /// Exponents, dials and rows of the sites that train together.
    type Table;
    /// A recorded step; `()` where nothing is recorded.
    type Recording;
    /// Native error.
    type Error: Error;

    // Memory.

    /// What the device is like.
    fn caps(&self) -> Caps<'_>;

    /// Largest amount of memory, in bytes, that operators have used at once besides their operands since the last
    /// call; `None` where that is not known.
    fn scratch_peak(&self) -> Option<u64> {
        None
    }

    /// Memory with any content.
    ///
    /// # Errors
    /// Out of memory, or larger than [`Caps::max_buffer`].
    fn alloc(&self, dtype: DType, len: usize) -> Result<Self::Buffer, Self::Error>;

    /// Copies `src`, of the buffer's type and free for reuse on return, to the start of `dst`.
    ///
    /// # Errors
    /// The device's.
    fn write(&self, src: Data<'_>, dst: &mut Self::Buffer) -> Done<Self>;

    /// As [`Backend::write`], beside work under way: runs after everything enqueued before the last
    /// [`Backend::upload`] (without one, at once) and after earlier calls of this. Whatever is enqueued later sees it;
    /// what was enqueued since that upload must not use `dst`. A device with one queue writes.
    ///
    /// # Errors
    /// The device's.
    fn prefetch(&self, src: Data<'_>, dst: &mut Self::Buffer) -> Done<Self> {
        self.write(src, dst)
    }

    /// Copies the start of `src` to `dst`, of the buffer's type. Waits.
    fn read(&self, src: &Self::Buffer, dst: DataMut<'_>) -> impl Future<Output = Done<Self>>;

    // A step.

    /// A table with exponents 0, dials 0 and empty rows.
    ///
    /// # Errors
    /// Out of memory.
    fn table(&self, slots: u16, dials: u16) -> Result<Self::Table, Self::Error>;

    /// Uploads `control` and empties the rows in `clear`.
    ///
    /// # Errors
    /// The device's.
    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Self::Table) -> Done<Self>;

    /// Reads `rows`, each at the exponent and in the detail in which it was observed, and element 0 of each of
    /// `scalars` (F32). A row into which nothing was stored is empty, of detail [`crate::stats::Detail::None`].
    /// Waits.
    fn collect(
        &self, table: &Self::Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Self::Buffer], values: &mut [f32],
    ) -> impl Future<Output = Done<Self>>;

    /// Keeps the launches of `work`, which calls operators only. With a recording nothing has run yet: repeat it. A
    /// device that keeps nothing runs `work` and returns `None`.
    ///
    /// # Errors
    /// Those of `work`, and the device's.
    fn record(&self, work: impl FnOnce() -> Done<Self>) -> Result<Option<Self::Recording>, Self::Error> {
        work()?;
        Ok(None)
    }

    /// Repeats a recorded step, whose buffers and table must still live, with the control last uploaded.
    ///
    /// # Errors
    /// The device's.
    fn repeat(&self, step: &Self::Recording) -> Done<Self> {
        no("repeat")
    }

    // Element by element.

    /// `y[i] = op(x[i])` for all i of x, which may also be U8 or U32. [`Unary::Id`] is the cast.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn unary(&self, op: Unary, x: &Self::Buffer, y: Store<'_, Self>) -> Done<Self> {
        no("unary")
    }

    /// `y[i] = op(a[i], b[…])` with `b` broadcast as `p` says. [`crate::descriptor::BinaryOp::Grad`] is the vjp of a
    /// unary function.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn binary(&self, p: &Binary, a: &Self::Buffer, b: &Self::Buffer, y: Store<'_, Self>) -> Done<Self> {
        no("binary")
    }

    /// `y[i] = Σ terms[·][i]`, each from its own slot, in the order given, one rounding: branches, residuals. The
    /// first term gives the length; `y.from` is not used.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn sum(&self, terms: &[Scaled<&Self::Buffer, Slot>], y: Store<'_, Self>) -> Done<Self> {
        no("sum")
    }

    /// `y[o, i] = op over l of x[o, l, i]`.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn reduce(&self, p: &Reduce, x: &Self::Buffer, y: Store<'_, Self>) -> Done<Self> {
        no("reduce")
    }

    /// Strided copy, x of any type: permute, slice, concatenate, pad, flip, repeat. A y of the same type and slot
    /// gets the same bits (a NaN: some NaN).
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn copy(&self, p: &Strided, x: &Self::Buffer, y: Store<'_, Self>) -> Done<Self> {
        no("copy")
    }

    // Products.

    /// `y = op(a)·op(b) + bias`, batched.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn gemm(
        &self, p: &Gemm, a: &Self::Buffer, b: &Self::Buffer, bias: Option<&Self::Buffer>, y: Store<'_, Self>,
    ) -> Done<Self> {
        no("gemm")
    }

    /// NHWC by OHWI. Forward: (x, w) → y; Data: (dy, w) → dx, also transposed convolution; Weight: (x, dy) → dw.
    /// `bias` is one value for each channel of the result; none with Weight.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn conv(
        &self, p: &Conv2d, pass: Pass, a: &Self::Buffer, b: &Self::Buffer, bias: Option<&Self::Buffer>,
        y: Store<'_, Self>,
    ) -> Done<Self> {
        no("conv")
    }

    // Windows and rows.

    /// Largest or mean value of each window; `at` (U8) takes the offset of the largest inside its window, row by row
    /// (the lowest of several).
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn pool(&self, p: &Pool, x: &Self::Buffer, at: Option<&mut Self::Buffer>, y: Store<'_, Self>) -> Done<Self> {
        no("pool")
    }

    /// Scatter, x shaped as the pooled tensor and y as the unpooled one: `y[place] = Σ x` (average: x / area to each
    /// place), 0 elsewhere; the vjp of `pool`, and unpooling. Gather, the other way: `y = x[place]` (average: the
    /// mean); the vjp of unpooling. Max needs `at`. With padding or an incomplete window all of `at` still points
    /// into x.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn unpool(
        &self, p: &Pool, way: Way, x: &Self::Buffer, at: Option<&Self::Buffer>, y: Store<'_, Self>,
    ) -> Done<Self> {
        no("unpool")
    }

    /// Gather: embedding. Scatter: its vjp, added in the order of the indices. `index` is U32.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn rows(&self, p: &Rows, way: Way, x: &Self::Buffer, index: &Self::Buffer, y: Store<'_, Self>) -> Done<Self> {
        no("rows")
    }

    // Normalisation, loss.

    /// Batch, layer, group, RMS. `saved` (F32) takes mean and biased variance of each group, or gives them; `affine`
    /// (F32) is scale and shift of each channel.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn norm(
        &self, p: &Norm, x: &Self::Buffer, affine: Option<[&Self::Buffer; 2]>, saved: &mut Self::Buffer,
        y: Store<'_, Self>,
    ) -> Done<Self> {
        no("norm")
    }

    /// vjp of `norm`: of x, and of scale and shift. Given statistics are constants.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn norm_vjp(
        &self, p: &Norm, x: Normed<'_, Self::Buffer>, dy: &Self::Buffer, dx: Store<'_, Self>,
        affine: Option<[Store<'_, Self>; 2]>,
    ) -> Done<Self> {
        no("norm_vjp")
    }

    /// Softmax and weighted cross-entropy. `out` (F32) takes loss, divisor, then each row's log-sum-exp.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn xent(&self, p: &Xent, x: Scored<'_, Self::Buffer>, out: &mut Self::Buffer) -> Done<Self> {
        no("xent")
    }

    /// vjp of `xent` for the upstream gradient `g` (one F32): here ⟨α, ∇⟩ begins. `out` is what `xent` wrote.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn xent_vjp(
        &self, p: &Xent, x: Scored<'_, Self::Buffer>, out: &Self::Buffer, g: &Self::Buffer, dx: Store<'_, Self>,
    ) -> Done<Self> {
        no("xent_vjp")
    }

    // Update.

    /// `norm[0] = √Σ‖g‖²` over all `grads` (F32), right also where a square would leave f32; NaN or ∞ if a gradient
    /// is not finite.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn global_norm(&self, grads: &[&Self::Buffer], norm: &mut Self::Buffer) -> Done<Self> {
        no("global_norm")
    }

    /// Updates all `params`, each as many elements as its gradient has, and refreshes their half copies; changes nothing, bit for bit, if a row in `guard`
    /// counted a value that is not finite. `norm` is needed where `p` clips by it.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn optimize(
        &self, p: &Optimizer, table: &Self::Table, guard: Range<u16>, norm: Option<&Self::Buffer>,
        params: &mut [Param<'_, Self::Buffer>],
    ) -> Done<Self> {
        no("optimize")
    }
}
