//! Checkpoint in a file: written as a whole, and read with errors that name the file.

use crate::{CheckpointError, Error, Imported, LoadError, Parameters, file::write_file, train::Trainer};
use gradscale_core::backend::Backend;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Checkpoint file at a path. It is written as a whole or not at all, so a crash never loses the checkpoint before
/// ([`write_file`]).
///
/// ```
/// use gradscale::{CheckpointFile, Cpu, Input, Method, Model, Parameters, Trainer};
/// use gradscale::{nn::{Linear, Module}, optim::Sgd};
/// use std::collections::BTreeMap;
///
/// let file = CheckpointFile::new(std::env::temp_dir().join(format!("doc-{}.safetensors", std::process::id())));
/// let network = || {
///     let mut parameters = Parameters::seeded(0);
///     let net = Linear::new(&mut parameters.at("net"), 2, 2);
///     (parameters, net)
/// };
/// // A training writes its state, and goes on from it later.
/// let (parameters, _) = network();
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?;
/// file.save(&trainer, &BTreeMap::from([("epoch".to_owned(), "3".to_owned())]))?;
/// assert_eq!(file.load(&mut trainer)?["epoch"], "3");
/// // A service needs the weights only.
/// let (mut parameters, net) = network();
/// file.load_parameters(&mut parameters)?;
/// let mut model = Model::new(Cpu::new(1)?, parameters, Method::fp32())?;
/// assert_eq!(model.evaluate([Input::f32([1, 2], &[1.0, 0.0])], |[x]| net.forward(x))?.data.len(), 2);
/// # std::fs::remove_file(file.path())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "state_dict")]
pub struct CheckpointFile {
    path: PathBuf,
}

impl CheckpointFile {
    /// Names a checkpoint file, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the path of the checkpoint file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the state of a training between two steps, with metadata of the caller: [`Trainer::save`]. On several
    /// ranks all call this together, and rank 0 writes the file.
    ///
    /// # Errors
    /// Those of [`Trainer::save`], and [`CheckpointError::File`]. The file then has its old content.
    pub fn save<B: Backend>(
        &self, trainer: &Trainer<B>, metadata: &BTreeMap<String, String>,
    ) -> Result<(), Error<B::Error>> {
        let bytes = trainer.save(metadata)?;
        if trainer.ranks.group.rank() != 0 {
            return Ok(());
        }
        write_file(&self.path, &bytes).map_err(|error| Error::Checkpoint(CheckpointError::file(&self.path, &error)))
    }

    /// Restores the state of a training from the file, and returns the caller's metadata: [`Trainer::load`].
    ///
    /// # Errors
    /// Those of [`Trainer::load`], and [`CheckpointError::File`]. The training is unchanged then.
    pub fn load<B: Backend>(&self, trainer: &mut Trainer<B>) -> Result<BTreeMap<String, String>, Error<B::Error>> {
        trainer.load(&self.read().map_err(Error::Checkpoint)?)
    }

    /// Loads weights and running statistics only, whatever method and optimizer they were trained with:
    /// [`Parameters::load`].
    ///
    /// # Errors
    /// Those of [`Parameters::load`], and [`CheckpointError::File`]. Nothing is changed then.
    pub fn load_parameters(&self, parameters: &mut Parameters) -> Result<Imported, LoadError> {
        parameters.load(&self.read().map_err(LoadError::Checkpoint)?)
    }

    fn read(&self) -> Result<Vec<u8>, CheckpointError> {
        fs::read(&self.path).map_err(|error| CheckpointError::file(&self.path, &error))
    }
}
