//! Batches on their way into a step: straight from the host, or sent ahead while the device is at work on another step.

use crate::{
    Error, Input, InputType, Shape, TraceError,
    error::TraceErrorKind,
    graph::{Buf, Operation, Target, Trace, Value},
    train::Trainer,
};
use gradscale_core::{
    backend::{Backend, Slot},
    ops::{Dim, Strided},
};

/// A batch that is on its way to the device, or there already; one step takes it.
#[derive(Debug)]
#[must_use = "a batch that was sent ahead is for the next step"]
pub struct Prefetched<const N: usize> {
    trainer: u64,
    number: u64,
    kinds: [InputType; N],
}

impl<const N: usize> Prefetched<N> {
    /// Shape and type of each input.
    #[must_use]
    pub const fn types(&self) -> [InputType; N] {
        self.kinds
    }
}

/// What a step takes: a batch of the host's, or one that was sent ahead ([`Trainer::prefetch`]).
#[derive(Debug)]
pub enum Inputs<'a, const N: usize> {
    /// Copied to the device when the step begins.
    Host([Input<'a>; N]),
    /// Sent before.
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
    /// Shape and type of each.
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

/// That each input has as many elements as its shape says, and no more than a device counts.
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

/// That data which comes straight from the host is what operators take, as far as they can say: labels of a
/// cross-entropy are classes, or ignored.
pub(in crate::train) fn check_values(trace: &Trace, batch: &[Input<'_>]) -> Result<(), TraceError> {
    for node in &trace.nodes {
        let Some(operator) = node.operator() else { continue };
        // The first values of a trace are its inputs.
        for (i, input) in node.inputs.iter().enumerate().filter_map(|(i, &id)| Some((i, batch.get(id)?))) {
            operator.check(i, input.data).map_err(|kind| node.error(kind))?;
        }
    }
    Ok(())
}

/// The copy of a whole tensor.
fn whole(shape: Shape) -> Strided {
    let len = u32::try_from(shape.len()).expect("sizes were checked");
    Strided::new(&[Dim { len, x: 1, y: 1 }], 0, 0).expect("every length has a copy")
}

impl<B: Backend> Trainer<B> {
    /// Sends a batch ahead. Called between [`Trainer::backward`] and [`Trainer::step`], it is sent to the device while
    /// that works on the step (CUDA: on a second stream). Results are the same. One batch can be ahead: the
    /// next one takes its place, and its memory if that is large enough and the types are the same. To a checkpoint the
    /// data's position is that of the steps taken, without this batch.
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
    /// Data of a wrong length for its shape; the device's, after which no batch is ahead.
    pub fn prefetch<const N: usize>(&mut self, batch: [Input<'_>; N]) -> Result<Prefetched<N>, Error<B::Error>> {
        check(&batch)?;
        // What was ahead before is not any more, also if this fails.
        self.tickets.ahead += 1;
        for (i, input) in batch.iter().enumerate() {
            self.exec.prefetch(i, input.data, input.shape.len()).map_err(Error::Device)?;
        }
        Ok(Prefetched { trainer: self.tickets.id, number: self.tickets.ahead, kinds: kinds(&batch) })
    }

    /// A batch that a step can take.
    pub(in crate::train) fn checked<'a, const N: usize>(
        &self, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Inputs<'a, N>, Error<B::Error>> {
        let batch = batch.into();
        match &batch {
            Inputs::Host(batch) => check(batch)?,
            Inputs::Ahead(batch) if (batch.trainer, batch.number) == (self.tickets.id, self.tickets.ahead) => {}
            Inputs::Ahead(_) => return Err(Error::Prefetched),
        }
        Ok(batch)
    }

    /// Brings a batch to its places, before the step's upload: what is sent ahead next comes behind these copies, and
    /// need not wait for the step ([`Backend::prefetch`]).
    pub(in crate::train) fn place<const N: usize>(
        &mut self, places: &[Buf], batch: &Inputs<'_, N>,
    ) -> Result<(), B::Error> {
        match batch {
            Inputs::Host(batch) => {
                places.iter().zip(batch).try_for_each(|(&place, input)| self.exec.write(place, input.data))
            }
            Inputs::Ahead(batch) => places.iter().zip(batch.kinds).enumerate().try_for_each(|(i, (&place, kind))| {
                let InputType { shape, dtype } = kind;
                let y = Target::keep(Value { buf: place, dtype, len: shape.len() }, Slot::ONE);
                self.exec.run(&Operation::Copy { p: whole(shape), x: Buf::Ahead(i), y })
            }),
        }
    }
}
