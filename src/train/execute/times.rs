//! Execution times of the launches of a step.

use crate::{Error, LaunchTime, train::Trainer};
use gradscale_core::backend::Backend;

impl<B: Backend> Trainer<B> {
    /// Enables or disables the timing of every launch by the device's own clock: CPU time, CUDA events or wgpu
    /// timestamps. Timed launches run one by one, even if steps are recorded; results have the same bits. Uploads,
    /// read-backs and communication between ranks are not timed.
    ///
    /// ```
    /// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{Linear, Module}, optim::Sgd};
    /// let mut parameters = Parameters::seeded(0);
    /// let net = Linear::new(&mut parameters.at("net"), 2, 2);
    /// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?;
    /// for step in 0..5 {
    ///     // The first steps compile and allocate.
    ///     trainer.time_launches(step >= 2)?;
    ///     let batch = [Input::f32([2, 2], &[1.0, 0.0, 0.0, 1.0]), Input::u8([2], &[0, 1])];
    ///     let gradients = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels))?;
    ///     trainer.step(gradients)?;
    /// }
    /// let times = trainer.launch_times();
    /// // y = x wᵀ + b of a batch of 2, three times: 16 operations for products and 4 for sums, each time.
    /// let gemm = times.iter().find(|time| time.shape == "2x2x2 b'").expect("a linear layer");
    /// assert_eq!((gemm.name, gemm.launches, gemm.cost.operations), ("gemm", 3, 60));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoClock`], or the device's.
    pub fn time_launches(&mut self, time: bool) -> Result<(), Error<B::Error>> {
        if self.exec.take_times(time).map_err(Error::Device)? {
            return Ok(());
        }
        Err(Error::NoClock { device: self.device().caps().name.to_owned() })
    }

    /// Returns the times since the last call by name and shape, in descending order.
    pub fn launch_times(&mut self) -> Vec<LaunchTime> {
        self.exec.drain_times()
    }
}
