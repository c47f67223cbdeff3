//! CPU device and threads that process arrays.

use gradscale_cpu::Cpu;
use pyo3::{exceptions::PyRuntimeError, prelude::*};
use std::{
    process,
    sync::{Arc, Mutex, PoisonError},
};

/// Device in use, the process that opened it, and its requested number of threads.
struct Open {
    cpu: Arc<Cpu>,
    process: u32,
    threads: usize,
}

static OPEN: Mutex<Option<Open>> = Mutex::new(None);

/// Returns the CPU device. A forked process has none of its parent's threads, so it opens its own device.
pub fn cpu() -> PyResult<Arc<Cpu>> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let threads = open.as_ref().map_or(0, |open| open.threads);
    match &*open {
        Some(open) if open.process == process::id() => Ok(Arc::clone(&open.cpu)),
        Some(_) | None => {
            // The parent's device would wait for threads that do not exist in this process, so it is not dropped.
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

/// Sets the number of threads for arrays; 0 means one for each core. Results have the same bits for any number.
#[pyfunction]
pub fn set_num_threads(threads: usize) -> PyResult<()> {
    cpu()?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    start(&mut open, threads).map(drop)
}
