//! Rules of gradient scaling, which compute exponents from statistics rows.

use crate::{stats::Stats, words::format_of, wrong};
use gradscale::{
    Method, Preset, Scaling,
    gradscale_core::{
        model::terms::{ConvShape, Terms},
        scaled::Scaled,
        solve::{self, Amax, Exact, Operand},
        store_format::StoreFormat,
    },
};
use pyo3::{create_exception, exceptions::PyValueError, prelude::*};

create_exception!(
    gradscale,
    NoDecisionError,
    PyValueError,
    "A row gives no decision: all zero, not finite, or observed in too little detail."
);

/// Decision about an exponent: its value relative to the row's exponent, the limiting constraint, and the predicted
/// fraction of the non-zero values that flush.
#[pyclass(frozen, eq, module = "gradscale")]
#[derive(Clone, Debug, PartialEq)]
pub struct Decision(pub solve::Choice);

fn answer(verdict: Result<solve::Choice, solve::NoDecision>) -> PyResult<Decision> {
    verdict.map(Decision).map_err(|error| NoDecisionError::new_err(error.to_string()))
}

#[pymethods]
impl Decision {
    #[getter]
    const fn exponent_delta(&self) -> i32 {
        self.0.k
    }

    #[getter]
    fn limited_by(&self) -> String {
        self.0.held.to_string()
    }

    #[getter]
    const fn flushed_predicted(&self) -> f64 {
        self.0.gamma
    }

    fn __repr__(&self) -> String {
        format!("<Decision 2^{} by {}: {:.1e} flushed>", self.0.k, self.0.held, self.0.gamma)
    }
}

/// Returns the number of products in one element of a convolution's data gradient: typical and maximum.
#[pyfunction]
pub fn conv_terms(
    out_channels: u32, kernel: Vec<u32>, stride: Vec<u32>, dilation: Vec<u32>, groups: u32, transposed: bool,
) -> PyResult<(f64, f64)> {
    let point = ConvShape { out_channels, kernel: [1; 2], stride: [1; 2], dilation: [1; 2], groups };
    let Terms { mut typical, mut worst } = Terms::conv(point).map_err(wrong)?;
    for ((k, s), d) in kernel.into_iter().zip(stride).zip(dilation) {
        let axis = ConvShape { out_channels: 1, kernel: [k, 1], stride: [s, 1], dilation: [d, 1], groups: 1 };
        let terms = if transposed { Terms::conv_transpose(axis) } else { Terms::conv(axis) }.map_err(wrong)?;
        typical *= terms.typical;
        worst *= terms.worst;
    }
    Ok((typical, worst))
}

/// Rule of gradient scaling, without the history of a site.
#[pyclass(frozen, module = "gradscale")]
#[derive(Clone, Debug)]
pub struct Rule {
    preset: Preset,
    exact: Exact,
    amax: Option<Amax>,
    /// Format of the stores for which the rule decides: that of gradients.
    format: StoreFormat,
    method: String,
}

fn scaled(parts: &[(f32, i32)]) -> Vec<Scaled<f32>> {
    parts.iter().map(|&(amax, exponent)| Scaled::new(amax, exponent)).collect()
}

impl Rule {
    /// Checks that a row was counted in the format for which the rule decides.
    fn check_format(&self, row: &Stats) -> PyResult<()> {
        let (counted, format) = (format_of(&row.0), self.format);
        if counted == format {
            return Ok(());
        }
        let method = &self.method;
        Err(wrong(format!(
            "{method} decides in {format}, but the row was counted in {counted}; pass format=\"{format}\""
        )))
    }

    /// Decides by a rule that needs only the row of the values to be stored.
    fn of_row(&self, row: &Stats) -> Result<solve::Choice, solve::NoDecision> {
        let Some(amax) = self.amax else { return self.exact.decide(&row.0) };
        if row.0.counts().non_finite() != 0 {
            return Err(solve::NoDecision::NotFinite);
        }
        Ok(amax.decide_below(row.0.headroom_above().ok_or(solve::NoDecision::Empty)?))
    }
}

#[pymethods]
impl Rule {
    #[new]
    #[pyo3(signature = (method="gs"))]
    fn new(method: &str) -> PyResult<Self> {
        match method.parse::<Method>().map_err(wrong)?.scaling {
            Scaling::Gradient(gradient) => {
                let format = gradient.formats.gradient;
                let site = gradient.site_in(format);
                let (exact, amax) = (site.exact, site.amax);
                Ok(Self { preset: gradient.preset, exact, amax, format, method: method.to_owned() })
            }
            Scaling::Loss(_) => Err(wrong(format!("{method} is a loss scale; use LossScale"))),
            Scaling::Blocks(_) => {
                Err(wrong(format!("{method} decides no exponent of a tensor; the program trains with it")))
            }
        }
    }

    #[getter]
    fn method(&self) -> &str {
        &self.method
    }

    /// Decides an exponent from a row. The exact rule uses the histogram, amax the largest magnitude; other rules
    /// decide as for a cast that is no product, softmax or sum.
    fn decide(&self, row: &Stats) -> PyResult<Decision> {
        self.check_format(row)?;
        answer(match &self.preset {
            Preset::Exact | Preset::Amax => self.of_row(row),
            Preset::Paper(paper) => paper.other_cast(&row.0),
            Preset::Authors(authors) => authors.other_cast(&row.0),
        })
    }

    /// Decides the exponent of a product's data gradient, from the rows (with sums) of the incoming gradient and the
    /// weights. `terms` are the typical and the maximum number of terms in one element.
    #[pyo3(signature = (dy, w, terms, exponent=0))]
    fn decide_matmul(&self, dy: &Stats, w: &Stats, terms: (f64, f64), exponent: i32) -> PyResult<Decision> {
        let operands = Operand::from_row(&dy.0).and_then(|dy| Ok((dy, Operand::from_row(&w.0)?)));
        let terms = Terms { typical: terms.0, worst: terms.1 };
        answer(operands.and_then(|(dy, w)| match &self.preset {
            Preset::Paper(paper) => paper.product(&dy, &w, terms),
            Preset::Authors(authors) => authors.product(&dy, &w, terms, exponent),
            Preset::Exact | Preset::Amax => Err(solve::NoDecision::Detail),
        }))
    }

    /// Decides the exponent of the cast after a softmax, from a row with sums.
    fn decide_softmax_cast(&self, row: &Stats) -> PyResult<Decision> {
        self.check_format(row)?;
        answer(match &self.preset {
            Preset::Exact | Preset::Amax => self.of_row(row),
            Preset::Paper(paper) => paper.softmax_cast(&row.0),
            Preset::Authors(authors) => authors.softmax_cast(&row.0),
        })
    }

    /// Decides the exponent of a sum of gradients. Each term has its largest magnitude and its exponent; `total` is the
    /// sum's row.
    #[pyo3(signature = (parts, total))]
    fn decide_sum(&self, parts: Vec<(f32, i32)>, total: &Stats) -> PyResult<Decision> {
        self.check_format(total)?;
        answer(match &self.preset {
            Preset::Exact | Preset::Amax => self.of_row(total),
            Preset::Paper(paper) => paper.branch(&scaled(&parts), &total.0),
            Preset::Authors(authors) => authors.branch(&scaled(&parts), &total.0),
        })
    }

    /// Decides the exponent of a split tensor's gradient, from the largest magnitude and the exponent of each part.
    #[pyo3(signature = (parts, total))]
    fn decide_concat(&self, parts: Vec<(f32, i32)>, total: &Stats) -> PyResult<Decision> {
        self.check_format(total)?;
        answer(match &self.preset {
            Preset::Exact | Preset::Amax => self.of_row(total),
            Preset::Paper(paper) => paper.branch(&scaled(&parts), &total.0),
            Preset::Authors(authors) => authors.split(&scaled(&parts), &total.0),
        })
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, pyo3::types::PyType>, (String,)) {
        (py.get_type::<Self>(), (self.method.clone(),))
    }

    fn __repr__(&self) -> String {
        format!("Rule({:?})", self.method)
    }
}
