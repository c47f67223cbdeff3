//! Transports: implementations of the communicator.

#[cfg(feature = "mpi")]
mod mpi;
mod threads;

#[cfg(feature = "mpi")]
pub use self::mpi::Mpi;
pub use threads::Threads;
