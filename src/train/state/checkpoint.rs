//! Checkpoint of everything that a training needs to continue as if it had never stopped.
//!
//! Tensors are f32: `master.NAME` for every weight and running statistic, `state0.NAME`, `state1.NAME` … for the
//! optimizer states, `average.NAME` for the moving average of a weight if there is one. The rest (steps, seed, schedule, sites) is JSON.

use crate::{
    Error, Method, Scaling,
    checkpoint::{self, CheckpointError, Contents, Difference, MASTER},
    configuration::Configuration,
    distributed::BatchNormScope,
    graph::{BufferId, Fixed, ParamTensor, STATES},
    method::saved as method,
    parameters::Role,
    sites::SavedSite,
    train::Trainer,
};
use gradscale_core::{
    amp::Precision,
    backend::{Backend, Data, EngineAvailability},
    loss_scale::LossScale,
};
use safetensors::Dtype;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name prefix of the averages of weights in a checkpoint.
const AVERAGE: &str = "average";
/// Name of the setting with the share of the average that stays in a step.
const AVERAGE_KEPT: &str = "average kept";

#[derive(Serialize, Deserialize)]
struct SavedTraining {
    taken: u64,
    seed: u64,
    in_a_row: u32,
    /// Number of failed attempts at the coming step.
    #[serde(default)]
    failed: u32,
    /// Step counts of the optimizer's groups; empty if all are equal. They differ if steps train only one of several
    /// networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<u64>,
    /// Learning rates set by [`Trainer::set_lr`], as bits of f64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rates: Vec<u64>,
    /// Settings of the training, for comparison; `None` before format 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<Settings>,
    /// State of the loss scale, with its settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    loss_scale: Option<Vec<i64>>,
    /// Exponents at which gradients are sent between ranks in the next step, if steps have micro-batches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    wire: Vec<Option<i32>>,
    /// Engine of products, if the device has several ([`Backend::product_engine`]). `None` in checkpoints of other
    /// devices and of earlier versions; then the loading device keeps its own choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    product_engine: Option<String>,
    /// Scaling method in formats 1 and 2, which contain no other settings.
    #[serde(skip_serializing)]
    scaling: Option<ScalingBefore>,
    /// True if weight gradients are rounded to half before f32, in formats 1 and 2.
    #[serde(default, skip_serializing)]
    half_weight_gradients: bool,
    sites: Vec<SavedSite>,
}

/// Settings of a training, stored separately so that they can be compared.
#[derive(Serialize, Deserialize)]
struct Settings {
    method: Configuration,
    optimizer: Configuration,
    trainer: Configuration,
}

/// Scaling method of gradients, before format 3.
#[derive(Serialize, Deserialize)]
enum ScalingBefore {
    /// Loss-scale schedule with its state, as words.
    Loss(Vec<i64>),
    /// Gradient scaling, as the text of its rule.
    Gradient(String),
}

/// Effect of a loaded checkpoint on the engine of products.
#[derive(Default)]
struct Engine {
    /// Name of the engine to select, if it must change.
    selected: Option<String>,
    /// Engine of the checkpoint and the pinned engine, if they differ.
    replaced: Option<Difference>,
}

impl<B: Backend> Trainer<B> {
    /// Returns the whole state as the bytes of a safetensors file with checksums. `metadata` is stored too, for example
    /// the position in the data. Equal states have equal bytes. Save between steps, because gradients that were not
    /// used by a step are not saved.
    ///
    /// The file also contains the settings of the trainer, for comparison: the method with all numbers, level, lists
    /// and layers; the optimizer with rule, numbers, groups, schedule and frozen parameters; the share of running
    /// statistics that is kept.
    ///
    /// ```
    /// # use gradscale::{Input, Cpu, Error, CheckpointError, Method, Parameters, Trainer, nn::{Linear, Module}, optim::Sgd};
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
    /// All ranks of a group ([`Trainer::join_group`]) must call this together. Sharded optimizer states are collected
    /// from their owners, and all ranks check that their states are equal. Metadata may differ.
    ///
    /// # Errors
    /// The device's, more than 100 MB of metadata (the limit of the file's header), or ranks whose states differ.
    pub fn save(&self, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, Error<B::Error>> {
        let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
        for id in 0..self.parameters.all.len() {
            for (part, name) in self.saved_parts(id) {
                let values = self.gather_saved_values(id, part)?;
                let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                tensors.push((name, self.part_shape(id, part).sizes().to_vec(), bytes));
            }
        }
        let together = self.steps.iter().all(|&steps| steps == self.counters.taken);
        let saved = SavedTraining {
            taken: self.counters.taken,
            seed: self.counters.seed,
            in_a_row: self.counters.skips.in_a_row(),
            failed: self.counters.failed,
            groups: if together { Vec::new() } else { self.steps.clone() },
            rates: self.optimizer.saved_rates(),
            settings: Some(self.configured()),
            loss_scale: match self.sites.scaling() {
                Scaling::Loss(schedule) => Some(schedule.to_words().to_vec()),
                Scaling::Gradient(_) | Scaling::Blocks(_) => None,
            },
            wire: if self.ranks.grad_exponents.iter().all(Option::is_none) {
                Vec::new()
            } else {
                self.ranks.grad_exponents.clone()
            },
            // Devices of several kinds have no common engine.
            product_engine: self
                .exec
                .device()
                .product_engine()
                .filter(|_| !self.ranks.has_mixed_devices)
                .map(str::to_owned),
            scaling: None,
            half_weight_gradients: false,
            sites: self.sites.save(),
        };
        self.agree_on(&tensors, &saved)?;
        checkpoint::write(&tensors, metadata, together, saved).map_err(Error::Checkpoint)
    }

    /// Checks that all ranks would save the same bytes.
    fn agree_on(
        &self, tensors: &[(String, Vec<usize>, Vec<u8>)], saved: &SavedTraining,
    ) -> Result<(), Error<B::Error>> {
        if self.ranks.group.size() == 1 {
            return Ok(());
        }
        let saved = serde_json::to_vec(saved).unwrap_or_default();
        let all = tensors.iter().fold(crc32c::crc32c(&saved), |sum, (_, _, bytes)| crc32c::crc32c_append(sum, bytes));
        Ok(self.ranks.group.check_equal("state", &format!("{all:08x}"))?)
    }

    /// Restores the state that [`Trainer::save`] wrote, bit for bit, and returns the caller's metadata. The trainer
    /// must have the same parameters, optimizer and method. Otherwise nothing is changed, and the error names the
    /// differences ([`CheckpointError::Settings`]). Learning rates set by [`Trainer::set_lr`] are restored. Of a custom
    /// schedule only its presence is compared, of a custom rule its `Debug` output. Checkpoints of earlier versions
    /// contain no optimizer settings, levels or layers. To load only weights, use
    /// [`Parameters::load`](crate::Parameters::load).
    ///
    /// A device that has several engines of products, which sum in different orders, selects the engine of the
    /// checkpoint. A device that lacks it is an error. If the user has pinned another engine, that one stays, and
    /// [`Trainer::replaced_engine`] names both.
    ///
    /// # Errors
    /// Bytes that are no checkpoint, are damaged, or belong to another network, optimizer or method; the device's.
    pub fn load(&mut self, bytes: &[u8]) -> Result<BTreeMap<String, String>, Error<B::Error>> {
        let Contents { tensors, metadata, training: saved } =
            checkpoint::open::<SavedTraining>(bytes).map_err(Error::Checkpoint)?;
        let wrong = |cause: String| Error::Checkpoint(CheckpointError::Other(cause));
        let loss_scale = self.check_settings(&saved)?;
        self.allocate_average()?;
        let has_average = saved.settings.as_ref().is_some_and(|settings| settings.trainer.has(AVERAGE_KEPT));
        let groups = self.optimizer.group_count();
        if [saved.rates.len(), saved.groups.len()].iter().any(|&len| len != 0 && len != groups) {
            return Err(wrong("made with another optimizer: its parameter groups differ".to_owned()));
        }
        // Everything is read and checked before anything is written.
        let (mut values, mut expected): (Vec<(BufferId, Vec<f32>)>, usize) = (Vec::new(), 0);
        for id in 0..self.parameters.all.len() {
            for (part, name) in self.saved_parts(id) {
                let buf = Fixed::tensor(id, part);
                if part == ParamTensor::Average && !has_average {
                    // It begins with the weights, of which the last values are those of the master.
                    let master = values.iter().rev().find(|(buf, _)| *buf == Fixed::tensor(id, ParamTensor::Master));
                    values.extend(master.cloned().map(|(_, values)| (buf, values)));
                    continue;
                }
                let tensor = tensors.get(&name).ok_or_else(|| wrong(format!("it has no tensor {name}")))?;
                let shape = self.part_shape(id, part);
                if tensor.dtype() != Dtype::F32 || tensor.shape() != shape.sizes() {
                    return Err(wrong(format!("{name} is {:?} in the checkpoint, but {shape} here", tensor.shape())));
                }
                expected += 1;
                // States of a sharded optimizer that belong to other ranks are not stored here.
                if self.exec.has(buf) {
                    values.push((buf, checkpoint::floats(tensor)));
                }
            }
        }
        if tensors.len() != expected {
            return Err(wrong(format!("it has {} tensors, but this training has {expected}", tensors.len())));
        }
        let engine = self.check_engine(saved.product_engine.as_deref())?;
        self.sites.restore(loss_scale, &saved.sites).map_err(wrong)?;
        self.replaced_engine = engine.replaced;
        if let Some(name) = engine.selected {
            self.exec.select_product_engine(&name).map_err(Error::Device)?;
        }
        self.optimizer.restore_rates(&saved.rates);
        self.grow_table().map_err(Error::Device)?;
        for (buf, values) in values {
            self.exec.write(buf, Data::F32(&values)).map_err(Error::Device)?;
        }
        self.refresh_halves().map_err(Error::Device)?;
        (self.counters.taken, self.counters.seed) = (saved.taken, saved.seed);
        self.steps = if saved.groups.is_empty() { vec![saved.taken; groups] } else { saved.groups };
        self.counters.skips.restore(saved.in_a_row);
        self.counters.failed = saved.failed;
        self.ranks.grad_exponents = saved.wire;
        self.ranks.grad_exponents.resize(self.parameters.all.len(), None);
        // Gradients that were computed before belong to other weights.
        self.generations.gradients += 1;
        Ok(metadata)
    }

    /// Returns the engine of products that the last [`Trainer::load`] did not select, because the user has pinned
    /// another one.
    /// Products then have other bits than before the checkpoint.
    pub const fn replaced_engine(&self) -> Option<&Difference> {
        self.replaced_engine.as_ref()
    }

    /// Compares the engine of products that a checkpoint records with the device's.
    fn check_engine(&self, recorded: Option<&str>) -> Result<Engine, Error<B::Error>> {
        let device = self.exec.device();
        // The user has chosen another kind of device, or the checkpoint is older and has no engine.
        let (Some(there), Some(here)) = (recorded, device.product_engine()) else { return Ok(Engine::default()) };
        if there == here {
            return Ok(Engine::default());
        }
        let difference = || Difference { name: "GEMM engine".into(), there: there.into(), here: here.into() };
        match device.product_engine_availability(there) {
            EngineAvailability::Available => Ok(Engine { selected: Some(there.to_owned()), replaced: None }),
            EngineAvailability::Pinned => Ok(Engine { selected: None, replaced: Some(difference()) }),
            EngineAvailability::Missing => {
                let differences = vec![difference()];
                Err(Error::Checkpoint(CheckpointError::Settings {
                    of: CheckpointError::DEVICE.to_owned(),
                    differences,
                }))
            }
        }
    }

    /// Returns the saved parts of a parameter, with their tensor names.
    pub(in crate::train) fn saved_parts(&self, id: usize) -> Vec<(ParamTensor, String)> {
        let definition = &self.parameters.all[id];
        let states = match (definition.role, self.parameters.infos[id].role) {
            (Role::Constant, _) => return Vec::new(),
            (_, Role::Weight) => self.optimizer.states(),
            // Running statistics and frozen weights have no optimizer states.
            (_, Role::Statistics | Role::Constant) => 0,
        };
        let kept = STATES.into_iter().take(states).enumerate();
        let kept = kept.map(|(i, part)| (part, format!("state{i}.{}", definition.name)));
        let has_average = self.settings.average_kept.is_some() && self.parameters.infos[id].role == Role::Weight;
        let average = has_average.then(|| (ParamTensor::Average, format!("{AVERAGE}.{}", definition.name)));
        let master = (ParamTensor::Master, format!("{MASTER}.{}", definition.name));
        [master].into_iter().chain(kept).chain(average).collect()
    }

    /// Returns the settings of this training in the form that is saved.
    fn configured(&self) -> Settings {
        let crate::train::Settings { policy, layers, weight_gradients, momentum, each_call, .. } = &self.settings;
        let crate::train::Settings { average_kept, batch_norm_scope, .. } = &self.settings;
        let method = Method {
            amp: policy.clone(),
            layers: layers.clone(),
            scaling: self.sites.scaling().clone(),
            weight_gradients: *weight_gradients,
        };
        let mut trainer = Configuration::default();
        trainer.set_single("statistics kept", *momentum);
        if let Some(kept) = average_kept {
            trainer.set_single(AVERAGE_KEPT, *kept);
        }
        if *each_call {
            trainer.set("statistics of", "each call");
        }
        if *batch_norm_scope != BatchNormScope::Rank {
            trainer.set("batch norm over the", batch_norm_scope.to_string());
        }
        Settings { method: method::configuration(&method), optimizer: self.optimizer.configuration(), trainer }
    }

    /// Returns the settings of this training as text, by subject.
    pub(in crate::train) fn settings_as_text(&self) -> [(&'static str, String); 3] {
        let Settings { method, optimizer, trainer } = self.configured();
        [("method", method), ("optimizer", optimizer), ("trainer", trainer)]
            .map(|(subject, settings)| (subject, serde_json::to_string(&settings).unwrap_or_default()))
    }

    /// Checks that a checkpoint's settings are those of this training, as far as it contains them. Returns its loss
    /// scale.
    fn check_settings(&self, saved: &SavedTraining) -> Result<Option<LossScale>, Error<B::Error>> {
        let wrong = |cause: String| Error::Checkpoint(CheckpointError::Other(cause));
        if let Some(there) = &saved.settings {
            let mut here = self.configured();
            if !there.trainer.has(AVERAGE_KEPT) {
                // An average that the checkpoint does not have begins with its weights.
                here.trainer.remove(AVERAGE_KEPT);
            }
            compared("method", &there.method, &here.method)?;
            compared("optimizer", &there.optimizer, &here.optimizer)?;
            compared("trainer", &there.trainer, &here.trainer)?;
        }
        let own = self.sites.scaling();
        let words = match (&saved.loss_scale, &saved.scaling) {
            (Some(words), _) | (None, Some(ScalingBefore::Loss(words))) => words,
            (None, None) if saved.settings.is_some() && matches!(own, Scaling::Gradient(_) | Scaling::Blocks(_)) => {
                return Ok(None);
            }
            (None, None) => return Err(wrong("it does not record the scaling of gradients".to_owned())),
            (None, Some(ScalingBefore::Gradient(rule))) => {
                return match own {
                    Scaling::Gradient(own) if *rule == method::before(own) => Ok(None),
                    Scaling::Gradient(own) => Err(match method::other_memory(own, rule) {
                        Some(options) => wrong(format!("made with another method: the same rule with {options}")),
                        None => wrong(format!("made with another method: {rule}")),
                    }),
                    Scaling::Loss(_) | Scaling::Blocks(_) => {
                        Err(wrong("made with another method: with gradient scaling".to_owned()))
                    }
                };
            }
        };
        let schedule = LossScale::from_words(words).map_err(|error| wrong(error.to_string()))?;
        let mut there = method::scaling(&Scaling::Loss(schedule.clone()));
        let mut here = method::scaling(own);
        if saved.settings.is_none() {
            let half = if saved.half_weight_gradients { Precision::Half } else { Precision::Single };
            there.set("wgrad", half.to_string());
            here.set("wgrad", self.settings.weight_gradients.to_string());
        }
        compared("method", &there, &here)?;
        Ok(Some(schedule))
    }
}

fn compared<E>(of: &str, there: &Configuration, here: &Configuration) -> Result<(), Error<E>> {
    let differences = there.differences(here);
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::Checkpoint(CheckpointError::Settings { of: of.to_owned(), differences }))
}
