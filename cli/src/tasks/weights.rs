//! Initial weights from another training.

use crate::{Failure, output};
use gradscale::{CheckpointError, LoadError, Parameters, TorchModule};
use std::{fs, path::Path};

/// Loads the values of layers with the same names from a file, and prints what was loaded. A checkpoint must have all
/// layers; a PyTorch model has them under the names of `modules`.
pub(super) fn import(
    parameters: &mut Parameters, file: Option<&Path>, modules: impl Fn(&str) -> Option<TorchModule>,
) -> Result<(), Failure> {
    let Some(path) = file else { return Ok(()) };
    let bytes = fs::read(path).map_err(|error| Failure::file(path, error))?;
    let imported = match parameters.load(&bytes) {
        Ok(imported) => imported,
        Err(LoadError::Checkpoint(CheckpointError::Foreign | CheckpointError::Unreadable(_))) => {
            let imported = parameters.import_torch(&bytes, modules);
            imported.map_err(|error| Failure::file(path, error))?
        }
        Err(error) => return Err(Failure::file(path, error)),
    };
    if imported.filled.is_empty() {
        return Err(Failure::file(path, format!("has no weights for this network: {imported}")));
    }
    output::print(&format!("{}: {imported}\n", path.display()))
}
