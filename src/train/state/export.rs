//! Export of a network to ONNX, for other runtimes.

use crate::{
    Error, Inputs, Tensor, Var,
    onnx::{self, Weight},
    parameters::Role,
    train::Trainer,
};
use gradscale_core::backend::Backend;

impl<B: Backend> Trainer<B> {
    /// Exports a network in evaluation mode as an ONNX model (operator set 21), for inputs of these shapes. It computes
    /// in f32, so activations need no exponents. With `half`, learned parameters are stored in FP16 and cast where they are
    /// read, which halves the file. Those with a value beyond 65504 stay in f32.
    ///
    /// Inputs are called `input`, or `input0`, `input1`, …, and have the shapes of the batch, for example [n, h, w, c].
    /// Their types are f32, bytes, or 64-bit integers instead of our 32-bit ones. The result is `output`, [n, h, w, c].
    /// Values named by [`Var::output`] keep their names. The values of the batch do not matter.
    ///
    /// ```
    /// use gradscale::{Input, Cpu, Method, Parameters, Trainer, models::Mlp, nn::Module, optim::Sgd};
    /// let mut parameters = Parameters::seeded(1);
    /// let net = Mlp::new(&mut parameters.at("net"), &[2, 32, 2]);
    /// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
    /// let model = trainer.onnx([Input::f32([1, 2], &[0.0; 2])], false, |[x]| net.forward(x))?;
    /// assert!(model.len() > 4 * (2 * 32 + 32 + 32 * 2 + 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A network that does not fit the batch, an operator that ONNX does not have, which the error names, a model of 2 GiB
    /// or more, or the device's.
    pub fn onnx<'a, const N: usize>(
        &mut self, batch: impl Into<Inputs<'a, N>>, half: bool, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Vec<u8>, Error<B::Error>> {
        let batch = self.checked(batch)?;
        let trace = self.trace(batch.kinds(), false, net)?;
        let read = self.parameters.all.iter().map(|one| {
            let Tensor { shape, data } = self.parameter(&one.name)?;
            Ok(Weight { name: one.name.clone(), shape, values: data, learned: one.role == Role::Weight })
        });
        let weights = read.collect::<Result<Vec<Weight>, Error<B::Error>>>()?;
        Ok(onnx::model(&trace, &weights, half)?)
    }
}
