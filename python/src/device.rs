//! The threads that work on arrays.

use gradscale_cpu::Cpu;
use pyo3::{exceptions::PyRuntimeError, prelude::*};
use std::{
    process,
    sync::{Arc, Mutex, PoisonError},
};

/// The device in use, with the process that opened it and the threads that were asked for.
struct Open {
    cpu: Arc<Cpu>,
    process: u32,
    threads: usize,
}

static OPEN: Mutex<Option<Open>> = Mutex::new(None);

/// The CPU with its threads. A process that was forked has none of its parent's threads, and opens its own.
pub fn cpu() -> PyResult<Arc<Cpu>> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let threads = open.as_ref().map_or(0, |open| open.threads);
    match &*open {
        Some(open) if open.process == process::id() => Ok(Arc::clone(&open.cpu)),
        Some(_) | None => {
            // The parent's device waits for threads that are not here: it is left as it is.
            std::mem::forget(open.take());
            start(&mut open, threads)
        }
    }
}

fn start(open: &mut Option<Open>, threads: usize) -> PyResult<Arc<Cpu>> {
    let cpu = Arc::new(Cpu::new(threads).map_err(|error| PyRuntimeError::new_err(error.to_string()))?);
    *open = Some(Open { cpu: Arc::clone(&cpu), process: process::id(), threads });
    Ok(cpu)
}

/// Use this many threads for arrays from now on; 0 means one for each core. Results are the same bits for any number.
#[pyfunction]
pub fn set_num_threads(threads: usize) -> PyResult<()> {
    cpu()?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    start(&mut open, threads).map(drop)
}
