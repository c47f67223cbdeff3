//! Errors of devices.

/// Portable meaning of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Retry after freeing something.
    OutOfMemory,
    /// The device does not offer this operator.
    Unsupported,
    /// All handles are void; a checkpoint is the way back.
    DeviceLost,
    /// A kernel did not compile; the native error has the compiler's log.
    KernelCompile,
    /// Anything else.
    Other,
}

/// A device's own error.
pub trait Error: core::error::Error + Sized {
    /// Portable meaning.
    fn kind(&self) -> ErrorKind;
    /// The error of an operator that is not offered.
    fn unsupported(operator: &'static str) -> Self;
}
