//! First weights from a PyTorch model.

use crate::{Failure, output};
use gradscale::{Parameters, TorchModule};
use std::{fs, path::Path};

/// The layer that reads a flattened image.
const FLATTENED: &str = "linear1";

/// Takes what a file has for layers of the same names, and says what it did. `size` is that of the images of a
/// perceptron, whose first layer reads them in another order there.
pub(super) fn import(
    parameters: &mut Parameters, file: Option<&Path>, size: Option<[usize; 3]>,
) -> Result<(), Failure> {
    let Some(path) = file else { return Ok(()) };
    let bytes = fs::read(path).map_err(|error| Failure::file(path, error))?;
    let module = |layer: &str| {
        // Layers here are called after their network too.
        let module = TorchModule::named(layer.split_once('.')?.1);
        Some(match size {
            Some(size) if layer.ends_with(FLATTENED) => module.flattened(size),
            _ => module,
        })
    };
    let imported = parameters.import_torch(&bytes, module).map_err(|error| Failure::file(path, error))?;
    if imported.filled.is_empty() {
        return Err(Failure::file(path, format!("nothing for this network: {imported}")));
    }
    output::print(&format!("{}: {imported}\n", path.display()))
}
