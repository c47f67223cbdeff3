//! cuBLASLt: the best of its algorithms.

use cudarc::cublaslt::{result, sys};
use gradscale_core::{backend::DType, ops::Gemm};
use gradscale_cuda::{Cuda, Error};
use std::ffi::c_void;

static WORKSPACE: usize = 64 << 20;

/// Matrix product by cuBLASLt with sums in f32.
pub struct Product {
    handle: sys::cublasLtHandle_t,
    what: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    workspace: u64,
}

fn failed(error: impl core::fmt::Debug) -> Error {
    Error::Driver { doing: "multiply with cuBLASLt", name: format!("{error:?}"), lost: false }
}

/// Returns true if cuBLASLt is installed.
pub fn is_present() -> bool {
    // SAFETY: looking for the library runs its initialisers, which are NVIDIA's.
    unsafe { sys::is_culib_present() }
}

impl Product {
    /// Creates the fastest product p that cuBLASLt knows, of operands of one type and results of another, at the
    /// addresses of a, b and y.
    ///
    /// # Errors
    /// The library's, and if it knows no way.
    pub fn new(
        device: &Cuda, p: &Gemm, [operands, results]: [DType; 2], addresses: [u64; 3], workspace: u64,
    ) -> Result<Self, Error> {
        use sys::{cublasLtMatmulDescAttributes_t as attribute, cudaDataType as kind};
        let handle = result::create_handle().map_err(failed)?;
        // f32 stays f32: TF32 would be another compute type.
        let what = result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, kind::CUDA_R_32F)
            .map_err(failed)?;
        let kind_of = |dtype| if dtype == DType::F16 { kind::CUDA_R_16F } else { kind::CUDA_R_32F };
        // Columns of theirs are rows of ours: yᵀ = bᵀ · aᵀ, so their first operand is b.
        let layout = |dtype, [rows, columns]: [u32; 2]| {
            result::create_matrix_layout(kind_of(dtype), columns.into(), rows.into(), columns.into()).map_err(failed)
        };
        let [a, b, y] = p.stored();
        // `cublasOperation_t` has 0 for a matrix as it is and 1 for the transposed one, as numbers of 32 bits.
        let layouts = [layout(operands, b)?, layout(operands, a)?, layout(results, y)?];
        let [of_a, of_b] = p.transposed().map(i32::from);
        for (name, value) in
            [(attribute::CUBLASLT_MATMUL_DESC_TRANSA, of_b), (attribute::CUBLASLT_MATMUL_DESC_TRANSB, of_a)]
        {
            // SAFETY: the descriptor was made above, and the value has the attribute's type.
            unsafe {
                result::set_matmul_desc_attribute(what, name, (&raw const value).cast(), size_of_val(&value))
                    .map_err(failed)?;
            }
        }
        let wish = result::create_matmul_pref().map_err(failed)?;
        let most = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let mut found = [const { core::mem::MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::uninit() }; 32];
        let mut count = 0;
        // SAFETY: all descriptors were created above, and `results` has space for the requested number.
        unsafe {
            result::set_matmul_pref_attribute(wish, most, (&raw const WORKSPACE).cast(), size_of::<usize>())
                .map_err(failed)?;
            let [b, a, y] = layouts;
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle,
                what,
                b,
                a,
                y,
                y,
                wish,
                32,
                found.as_mut_ptr().cast(),
                &raw mut count,
            )
            .result()
            .map_err(failed)?;
        }
        let mut best: Option<(f64, sys::cublasLtMatmulAlgo_t)> = None;
        for found in found.iter().take(usize::try_from(count).unwrap_or(0)) {
            // SAFETY: the library has written `count` of them.
            let algorithm = unsafe { found.assume_init_ref() }.algo;
            let one = Self { handle, what, layouts, algorithm, workspace };
            let run = || one.launch(device, addresses);
            if run().is_ok()
                && let Ok(seconds) = device.gpu().seconds(|| run().and_then(|()| run()))
                && best.as_ref().is_none_or(|(least, _)| seconds < *least)
            {
                best = Some((seconds, algorithm));
            }
        }
        let (_, algorithm) = best.ok_or_else(|| failed("no algorithm"))?;
        Ok(Self { handle, what, layouts, algorithm, workspace })
    }

    /// Returns the bytes of workspace that a product by cuBLASLt needs.
    pub fn workspace() -> usize {
        WORKSPACE
    }

    /// Enqueues the product on the device's stream.
    pub fn launch(&self, device: &Cuda, [a, b, y]: [u64; 3]) -> Result<(), Error> {
        let (one, zero) = (1f32, 0f32);
        let pointer = |at: u64| at as *const c_void;
        let [b_layout, a_layout, y_layout] = self.layouts;
        // SAFETY: the caller's buffers have the size of the product, and the workspace has the promised size.
        unsafe {
            result::matmul(
                self.handle,
                self.what,
                (&raw const one).cast(),
                (&raw const zero).cast(),
                pointer(b),
                b_layout,
                pointer(a),
                a_layout,
                pointer(y),
                y_layout,
                pointer(y).cast_mut(),
                y_layout,
                &raw const self.algorithm,
                pointer(self.workspace).cast_mut(),
                WORKSPACE,
                device.gpu().stream().cast(),
            )
            .map_err(failed)
        }
    }
}
