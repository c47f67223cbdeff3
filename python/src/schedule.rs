//! Loss scales, which multiply all gradients by one number.

use crate::wrong;
use gradscale::{
    Method, Scaling,
    gradscale_core::{
        loss_scale::{self, Feedback},
        scaled::Scaled,
    },
};
use pyo3::{prelude::*, types::PyDict};

/// Loss-scale schedule with its whole state.
#[pyclass(eq, module = "gradscale")]
#[derive(Clone, Debug, PartialEq)]
pub struct LossScale {
    schedule: loss_scale::LossScale,
    method: String,
}

fn schedule(method: &str) -> PyResult<loss_scale::LossScale> {
    match method.parse::<Method>().map_err(wrong)?.scaling {
        Scaling::Loss(schedule) => Ok(schedule),
        Scaling::Blocks(_) => {
            Err(wrong(format!("{method} has a scale for each block, and only the program trains with it")))
        }
        Scaling::Gradient(_) => Err(wrong(format!("{method} has a scale for each gradient; use Sites"))),
    }
}

#[pymethods]
impl LossScale {
    #[new]
    #[pyo3(signature = (method="dynamic", *, total_steps=None))]
    fn new(method: &str, total_steps: Option<u64>) -> PyResult<Self> {
        let method = crate::method_for(method, total_steps)?;
        Ok(Self { schedule: schedule(&method)?, method })
    }

    #[getter]
    fn method(&self) -> &str {
        &self.method
    }

    #[getter]
    const fn exponent(&self) -> i32 {
        self.schedule.exponent()
    }

    #[getter]
    fn scale(&self) -> f64 {
        2f64.powi(self.schedule.exponent())
    }

    /// Updates the scale after a step. Call it once for each step, skipped ones included.
    #[pyo3(signature = (found_inf=false, *, amax=None, exponent=0))]
    fn update(&mut self, found_inf: bool, amax: Option<f32>, exponent: i32) {
        let amax = amax.map(|amax| Scaled::new(amax, exponent));
        self.schedule.update(&Feedback { found_inf, amax });
    }

    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = PyDict::new(py);
        state.set_item("method", &self.method)?;
        state.set_item("words", self.schedule.to_words().to_vec())?;
        Ok(state)
    }

    fn load_state_dict(&mut self, state: &Bound<'_, PyDict>) -> PyResult<()> {
        let get = |key: &str| state.get_item(key)?.ok_or_else(|| wrong(format!("a saved loss scale has no {key}")));
        let method: String = get("method")?.extract()?;
        let words: Vec<i64> = get("words")?.extract()?;
        schedule(&method)?;
        let schedule = loss_scale::LossScale::from_words(&words).map_err(wrong)?;
        *self = Self { schedule, method };
        Ok(())
    }

    fn __getstate__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.state_dict(py)
    }

    fn __setstate__(&mut self, state: &Bound<'_, PyDict>) -> PyResult<()> {
        self.load_state_dict(state)
    }

    fn __repr__(&self) -> String {
        format!("<LossScale {}: 2^{}>", self.method, self.exponent())
    }
}

/// Returns the exponent of the largest fixed scale for gradients with the largest magnitude `amax`, measured at
/// 2^exponent. None if `amax` is zero or not finite.
#[pyfunction]
#[pyo3(signature = (amax, exponent=0))]
pub fn propose_fixed(amax: f32, exponent: i32) -> Option<i32> {
    loss_scale::propose_fixed(Scaled::new(amax, exponent))
}
