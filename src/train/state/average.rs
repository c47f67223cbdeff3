//! Exponential moving average of the weights, which an evaluation can use in their place.

use crate::{
    Error, Tensor,
    graph::{BufferId, Fixed, Operation, ParamTensor, ParamUpdate, Purpose},
    optim::Optimizer,
    parameters::Role,
    train::{Trainer, converted, elements},
};
use gradscale_core::{
    amp::Precision,
    backend::{Backend, UpdateGuard},
};
use pollster::block_on;

/// Weights with which a network is evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvaluationWeights {
    /// Weights of the training, as the last step left them.
    #[default]
    Trained,
    /// Their exponential moving average ([`TrainerOptions::with_weight_average`](crate::TrainerOptions::with_weight_average)).
    Average,
}

impl EvaluationWeights {
    /// Selects these weights for the trainer's evaluations from now on; at first it uses [`EvaluationWeights::Trained`].
    /// Training does not depend on it. Running statistics of batch norm are those of the training in both cases.
    ///
    /// ```
    /// use gradscale::{
    ///     Cpu, EvaluationWeights, Input, Method, Parameters, Trainer, TrainerOptions, nn::{Linear, Module}, optim::Sgd,
    /// };
    /// let mut parameters = Parameters::seeded(0);
    /// let net = Linear::new(&mut parameters.at("net"), 1, 1);
    /// let trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(1.0), Method::mixed())?;
    /// let mut trainer = trainer.with_options(TrainerOptions::new().with_weight_average(0.75));
    /// trainer.set_parameter("net.weight", &[2.0])?;
    /// let gradients = trainer.backward([Input::f32([1], &[1.0])], |[x]| net.forward(x).sum())?;
    /// trainer.step(gradients)?;
    /// // The gradient is 1.
    /// assert_eq!(EvaluationWeights::Trained.read(&trainer, "net.weight")?.data, [1.0]);
    /// assert_eq!(EvaluationWeights::Average.read(&trainer, "net.weight")?.data, [0.75 * 2.0 + 0.25 * 1.0]);
    /// EvaluationWeights::Average.select(&mut trainer)?;
    /// let y = trainer.evaluate([Input::f32([1], &[8.0])], |[x]| net.forward(x) - net.forward(x.scale(0.0)))?;
    /// assert_eq!(y.data, [14.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A trainer that keeps no average, a share of it that is not in [0, 1), or the device's.
    pub fn select<B: Backend>(self, trainer: &mut Trainer<B>) -> Result<(), Error<B::Error>> {
        if self == Self::Average {
            trainer.require_average()?;
            trainer.allocate_average()?;
        }
        trainer.settings.evaluation_weights = self;
        Ok(())
    }

    /// Reads these values of a parameter, in f32. The average of one that is not trained is its value, and so is that of a
    /// weight before the first step.
    ///
    /// # Errors
    /// A trainer that keeps no average, no parameter of that name, or the device's.
    pub fn read<B: Backend>(self, trainer: &Trainer<B>, name: &str) -> Result<Tensor, Error<B::Error>> {
        let id = trainer.parameters.find(name)?;
        let buf = match self {
            Self::Trained => Fixed::tensor(id, ParamTensor::Master),
            Self::Average => {
                trainer.require_average()?;
                trainer.average_or_master(id)
            }
        };
        let shape = trainer.parameters.shape(id);
        let data = block_on(trainer.exec.read(buf, Precision::Single, shape.len())).map_err(Error::Device)?;
        Ok(Tensor { shape, data })
    }
}

impl<B: Backend> Trainer<B> {
    fn require_average(&self) -> Result<(), Error<B::Error>> {
        let words = "no average of the weights is kept; set TrainerOptions::with_weight_average";
        self.settings.average_kept.map(drop).ok_or_else(|| Error::Parameter(words.to_owned()))
    }

    /// Returns the buffer of a weight's average, or of the weight itself as long as no step has made an average.
    pub(in crate::train) fn average_or_master(&self, id: usize) -> BufferId {
        let average = Fixed::tensor(id, ParamTensor::Average);
        if self.exec.has(average) { average } else { Fixed::tensor(id, ParamTensor::Master) }
    }

    /// Allocates the averages if they are kept and do not exist yet. They start as the weights.
    pub(in crate::train) fn allocate_average(&mut self) -> Result<(), Error<B::Error>> {
        let Some(kept) = self.settings.average_kept else { return Ok(()) };
        if !(0.0..1.0).contains(&kept) {
            let words = format!("the share of the weights' average that stays in a step must be in [0, 1), not {kept}");
            return Err(Error::Parameter(words));
        }
        let all: Vec<usize> = self.parameters.weights().collect();
        if all.iter().all(|&id| self.exec.has(Fixed::tensor(id, ParamTensor::Average))) {
            return Ok(());
        }
        self.allocate_tensors(ParamTensor::Average, &all).map_err(Error::Device)?;
        for id in all {
            self.convert(id, ParamTensor::Master, ParamTensor::Average).map_err(Error::Device)?;
        }
        self.forget_updates();
        Ok(())
    }

    /// Returns the operation by which the averages of these weights follow a step; `None` if none are kept.
    pub(in crate::train) fn average_update(&self, weights: &[usize], guard: UpdateGuard) -> Option<Operation> {
        let follows = self.settings.average_kept.is_some() && !weights.is_empty();
        let update = |&id: &usize| ParamUpdate {
            len: elements(self.parameters.len(id)),
            master: Fixed::tensor(id, ParamTensor::Average),
            grad: Fixed::tensor(id, ParamTensor::Master),
            state: [None; 2],
            half: None,
        };
        let parameters = weights.iter().map(update).collect();
        follows.then(|| Operation::Optimize { p: Optimizer::average(), table: (), guard, norm: None, parameters })
    }

    /// Returns the purpose of an evaluation with the weights that are set.
    pub(in crate::train) const fn evaluation_purpose(&self) -> Purpose {
        match self.settings.evaluation_weights {
            EvaluationWeights::Trained => Purpose::Evaluate,
            EvaluationWeights::Average => Purpose::EvaluateAverage,
        }
    }

    /// Rounds the averages that an evaluation reads in half.
    pub(in crate::train) fn round_averages(&mut self, program: usize) -> Result<(), B::Error> {
        let program = self.exec.program(program);
        if program.purpose != Purpose::EvaluateAverage {
            return Ok(());
        }
        let halves = program.halves.clone();
        for id in halves.into_iter().filter(|&id| self.parameters.infos[id].role == Role::Weight) {
            let (from, to) = (ParamTensor::Average, ParamTensor::AverageHalf);
            self.exec.run(&converted(id, self.parameters.len(id), from, to))?;
        }
        Ok(())
    }
}
