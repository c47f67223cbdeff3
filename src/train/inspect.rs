//! Looking in: parameters, gradients, sites, plan, memory.

use super::{Gradients, MemoryReport, Trainer};
use crate::{
    Batch, Error, PlanRow, SiteReport, Tensor, Var,
    graph::{Fixed, Part, plan},
    parameters::Role,
};
use gradscale_core::{
    amp::Level,
    backend::{Backend, DType, Data},
    scaled::Scaled,
};

/// The gradient of an intermediate value, under the name of the operator that made the value.
pub type Named = (String, Scaled<Tensor>);

impl<B: Backend> Trainer<B> {
    /// The device.
    pub const fn device(&self) -> &B {
        &self.device
    }

    /// Steps taken; skipped ones do not count.
    pub const fn steps(&self) -> u64 {
        self.taken
    }

    /// The exponent of the loss scale in force; 0 under gradient scaling.
    pub fn loss_scale(&self) -> i32 {
        self.sites.loss_scale()
    }

    /// All cast sites that have been used, as they stood after the last step.
    pub fn sites(&self) -> impl Iterator<Item = SiteReport<'_>> {
        self.sites.reports()
    }

    /// Memory in use.
    pub fn memory(&self) -> MemoryReport {
        self.memory.report()
    }

    /// Names and values of all trainable parameters and running statistics.
    ///
    /// # Errors
    /// The device's.
    pub fn parameters(&self) -> Result<Vec<(String, Tensor)>, Error<B::Error>> {
        let all = self.definitions.iter().filter(|one| one.role != Role::Constant);
        all.map(|one| Ok((one.name.clone(), self.parameter(&one.name)?))).collect()
    }

    /// A parameter's master.
    ///
    /// # Errors
    /// No parameter of that name, or the device's.
    pub fn parameter(&self, name: &str) -> Result<Tensor, Error<B::Error>> {
        let id = self.find(name)?;
        let shape = self.definitions[id].shape;
        let data = self.read(self.master(id), DType::F32, shape.len()).map_err(Error::Device)?;
        Ok(Tensor { shape, data })
    }

    /// Writes a parameter.
    ///
    /// # Errors
    /// No parameter of that name and length, or the device's.
    pub fn set_parameter(&mut self, name: &str, values: &[f32]) -> Result<(), Error<B::Error>> {
        let id = self.find(name)?;
        if values.len() != self.definitions[id].shape.len() {
            let shape = self.definitions[id].shape;
            return Err(Error::Parameter(format!(
                "parameter {name} is {shape}, and was given {} values",
                values.len()
            )));
        }
        let mut master = self.memory.take(self.master(id));
        let written = self.device.write(Data::F32(values), &mut master);
        self.memory.put(self.master(id), master);
        written.map_err(Error::Device)?;
        self.refresh_halves().map_err(Error::Device)
    }

    /// The gradient of a parameter: f32, unscaled. None if the loss does not depend on it.
    ///
    /// # Errors
    /// No parameter of that name, gradients of another step, or the device's.
    pub fn gradient(&self, gradients: &Gradients, name: &str) -> Result<Option<Tensor>, Error<B::Error>> {
        self.check_gradients(gradients)?;
        let id = self.find(name)?;
        if !gradients.contributes.contains(&id) {
            return Ok(None);
        }
        let shape = self.definitions[id].shape;
        let data = self.read(Fixed::part(id, Part::Gradient), DType::F32, shape.len()).map_err(Error::Device)?;
        Ok(Some(Tensor { shape, data }))
    }

    /// The gradient of every intermediate value as it is stored, with its exponent, in backward order:
    /// `true = data · 2^-alpha`. Needs [`Trainer::with_all_kept`]: without it, memory has been used again.
    ///
    /// # Errors
    /// Gradients of another step, or the device's.
    pub fn scaled_gradients(&self, gradients: &Gradients) -> Result<Vec<Named>, Error<B::Error>> {
        self.check_gradients(gradients)?;
        if !self.keep {
            return Ok(Vec::new());
        }
        let traced = self.programs[gradients.program].gradients.iter();
        let read = |traced: &crate::graph::Traced| {
            let value = traced.gradient.value;
            let data = self.read(value.buf, value.dtype, traced.shape.len()).map_err(Error::Device)?;
            let tensor = Tensor { shape: traced.shape, data };
            Ok((traced.name.clone(), Scaled::new(tensor, self.sites.exponent(traced.gradient.slot))))
        };
        traced.map(read).collect()
    }

    /// What the policy makes of a network, without running it.
    ///
    /// # Errors
    /// A network that does not fit the batch.
    pub fn plan<const N: usize>(
        &self, batch: [Batch<'_>; N], net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Vec<PlanRow>, Error<B::Error>> {
        super::prefetch::check(&batch)?;
        let trace = self.trace(&batch.into(), true, net)?;
        Ok(plan(&self.policy, &self.layers, &trace)?.0)
    }

    /// The operators that the last backward pass ran, with the types of their results.
    ///
    /// # Errors
    /// Gradients of another step.
    pub fn ran(&self, gradients: &Gradients) -> Result<&[PlanRow], Error<B::Error>> {
        self.check_gradients(gradients)?;
        Ok(&self.programs[gradients.program].plan)
    }

    /// Half copies after masters were written.
    pub(super) fn refresh_halves(&mut self) -> Result<(), B::Error> {
        for id in 0..self.definitions.len() {
            let half = Fixed::part(id, Part::Half);
            if self.memory.has(half) {
                self.convert(id, self.master(id), half)?;
                if self.level() == Level::O3 {
                    self.convert(id, half, self.master(id))?;
                }
            }
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize, Error<B::Error>> {
        let found = self.definitions.iter().position(|one| one.name == name);
        found.ok_or_else(|| Error::Parameter(format!("there is no parameter {name}")))
    }
}
