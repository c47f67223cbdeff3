//! How the kernels of a product load its operands: two matrices, or the windows of a convolution.

use crate::kernel::{self, Kernel};
use gradscale_core::ops::Pass;

/// Loader of a product's kernels, with the properties of operands that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loader {
    /// Matrices, whose addresses are linear in row, column and k.
    Matrices,
    /// Windows of an image, gathered while they are loaded.
    Convolution {
        pass: Pass,
        /// Input and output channels of a group.
        group_channels: [u32; 2],
        /// True if a stride is not 1.
        is_strided: bool,
    },
}

impl Loader {
    /// Returns the kernel of the SIMT engine.
    pub fn tile_kernel(self) -> &'static Kernel {
        match self {
            Self::Matrices => &kernel::GEMM,
            Self::Convolution { .. } => &kernel::CONV,
        }
    }

    /// Returns the kernel for cooperative matrices of 16×16, or else of 8×8.
    pub fn coop_kernel(self, is_16: bool) -> &'static Kernel {
        match (self, is_16) {
            (Self::Matrices, true) => &kernel::COOP_16,
            (Self::Matrices, false) => &kernel::COOP_8,
            (Self::Convolution { .. }, true) => &kernel::COOP_CONV_16,
            (Self::Convolution { .. }, false) => &kernel::COOP_CONV_8,
        }
    }

    /// Returns true if steps of this depth have one tap each, and vectors of eight channels are whole.
    pub fn has_same_tap(self, depth: u32) -> bool {
        match self {
            Self::Matrices | Self::Convolution { pass: Pass::Weight, .. } => false,
            Self::Convolution { pass, group_channels: [inputs, outputs], .. } => {
                let sum_channels = if pass == Pass::Forward { inputs } else { outputs };
                sum_channels.is_multiple_of(depth) && inputs.is_multiple_of(8)
            }
        }
    }

    /// Returns the constants of the kernel for tiles of this depth.
    pub fn constants(self, depth: u32) -> Vec<(&'static str, u32)> {
        match self {
            Self::Matrices => Vec::new(),
            Self::Convolution { pass, is_strided, .. } => {
                let is_strided = pass == Pass::Data && is_strided;
                let has_same_tap = self.has_same_tap(depth);
                vec![("PASS", pass.code()), ("SAME_TAP", has_same_tap.into()), ("STRIDED", is_strided.into())]
            }
        }
    }
}
