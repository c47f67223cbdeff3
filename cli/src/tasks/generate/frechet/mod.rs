//! Fréchet distance between the normal distributions of two sets of features (Heusel et al. 2017).

#[cfg(not(feature = "generation"))]
mod absent;
#[cfg(feature = "generation")]
mod computed;

#[cfg(not(feature = "generation"))]
pub use absent::Gaussian;
#[cfg(feature = "generation")]
pub use computed::Gaussian;
