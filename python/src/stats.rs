//! Statistics rows of stores.

use crate::{
    device::cpu,
    store::Values,
    words::{self, ROW_WORDS, detail_name, row_of, words_of},
    wrong,
};
use gradscale_core::stats::{self, Convention, Rate};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::{IntoPyObjectExt, prelude::*, types::PyBytes};

/// Statistics row of one f16 store: counts, largest magnitude, histogram and sums.
#[pyclass(frozen, eq, module = "gradscale")]
#[derive(Clone, Debug, PartialEq)]
pub struct Stats(pub stats::Stats);

#[pymethods]
impl Stats {
    /// Computes the row of a flat array `x`, multiplied by 2^(exponent − from_exponent).
    #[staticmethod]
    pub fn _of(py: Python<'_>, x: Values<'_>, from_exponent: i32, exponent: i32, detail: u32) -> PyResult<Self> {
        let (cpu, detail) = (cpu()?, words::detail(detail)?);
        let x = x.slice()?;
        Ok(Self(py.detach(|| cpu.observe(x, from_exponent, exponent, detail))))
    }

    /// Creates a row from its words, as `store` and `store_site` write them.
    #[staticmethod]
    fn _from_words(words: PyReadonlyArray1<'_, u32>) -> PyResult<Self> {
        row_of(words.as_slice()?).map(Self)
    }

    /// Creates a row from the bytes that `to_bytes` returns.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        let (words, rest) = bytes.as_chunks();
        if !rest.is_empty() || words.len() != ROW_WORDS {
            return Err(wrong(format!("a row has {} bytes, not {}", 4 * ROW_WORDS, bytes.len())));
        }
        let words: Vec<u32> = words.iter().map(|&word| u32::from_le_bytes(word)).collect();
        row_of(&words).map(Self)
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes: Vec<u8> = words_of(&self.0).iter().flat_map(|word| word.to_le_bytes()).collect();
        PyBytes::new(py, &bytes)
    }

    fn to_words<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        PyArray1::from_slice(py, &words_of(&self.0))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((py.get_type::<Self>().getattr("from_bytes")?, (self.to_bytes(py),)))
    }

    fn merge(&self, other: &Self) -> PyResult<Self> {
        self.0.merge(&other.0).map(Self).map_err(wrong)
    }

    fn __add__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        match other.cast::<Self>() {
            Ok(row) => self.merge(row.get())?.into_py_any(other.py()),
            Err(_) => Ok(other.py().NotImplemented()),
        }
    }

    #[getter]
    fn count(&self) -> u64 {
        self.0.counts().count
    }

    #[getter]
    fn zeros(&self) -> u64 {
        self.0.counts().zeros
    }

    #[getter]
    fn infinite(&self) -> u64 {
        self.0.counts().infinite
    }

    #[getter]
    fn nan(&self) -> u64 {
        self.0.counts().nan
    }

    #[getter]
    fn flushed(&self) -> u64 {
        self.0.counts().flushed
    }

    #[getter]
    fn overflowed(&self) -> u64 {
        self.0.counts().overflowed
    }

    #[getter]
    fn subnormal(&self) -> u64 {
        self.0.counts().subnormal
    }

    #[getter]
    fn nonzero(&self) -> u64 {
        self.0.counts().nonzero()
    }

    #[getter]
    fn amax(&self) -> f32 {
        self.0.counts().amax
    }

    #[getter]
    fn exponent(&self) -> i32 {
        self.0.exponent()
    }

    #[getter]
    fn detail(&self) -> &'static str {
        detail_name(self.0.detail())
    }

    #[getter]
    fn histogram<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<u32>>> {
        self.0.bins().map(|bins| PyArray1::from_slice(py, bins))
    }

    #[getter]
    fn moments(&self) -> Option<[f64; 4]> {
        self.0.moments().map(|moments| [moments.sum, moments.sum_sq, moments.sum_ln, moments.sum_ln_sq])
    }

    #[getter]
    fn headroom(&self) -> Option<i32> {
        self.0.headroom_above()
    }

    fn flushed_at(&self, exponent_delta: i32) -> Option<f64> {
        self.0.flushed_at(exponent_delta).map(Rate::value)
    }

    fn lost_at(&self, exponent_delta: i32) -> Option<f64> {
        self.0.lost_at(exponent_delta)
    }

    fn __repr__(&self) -> String {
        let counts = self.0.counts();
        format!(
            "<Stats of {} values at 2^{}: {} zeros, {} flushed, {} subnormal, {} overflowed, {} infinite, {} NaN; amax {:e}; {}>",
            counts.count,
            counts.exponent,
            counts.zeros,
            counts.flushed,
            counts.subnormal,
            counts.overflowed,
            counts.infinite,
            counts.nan,
            counts.amax,
            self.detail(),
        )
    }
}

impl Stats {
    /// Row of no values, with level of detail "none".
    pub const EMPTY: stats::Stats = stats::Stats::new(Convention::FP16, 0, stats::Detail::None);
}
