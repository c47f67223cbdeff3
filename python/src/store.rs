//! Store of gradients as halves, with their statistics row.

use crate::{
    device::cpu,
    words::{self, merge_into},
    wrong,
};
use gradscale_core::stats::Stats;
use gradscale_cpu::{Slice, SliceMut};
use half::f16;
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1};
use pyo3::{exceptions::PyIndexError, prelude::*};

/// NumPy array of the values to be stored.
#[derive(Debug, FromPyObject)]
pub enum Values<'py> {
    /// Float32 values, which have no scale.
    F32(PyReadonlyArray1<'py, f32>),
    /// Float16 values, converted to f32 before the store.
    F16(PyReadonlyArray1<'py, f16>),
}

impl Values<'_> {
    /// Returns the elements of the array for the CPU backend.
    pub fn slice(&self) -> PyResult<Slice<'_>> {
        Ok(match self {
            Self::F32(x) => Slice::F32(x.as_slice()?),
            Self::F16(x) => Slice::F16(x.as_slice()?),
        })
    }
}

/// Destination of a store. Types are tried in this order, because a failed attempt takes twice as long as storing a few
/// values.
#[derive(Debug, FromPyObject)]
pub enum Stored<'py> {
    /// Float16 destination, rounded to nearest even.
    F16(PyReadwriteArray1<'py, f16>),
    /// Float32 destination, not rounded and without a scale.
    F32(PyReadwriteArray1<'py, f32>),
}

impl Stored<'_> {
    fn slice(&mut self) -> PyResult<SliceMut<'_>> {
        Ok(match self {
            Self::F32(y) => SliceMut::F32(y.as_slice_mut()?),
            Self::F16(y) => SliceMut::F16(y.as_slice_mut()?),
        })
    }
}

/// Stores flat `x` from the exponent `from_exponent` at the exponent `exponent`, rounded to the format of that number.
/// Without `y` it only observes the values.
fn stored(
    py: Python<'_>, x: &Values<'_>, from_exponent: i32, y: Option<Stored<'_>>, exponent: i32, detail: u32, format: u32,
) -> PyResult<Stats> {
    let (cpu, detail, format, x, mut y) = (cpu()?, words::detail(detail)?, words::store_format(format)?, x.slice()?, y);
    let y = y.as_mut().map(Stored::slice).transpose()?;
    py.detach(|| match y {
        Some(y) => cpu.store_in(format, x, from_exponent, y, exponent, detail).map_err(wrong),
        None => Ok(cpu.observe_in(format, x, from_exponent, exponent, detail)),
    })
}

/// Stores flat `x` from the exponent `from_exponent` into flat `y` at the exponent `exponent`. If `y` is half, values
/// are rounded once to nearest even, to the format of that number. The statistics are merged into the words `row`.
#[pyfunction]
#[pyo3(signature = (x, from_exponent, y, exponent, detail, row, format=0))]
#[expect(clippy::too_many_arguments, reason = "a call from Python with an object for these costs more than the store")]
pub fn store(
    py: Python<'_>, x: Values<'_>, from_exponent: i32, y: Option<Stored<'_>>, exponent: i32, detail: u32,
    row: Bound<'_, PyArray1<u32>>, format: u32,
) -> PyResult<()> {
    let seen = stored(py, &x, from_exponent, y, exponent, detail, format)?;
    // The row is borrowed only now, with the interpreter's lock, because other threads may store to other rows of the
    // array.
    merge_into(row.try_readwrite()?.as_slice_mut()?, &seen)
}

/// Stores values of the site `source` (−1: unscaled) at the site `site`. `control` has one line of exponents and one of
/// details; the statistics are merged into row `site` of `rows`. `format` is the number of the site's format.
#[pyfunction]
#[pyo3(signature = (x, y, rows, control, source, site, format=0))]
#[expect(clippy::too_many_arguments, reason = "the arguments of an operator of PyTorch")]
pub fn store_site(
    py: Python<'_>, x: Values<'_>, y: Option<Stored<'_>>, rows: Bound<'_, PyArray2<u32>>,
    control: PyReadonlyArray2<'_, i32>, source: i64, site: usize, format: u32,
) -> PyResult<()> {
    let view = control.as_array();
    let at = |line: usize, site: usize| {
        let none = || PyIndexError::new_err(format!("control has no site {site}"));
        view.get([line, site]).copied().ok_or_else(none)
    };
    let start = usize::try_from(source).map_or(Ok(0), |source| at(0, source))?;
    let (exponent, detail) = (at(0, site)?, at(1, site)?);
    let seen = stored(py, &x, start, y, exponent, detail.cast_unsigned(), format)?;
    let mut rows = rows.try_readwrite()?;
    let width = words::ROW_WORDS;
    let row = rows.as_slice_mut()?.get_mut(site * width..(site + 1) * width);
    merge_into(row.ok_or_else(|| PyIndexError::new_err(format!("rows has no site {site}")))?, &seen)
}
