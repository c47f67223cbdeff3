//! Engines of products: which one a device uses, and why.

use core::{fmt, str::FromStr, time::Duration};

/// Environment variable that [`EnginePreference`] is read from.
pub(crate) const VARIABLE: &str = "GRADSCALE_WGPU_PRODUCTS";

/// Kernel that multiplies matrices. Engines sum in different orders, so results differ in their last bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductEngine {
    /// Tiles in workgroup memory, one multiply-add at a time (`tile.wgsl`). Every device has it, and it computes all
    /// convolutions.
    Simt,
    /// Cooperative matrices (`coop.wgsl`), for matrices of halves whose sizes are multiples of four.
    Cooperative {
        /// Rows, columns and depth of one matrix: 8 or 16.
        side: u32,
        /// Invocations of a subgroup.
        subgroup: u32,
    },
}

impl fmt::Display for ProductEngine {
    /// The name that checkpoints record.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simt => f.write_str("simt"),
            Self::Cooperative { side, subgroup } => write!(f, "cooperative {side}x{side}x{side} subgroup {subgroup}"),
        }
    }
}

/// Engine of products that the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnginePreference {
    /// Cooperative matrices where they are proven and clearly faster, else SIMT.
    #[default]
    Fastest,
    /// SIMT. Cooperative matrices are neither proven nor timed, so the device opens faster.
    Simt,
    /// Cooperative matrices where they are proven, however slow; a device without them does not open.
    Cooperative,
}

impl EnginePreference {
    /// The preference in the environment variable `GRADSCALE_WGPU_PRODUCTS`: `fastest`, `simt` or `cooperative`.
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
            _ => Err(crate::Error::Engine(format!("{VARIABLE} is {text}, and takes fastest, simt or cooperative"))),
        }
    }
}

/// Part that an adapter lacks for cooperative matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOffered {
    /// Cooperative matrices, f16 in shaders or subgroups.
    Features,
    /// Square matrices of halves whose sums are f32, 8 or 16 on each side.
    Shapes,
    /// Workgroup memory for the tiles.
    WorkgroupMemory,
    /// A subgroup size that `coop.wgsl` has an arrangement for.
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

/// Cooperative matrices that a device refuses, because they are not proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The candidate.
    pub engine: ProductEngine,
    /// The failure of its proof.
    pub cause: RefusalCause,
}

/// Failure of a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalCause {
    /// Words of results, or of their statistics, that are not the exact ones. A subgroup size that the driver did not
    /// choose ends here, too: all results are NaN then.
    Wrong {
        /// Words that differ, in all repetitions.
        words: u32,
        /// Words compared.
        of: u64,
    },
    /// An error of the driver.
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

/// Reason for a device's engine of products.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineReason {
    /// SIMT, because the adapter offers nothing else.
    NotOffered(NotOffered),
    /// SIMT, because no candidate is proven.
    Refused(Vec<Refusal>),
    /// SIMT, because cooperative matrices are not clearly faster.
    NotFaster(Timing),
    /// Cooperative matrices, because they are clearly faster.
    Faster(Timing),
    /// The user's [`EnginePreference`], or a device opened without the other engine.
    Pinned,
    /// The engine of the checkpoint that was resumed.
    Recorded,
}

/// Times of one product by both engines, the shortest of several each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Rows, columns and depth of the product.
    pub size: u32,
    /// By cooperative matrices.
    pub cooperative: Duration,
    /// By the SIMT kernel.
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
    /// Matrices and convolutions by [`ProductEngine::Simt`].
    pub simt: u64,
    /// Matrices by [`ProductEngine::Cooperative`].
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
        assert!(error.contains("GRADSCALE_WGPU_PRODUCTS is tensor") && error.contains("cooperative"), "{error}");
    }
}
