//! Public types about the engine of matrix products: preference, choice, its reason and timing.

use core::{fmt, str::FromStr, time::Duration};

/// Environment variable that [`EnginePreference`] is read from.
pub(crate) const VARIABLE: &str = "GRADSCALE_WGPU_PRODUCTS";

/// Kernel that multiplies matrices. Engines sum in different orders, so results differ in their last bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductEngine {
    /// Tiles in workgroup memory, one multiply-add at a time (`tile.wgsl`). Every device has it, and it computes all
    /// products that the other engine cannot.
    Simt,
    /// Cooperative matrices (`coop.wgsl`), for matrices of halves whose sizes are multiples of four, and convolutions of
    /// halves whose channels are multiples of 8 (the ones that are summed: of 16).
    Cooperative {
        /// Number of rows, columns and depth of one cooperative matrix: 8 or 16.
        side: u32,
        /// Number of invocations of a subgroup for which the pipeline is compiled.
        subgroup: u32,
    },
}

impl fmt::Display for ProductEngine {
    /// Writes the engine's name as checkpoints record it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simt => f.write_str("simt"),
            Self::Cooperative { side, subgroup } => write!(f, "cooperative {side}x{side}x{side} subgroup {subgroup}"),
        }
    }
}

/// Engine of matrix products that the user requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnginePreference {
    /// Cooperative matrices if they pass the self-test and are clearly faster, else SIMT.
    #[default]
    Fastest,
    /// SIMT. Cooperative matrices are neither tested nor timed, so the device opens faster.
    Simt,
    /// Cooperative matrices if they pass the self-test, however slow. A device without them does not open.
    Cooperative,
}

impl EnginePreference {
    /// Reads the preference from the environment variable `GRADSCALE_WGPU_PRODUCTS`: `fastest`, `simt` or
    /// `cooperative`.
    pub(crate) fn from_environment() -> Result<Self, crate::Error> {
        match std::env::var(VARIABLE) {
            Ok(text) => text.parse(),
            Err(_) => Ok(Self::default()),
        }
    }
}

impl FromStr for EnginePreference {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" | "fastest" => Ok(Self::Fastest),
            "simt" => Ok(Self::Simt),
            "cooperative" => Ok(Self::Cooperative),
            _ => Err(crate::Error::Engine(format!("{VARIABLE} must be fastest, simt or cooperative, not {text}"))),
        }
    }
}

/// Requirement of cooperative matrices that an adapter does not fulfil.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOffered {
    /// The adapter lacks cooperative matrices, f16 in shaders, or subgroups.
    Features,
    /// Square matrices of halves whose sums are f32, 8 or 16 on each side.
    Shapes,
    /// The device has too little workgroup memory for the tiles of cooperative matrices.
    WorkgroupMemory,
    /// The adapter has no subgroup size for which `coop.wgsl` has an arrangement.
    SubgroupSizes,
}

impl fmt::Display for NotOffered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Features => "the driver offers no cooperative matrices",
            Self::Shapes => "no cooperative matrices of f16 with f32 sums",
            Self::WorkgroupMemory => "too little workgroup memory",
            Self::SubgroupSizes => "no subgroup size that the kernel supports",
        })
    }
}

/// Cooperative matrices that a device refuses because their self-test failed, with the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Engine that was tried as a candidate and refused.
    pub engine: ProductEngine,
    /// Reason why the engine's self-test failed.
    pub cause: RefusalCause,
}

/// Reason why the self-test of an engine for products failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalCause {
    /// Words of results, or of their statistics, that are not the exact ones. A subgroup size that the driver did not
    /// choose ends here, too: all results are NaN then.
    Wrong {
        /// Number of words of results that differ from the exact ones, over all repetitions.
        words: u32,
        /// Number of words of results that were compared.
        of: u64,
    },
    /// The driver returned an error during the self-test.
    Failed(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.engine)?;
        match &self.cause {
            RefusalCause::Wrong { words, of } => write!(f, "{words} of {of} words wrong"),
            RefusalCause::Failed(reason) => f.write_str(reason),
        }
    }
}

/// Reason for the engine that a device uses for matrix products.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineReason {
    /// Reason for SIMT: the adapter does not offer cooperative matrices.
    NotOffered(NotOffered),
    /// Reason for SIMT: every candidate failed its self-test.
    Refused(Vec<Refusal>),
    /// Reason for SIMT: cooperative matrices are not clearly faster; the times.
    NotFaster(Timing),
    /// Reason for cooperative matrices: they are clearly faster; the times.
    Faster(Timing),
    /// The engine was requested by an [`EnginePreference`], or the device was opened without the other one.
    Pinned,
    /// The engine is the one that the resumed checkpoint records.
    Recorded,
}

/// Times of one product by both engines, the shortest of several each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Number of rows, columns and depth of the timed product.
    pub size: u32,
    /// Time of the products with cooperative matrices.
    pub cooperative: Duration,
    /// Time of the same products with the SIMT kernel.
    pub simt: Duration,
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, cooperative, simt } = self;
        write!(f, "{size}x{size}x{size}: {cooperative:.2?} cooperative, {simt:.2?} simt")
    }
}

impl fmt::Display for EngineReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered(missing) => missing.fmt(f),
            Self::Refused(refusals) => {
                f.write_str("not proven")?;
                refusals.iter().try_for_each(|refusal| write!(f, "; {refusal}"))
            }
            Self::NotFaster(timing) | Self::Faster(timing) => timing.fmt(f),
            Self::Pinned => f.write_str("pinned"),
            Self::Recorded => f.write_str("recorded in the checkpoint"),
        }
    }
}

/// Products that a device was given so far, by the kernel that computes them. A product that is recorded counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProductLaunches {
    /// Number of matrix products and convolutions computed by [`ProductEngine::Simt`].
    pub simt: u64,
    /// Number of matrix products and convolutions computed by [`ProductEngine::Cooperative`].
    pub cooperative: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_have_names() {
        for (text, preference) in [
            ("", EnginePreference::Fastest),
            ("fastest", EnginePreference::Fastest),
            ("simt", EnginePreference::Simt),
            ("cooperative", EnginePreference::Cooperative),
        ] {
            assert_eq!(text.parse::<EnginePreference>().ok(), Some(preference), "{text}");
        }
        let error = "tensor".parse::<EnginePreference>().expect_err("no such engine").to_string();
        assert!(error.contains("GRADSCALE_WGPU_PRODUCTS must be fastest, simt or cooperative, not tensor"), "{error}");
    }
}
