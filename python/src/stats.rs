//! Statistics rows of stores.

use crate::{
    device::cpu,
    store::Values,
    words::{self, ROW_WORDS, detail_name, format_of, row_of, words_of},
    wrong,
};
use gradscale_core::{
    format::SpecialEncoding,
    stats::{self, Convention, Rate},
    store_format::StoreFormat,
};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::{IntoPyObjectExt, prelude::*, types::PyBytes};

/// Statistics row of one store: counts, largest magnitude, histogram and sums.
#[pyclass(frozen, eq, module = "gradscale")]
#[derive(Clone, Debug, PartialEq)]
pub struct Stats(pub stats::Stats);

#[pymethods]
impl Stats {
    /// Computes the row of a flat array `x`, multiplied by 2^(exponent − from_exponent).
    #[staticmethod]
    #[pyo3(signature = (x, from_exponent, exponent, detail, format=0))]
    pub fn _of(
        py: Python<'_>, x: Values<'_>, from_exponent: i32, exponent: i32, detail: u32, format: u32,
    ) -> PyResult<Self> {
        let (cpu, detail, format) = (cpu()?, words::detail(detail)?, words::store_format(format)?);
        let x = x.slice()?;
        Ok(Self(py.detach(|| cpu.observe_in(format, x, from_exponent, exponent, detail))))
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

    /// Returns the name of the format of the stores that the row counted.
    #[getter]
    fn format(&self) -> &'static str {
        format_of(&self.0).name()
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
        let format = match format_of(&self.0) {
            StoreFormat::Fp16 => "",
            StoreFormat::E5m2 => " in e5m2",
            StoreFormat::E4m3 => " in e4m3",
        };
        format!(
            "<Stats of {} values at 2^{}{format}: {} zeros, {} flushed, {} subnormal, {} overflowed, {} infinite, {} NaN; amax {:e}; {}>",
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

/// Returns the formats of stores, by their numbers: name; the least magnitudes, as f32 bits, that do not flush, that are
/// normal and that overflow; bits of the mantissa; exponent of the smallest normal number; and whether the format has ∞.
#[pyfunction]
pub fn store_formats() -> Vec<(&'static str, [u32; 3], u32, i32, bool)> {
    let described = StoreFormat::ALL.map(|format| {
        let (convention, name, format) = (format.convention(), format.name(), format.format());
        let ends = [convention.flush_end(), convention.subnormal_end(), convention.overflow_start()];
        let has_infinity = format.special_encoding() == SpecialEncoding::Ieee;
        (name, ends, format.mantissa_bits(), format.min_exponent(), has_infinity)
    });
    described.to_vec()
}
