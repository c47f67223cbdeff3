//! Initial weights from another training.

use crate::{Failure, output};
use gradscale::{CheckpointError, LoadError, Parameters, TorchModule};
use std::{fs, path::Path};

/// Takes what a file has for layers of the same names, and says what it did: a checkpoint, which must have all of them,
/// or a PyTorch model, which has them as `modules` says.
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
        return Err(Failure::file(path, format!("nothing for this network: {imported}")));
    }
    output::print(&format!("{}: {imported}\n", path.display()))
}
