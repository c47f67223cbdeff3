//! Input batches of a step: from host memory, or prefetched while the device runs another step.

use crate::{
    Error, Input, InputType, Shape, TraceError,
    error::TraceErrorKind,
    graph::{BufferId, Operation, StoreSpec, Trace, Value},
    train::Trainer,
};
use gradscale_core::{
    backend::{Backend, Slot},
    ops::{Dim, Strided},
};

/// Batch whose copy to the device has started or is complete. A single step can use it.
#[derive(Debug)]
#[must_use = "pass a prefetched batch to the next step"]
pub struct Prefetched<const N: usize> {
    trainer: u64,
    number: u64,
    kinds: [InputType; N],
}

impl<const N: usize> Prefetched<N> {
    /// Returns shape and element type of each input of the prefetched batch.
    #[must_use]
    pub const fn types(&self) -> [InputType; N] {
        self.kinds
    }
}

/// Inputs of a step: a batch in host memory, or one that was prefetched ([`Trainer::prefetch`]).
#[derive(Debug)]
pub enum Inputs<'a, const N: usize> {
    /// Batch in host memory, which is copied to the device when the step begins.
    Host([Input<'a>; N]),
    /// Batch that [`Trainer::prefetch`] has sent to the device.
    Ahead(Prefetched<N>),
}

impl<'a, const N: usize> From<[Input<'a>; N]> for Inputs<'a, N> {
    fn from(batch: [Input<'a>; N]) -> Self {
        Self::Host(batch)
    }
}

impl<const N: usize> From<Prefetched<N>> for Inputs<'_, N> {
    fn from(batch: Prefetched<N>) -> Self {
        Self::Ahead(batch)
    }
}

impl<const N: usize> Inputs<'_, N> {
    /// Returns shape and element type of each input.
    pub(in crate::train) fn kinds(&self) -> [InputType; N] {
        match self {
            Self::Host(batch) => kinds(batch),
            Self::Ahead(batch) => batch.kinds,
        }
    }
}

fn kinds<const N: usize>(batch: &[Input<'_>; N]) -> [InputType; N] {
    batch.map(InputType::from)
}

/// Checks that each input has as many elements as its shape, and no more than a device can count.
pub(in crate::train) fn check(batch: &[Input<'_>]) -> Result<(), TraceError> {
    for (i, input) in batch.iter().enumerate() {
        let name = format!("input{i}");
        crate::graph::sizes(&name, input.shape)?;
        if input.data.len() != input.shape.len() {
            return Err(TraceError::new(&name, TraceErrorKind::Length { got: input.data.len(), shape: input.shape }));
        }
    }
    Ok(())
}

/// Checks the values of inputs in host memory where an operator restricts them. For example, labels of a cross-entropy
/// must be classes or the ignored label.
pub(in crate::train) fn check_values(trace: &Trace, batch: &[Input<'_>]) -> Result<(), TraceError> {
    for node in &trace.nodes {
        let Some(operator) = node.operator() else { continue };
        // The first nodes of a trace are its inputs.
        for (i, input) in node.inputs.iter().enumerate().filter_map(|(i, &id)| Some((i, batch.get(id)?))) {
            operator.check(i, input.data).map_err(|kind| node.error(kind))?;
        }
    }
    Ok(())
}

/// Returns the descriptor that copies a whole tensor.
fn whole(shape: Shape) -> Strided {
    let len = u32::try_from(shape.len()).expect("sizes were checked");
    Strided::new(&[Dim { len, x: 1, y: 1 }], 0, 0).expect("every length has a copy")
}

impl<B: Backend> Trainer<B> {
    /// Prefetches a batch. If this is called between [`Trainer::backward`] and [`Trainer::step`], the copy overlaps
    /// with the step on the device (CUDA: on a second stream). Results are the same. At most one batch is prefetched:
    /// the next one replaces it, and reuses its memory if that is large enough and the types are equal. A checkpoint
    /// does not count this batch in the position of the data.
    ///
    /// ```
    /// # use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{Linear, Module}, optim::Sgd};
    /// # let mut parameters = Parameters::seeded(0);
    /// # let net = Linear::new(&mut parameters.at("net"), 2, 2);
    /// # let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?;
    /// # let batches = [[1.0, 0.0, 0.0, 1.0], [0.0, 2.0, 2.0, 0.0], [1.0, 2.0, 2.0, 1.0]];
    /// # let labels = [0u8, 1];
    /// let batch = |i: usize| [Input::f32([2, 2], &batches[i % 3]), Input::u8([2], &labels)];
    /// let mut ahead = trainer.prefetch(batch(0))?;
    /// for i in 1..=10 {
    ///     let gradients = trainer.backward(ahead, |[x, labels]| net.forward(x).cross_entropy(labels))?;
    ///     ahead = trainer.prefetch(batch(i))?;
    ///     trainer.step(gradients)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Data of a wrong length for its shape; the device's, after which no batch is prefetched.
    pub fn prefetch<const N: usize>(&mut self, batch: [Input<'_>; N]) -> Result<Prefetched<N>, Error<B::Error>> {
        check(&batch)?;
        // Invalidates the batch that was prefetched before, even if this call fails.
        self.generations.prefetched += 1;
        for (i, input) in batch.iter().enumerate() {
            self.exec.prefetch(i, input.data, input.shape.len()).map_err(Error::Device)?;
        }
        Ok(Prefetched { trainer: self.generations.trainer, number: self.generations.prefetched, kinds: kinds(&batch) })
    }

    /// Checks that a step can use this batch.
    pub(in crate::train) fn checked<'a, const N: usize>(
        &self, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Inputs<'a, N>, Error<B::Error>> {
        let batch = batch.into();
        match &batch {
            Inputs::Host(batch) => check(batch)?,
            Inputs::Ahead(batch)
                if (batch.trainer, batch.number) == (self.generations.trainer, self.generations.prefetched) => {}
            Inputs::Ahead(_) => return Err(Error::Prefetched),
        }
        Ok(batch)
    }

    /// Copies a batch to the inputs of a program, before the step's upload. The next prefetched batch is ordered after
    /// these copies only, so it need not wait for the step ([`Backend::prefetch`]).
    pub(in crate::train) fn upload_inputs<const N: usize>(
        &mut self, places: &[BufferId], batch: &Inputs<'_, N>,
    ) -> Result<(), B::Error> {
        match batch {
            Inputs::Host(batch) => {
                places.iter().zip(batch).try_for_each(|(&place, input)| self.exec.write(place, input.data))
            }
            Inputs::Ahead(batch) => places.iter().zip(batch.kinds).enumerate().try_for_each(|(i, (&place, kind))| {
                let InputType { shape, dtype } = kind;
                let y = StoreSpec::passthrough(Value { buf: place, dtype, len: shape.len() }, Slot::ONE);
                self.exec.run(&Operation::Copy { p: whole(shape), x: BufferId::PrefetchedInput(i), y })
            }),
        }
    }
}
