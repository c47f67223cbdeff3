//! Transports: how bytes get from one rank to another.

#[cfg(feature = "mpi")]
mod mpi;
mod threads;

#[cfg(feature = "mpi")]
pub use self::mpi::Mpi;
pub use threads::Threads;
