//! Everything that a training needs to go on as if it had never stopped, as a checkpoint.
//!
//! Tensors are f32: `master.NAME` for every weight and running statistic, `state0.NAME`, `state1.NAME` … for what the
//! optimizer keeps. The rest (steps, seed, schedule, sites) is JSON.

use super::Trainer;
use crate::{
    Error, Scaling,
    checkpoint::{self, CheckpointError, Contents, MASTER},
    graph::{Fixed, Part, STATES},
    parameters::Role,
    sites::SavedSite,
};
use gradscale_core::{
    amp::Precision,
    backend::{Backend, DType, Data},
    loss_scale::LossScale,
};
use safetensors::Dtype;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Serialize, Deserialize)]
struct Saved {
    taken: u64,
    seed: u64,
    in_a_row: u32,
    /// Attempts at the coming step that failed already.
    #[serde(default)]
    failed: u32,
    /// Learning rates that were set since, bits of f64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rates: Vec<u64>,
    scaling: SavedScaling,
    /// Whether weight gradients are half before they are f32.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    half_weight_gradients: bool,
    sites: Vec<SavedSite>,
}

#[derive(Serialize, Deserialize)]
enum SavedScaling {
    /// A schedule with all its state.
    Loss(Vec<i64>),
    /// The rule, for comparison alone.
    Gradient(String),
}

impl<B: Backend> Trainer<B> {
    /// Everything as the bytes of a safetensors file with checksums, with metadata of your own (the data's position,
    /// for instance). Equal states are equal bytes. Save between steps: gradients that have not been stepped with are
    /// not in it.
    ///
    /// ```
    /// # use gradscale::{Batch, Cpu, Error, CheckpointError, Method, Parameters, Trainer, nn::{Linear, Module}, optim::Sgd};
    /// # use std::collections::BTreeMap;
    /// # let mut parameters = Parameters::seeded(0);
    /// # let net = Linear::new(&mut parameters.at("net"), 2, 2);
    /// # let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?;
    /// let mut bytes = trainer.save(&BTreeMap::from([("epoch".to_owned(), "3".to_owned())]))?;
    /// assert_eq!(trainer.load(&bytes)?["epoch"], "3");
    /// // Any damage is found, and says where it is.
    /// let last_weight = bytes.len() - 5;
    /// bytes[last_weight] ^= 1;
    /// let Err(Error::Checkpoint(CheckpointError::Damaged(part))) = trainer.load(&bytes) else { panic!() };
    /// assert_eq!(part, "tensor master.net.weight");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The device's, or more than a file's header holds (100 MB of metadata).
    pub fn save(&self, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, Error<B::Error>> {
        let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
        for (id, definition) in self.parameters.all.iter().enumerate() {
            for (part, name) in self.saved_parts(id) {
                let values =
                    self.exec.read(Fixed::part(id, part), DType::F32, definition.shape.len()).map_err(Error::Device)?;
                let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                tensors.push((name, definition.shape.sizes().to_vec(), bytes));
            }
        }
        let saved = Saved {
            taken: self.counters.taken,
            seed: self.counters.seed,
            in_a_row: self.counters.in_a_row,
            failed: self.counters.failed,
            rates: self.optimizer.saved_rates(),
            scaling: match self.sites.scaling() {
                Scaling::Loss(schedule) => SavedScaling::Loss(schedule.to_words().to_vec()),
                Scaling::Gradient(gradient) => SavedScaling::Gradient(gradient.saved()),
            },
            half_weight_gradients: self.settings.weight_gradients == Precision::Half,
            sites: self.sites.save(),
        };
        checkpoint::write(&tensors, metadata, saved).map_err(Error::Checkpoint)
    }

    /// Goes on from what [`Trainer::save`] wrote, bit for bit, and returns the caller's metadata. The trainer must have
    /// the same parameters, optimizer and method; if it has not, nothing is changed. For the weights alone there is
    /// [`Parameters::load`](crate::Parameters::load).
    ///
    /// # Errors
    /// Bytes that are no checkpoint, damaged, or of another network, optimizer or method; the device's.
    pub fn load(&mut self, bytes: &[u8]) -> Result<BTreeMap<String, String>, Error<B::Error>> {
        let Contents { tensors, metadata, training: saved } =
            checkpoint::open::<Saved>(bytes).map_err(Error::Checkpoint)?;
        let wrong = |cause: String| Error::Checkpoint(CheckpointError::Other(cause));
        let scaling = self.saved_scaling(&saved.scaling)?;
        match (saved.half_weight_gradients, self.settings.weight_gradients) {
            (true, Precision::Half) | (false, Precision::Single) => {}
            (true, Precision::Single) => return Err(wrong("made by another method: with wgrad=half".to_owned())),
            (false, Precision::Half) => return Err(wrong("made by another method: without wgrad=half".to_owned())),
        }
        if !saved.rates.is_empty() && saved.rates.len() != self.optimizer.group_count() {
            return Err(wrong("made by another optimizer: its groups are others".to_owned()));
        }
        // All is read and checked before anything is written.
        let mut values = Vec::new();
        for id in 0..self.parameters.all.len() {
            for (part, name) in self.saved_parts(id) {
                let tensor = tensors.get(&name).ok_or_else(|| wrong(format!("it has no tensor {name}")))?;
                let shape = self.parameters.shape(id);
                if tensor.dtype() != Dtype::F32 || tensor.shape() != shape.sizes() {
                    return Err(wrong(format!("{name} is {:?} there, and {shape} here", tensor.shape())));
                }
                values.push((Fixed::part(id, part), checkpoint::floats(tensor)));
            }
        }
        let expected = values.len();
        if tensors.len() != expected {
            return Err(wrong(format!("it has {} tensors, where this training has {expected}", tensors.len())));
        }
        self.sites.restore(scaling, &saved.sites).map_err(wrong)?;
        self.optimizer.restore_rates(&saved.rates);
        self.fit_table().map_err(Error::Device)?;
        for (buf, values) in values {
            self.exec.write(buf, Data::F32(&values)).map_err(Error::Device)?;
        }
        self.refresh_halves().map_err(Error::Device)?;
        (self.counters.taken, self.counters.seed, self.counters.in_a_row) = (saved.taken, saved.seed, saved.in_a_row);
        self.counters.failed = saved.failed;
        // Gradients from before are those of other weights.
        self.tickets.serial += 1;
        Ok(metadata)
    }

    /// What is saved of a parameter, with its names.
    fn saved_parts(&self, id: usize) -> Vec<(Part, String)> {
        let definition = &self.parameters.all[id];
        let states = match (definition.role, self.parameters.infos[id].role) {
            (Role::Constant, _) => return Vec::new(),
            (_, Role::Weight) => self.optimizer.states(),
            // Running statistics, and weights that are frozen.
            (_, Role::Statistics | Role::Constant) => 0,
        };
        let kept = STATES.into_iter().take(states).enumerate();
        let kept = kept.map(|(i, part)| (part, format!("state{i}.{}", definition.name)));
        [(Part::Master, format!("{MASTER}.{}", definition.name))].into_iter().chain(kept).collect()
    }

    fn saved_scaling(&self, saved: &SavedScaling) -> Result<Option<LossScale>, Error<B::Error>> {
        let wrong = |cause: String| Error::Checkpoint(CheckpointError::Other(cause));
        let other = || wrong("made by another method".to_owned());
        match (saved, self.sites.scaling()) {
            (SavedScaling::Loss(words), Scaling::Loss(own)) => {
                let schedule = LossScale::from_words(words).map_err(|error| wrong(error.to_string()))?;
                let same = std::mem::discriminant(&schedule) == std::mem::discriminant(own);
                if same { Ok(Some(schedule)) } else { Err(other()) }
            }
            (SavedScaling::Gradient(rule), Scaling::Gradient(own)) if *rule == own.saved() => Ok(None),
            (SavedScaling::Gradient(rule), Scaling::Gradient(own)) => Err(match own.other_memory(rule) {
                Some(options) => wrong(format!("made by another method: the same rule with {options}")),
                None => other(),
            }),
            (SavedScaling::Loss(_) | SavedScaling::Gradient(_), _) => Err(other()),
        }
    }
}
