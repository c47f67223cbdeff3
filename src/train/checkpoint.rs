//! Checkpoints: everything that a training needs to go on as if it had never stopped, in one safetensors file.
//!
//! Tensors are f32: `master.NAME` for every weight and running statistic, `state0.NAME` and `state1.NAME` for what the
//! optimizer keeps. The rest (steps, seed, schedule, sites) is JSON in the file's metadata under `gradscale`, what the
//! caller adds under names of its own.

use super::Trainer;
use crate::{
    Error, Scaling,
    compile::{Fixed, Part},
    parameters::Role,
    sites::SavedSite,
};
use gradscale_core::{
    backend::{Backend, DType, Data},
    loss_scale::LossScale,
};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Name of our part of the metadata.
const KEY: &str = "gradscale";
/// Raised whenever an older program could misread a newer file.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Saved {
    format: u32,
    taken: u64,
    seed: u64,
    in_a_row: u32,
    /// Attempts at the coming step that failed already.
    #[serde(default)]
    failed: u32,
    scaling: SavedScaling,
    sites: Vec<SavedSite>,
}

#[derive(Serialize, Deserialize)]
enum SavedScaling {
    /// A schedule with all its state.
    Loss(Vec<i64>),
    /// The rule, for comparison alone.
    Gradient(String),
}

/// The caller's metadata of a checkpoint, without a trainer to load it into.
///
/// # Errors
/// Bytes that are no safetensors file, in words.
pub fn checkpoint_metadata(bytes: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
    let mut metadata: BTreeMap<String, String> = header.metadata().clone().unwrap_or_default().into_iter().collect();
    metadata.remove(KEY);
    Ok(metadata)
}

impl<B: Backend> Trainer<B> {
    /// Everything as the bytes of a safetensors file, with metadata of your own (the data's position, for instance).
    /// Save between steps: gradients that have not been stepped with are not in it.
    ///
    /// # Errors
    /// The device's, or metadata under the name `gradscale`.
    pub fn save(&self, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, Error<B::Error>> {
        let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
        for (id, definition) in self.definitions.iter().enumerate() {
            for (part, name) in self.saved_parts(id) {
                let values =
                    self.read(Fixed::part(id, part), DType::F32, definition.shape.len()).map_err(Error::Device)?;
                let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                tensors.push((name, definition.shape.sizes().to_vec(), bytes));
            }
        }
        let saved = Saved {
            format: FORMAT,
            taken: self.taken,
            seed: self.seed,
            in_a_row: self.in_a_row,
            failed: self.failed,
            scaling: match self.sites.scaling() {
                Scaling::Loss(schedule) => SavedScaling::Loss(schedule.to_words().to_vec()),
                Scaling::Gradient(gradient) => SavedScaling::Gradient(gradient.saved()),
            },
            sites: self.sites.save(),
        };
        let mut all: HashMap<String, String> = metadata.clone().into_iter().collect();
        let json = serde_json::to_string(&saved).map_err(|error| Error::Checkpoint(error.to_string()))?;
        if all.insert(KEY.to_owned(), json).is_some() {
            return Err(Error::Checkpoint(format!("metadata called {KEY}")));
        }
        let mut views = Vec::new();
        for (name, shape, bytes) in &tensors {
            let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
            views.push((name.as_str(), view.map_err(|error| Error::Checkpoint(error.to_string()))?));
        }
        safetensors::serialize(views, Some(all)).map_err(|error| Error::Checkpoint(error.to_string()))
    }

    /// Goes on from what [`Trainer::save`] wrote, bit for bit, and returns the caller's metadata. The trainer must have
    /// the same parameters, optimizer and method; if it has not, nothing is changed.
    ///
    /// # Errors
    /// Bytes that are no checkpoint, of another network, optimizer or method; the device's.
    pub fn load(&mut self, bytes: &[u8]) -> Result<BTreeMap<String, String>, Error<B::Error>> {
        let wrong = |cause: String| Error::Checkpoint(cause);
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| wrong(error.to_string()))?;
        let file = SafeTensors::deserialize(bytes).map_err(|error| wrong(error.to_string()))?;
        let mut metadata: BTreeMap<String, String> =
            header.metadata().clone().unwrap_or_default().into_iter().collect();
        let json = metadata.remove(KEY).ok_or_else(|| wrong("tensors, but no training".to_owned()))?;
        let saved: Saved = serde_json::from_str(&json).map_err(|error| wrong(error.to_string()))?;
        if saved.format != FORMAT {
            return Err(wrong(format!("format {}; this program reads {FORMAT}", saved.format)));
        }
        let scaling = self.saved_scaling(&saved.scaling)?;
        // All is read and checked before anything is written.
        let mut values = Vec::new();
        for id in 0..self.definitions.len() {
            for (part, name) in self.saved_parts(id) {
                let tensor = file.tensor(&name).map_err(|_| wrong(format!("no tensor {name}")))?;
                let shape = self.definitions[id].shape;
                if tensor.dtype() != Dtype::F32 || tensor.shape() != shape.sizes() {
                    return Err(wrong(format!("{name} is {:?}, not {shape}", tensor.shape())));
                }
                let read = tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                values.push((Fixed::part(id, part), read.collect::<Vec<f32>>()));
            }
        }
        let expected = values.len();
        if file.len() != expected {
            return Err(wrong(format!("{} tensors, where this network has {expected}", file.len())));
        }
        self.sites.restore(scaling, &saved.sites).map_err(wrong)?;
        self.fit_table().map_err(Error::Device)?;
        for (buf, values) in values {
            let mut buffer = self.memory.take(buf);
            let written = self.device.write(Data::F32(&values), &mut buffer);
            self.memory.put(buf, buffer);
            written.map_err(Error::Device)?;
        }
        self.refresh_halves().map_err(Error::Device)?;
        (self.taken, self.seed, self.in_a_row) = (saved.taken, saved.seed, saved.in_a_row);
        self.failed = saved.failed;
        // Gradients from before are those of other weights.
        self.serial += 1;
        Ok(metadata)
    }

    /// What is saved of a parameter, with its names.
    fn saved_parts(&self, id: usize) -> Vec<(Part, String)> {
        let definition = &self.definitions[id];
        let states = match definition.role {
            Role::Constant => return Vec::new(),
            Role::Statistics => 0,
            Role::Weight => self.optimizer.descriptor(self.groups[id]).map_or(0, |descriptor| descriptor.states()),
        };
        let parts = [(Part::Master, "master"), (Part::State0, "state0"), (Part::State1, "state1")];
        let named = parts.into_iter().take(1 + states);
        named.map(|(part, kind)| (part, format!("{kind}.{}", definition.name))).collect()
    }

    fn saved_scaling(&self, saved: &SavedScaling) -> Result<Option<LossScale>, Error<B::Error>> {
        let other = || Error::Checkpoint("made by another method".to_owned());
        match (saved, self.sites.scaling()) {
            (SavedScaling::Loss(words), Scaling::Loss(own)) => {
                let schedule = LossScale::from_words(words).map_err(|error| Error::Checkpoint(error.to_string()))?;
                let same = std::mem::discriminant(&schedule) == std::mem::discriminant(own);
                if same { Ok(Some(schedule)) } else { Err(other()) }
            }
            (SavedScaling::Gradient(rule), Scaling::Gradient(own)) if *rule == own.saved() => Ok(None),
            (SavedScaling::Gradient(rule), Scaling::Gradient(own)) => Err(match own.other_memory(rule) {
                Some(options) => Error::Checkpoint(format!("made by another method: the same rule with {options}")),
                None => other(),
            }),
            (SavedScaling::Loss(_) | SavedScaling::Gradient(_), _) => Err(other()),
        }
    }
}
