//! Replay of traces under other schedules and rules.

use crate::wrong;
use gradscale::{
    Method,
    replay::{self, Played, Summary},
};
use pyo3::{prelude::*, types::PyDict};
use std::{
    fs::File,
    io::{self, BufReader},
    path::PathBuf,
};

/// Replays the trace in a file under `method`. Returns the attempts that would have been made, and a summary.
#[pyfunction]
#[pyo3(name = "replay", signature = (path, method=None))]
pub fn play<'py>(py: Python<'py>, path: PathBuf, method: Option<&str>) -> PyResult<Bound<'py, PyDict>> {
    let at = |cause: String| wrong(format!("{}: {cause}", path.display()));
    let given = method.map(|text| text.parse::<Method>().map_err(wrong)).transpose()?;
    let file =
        File::open(&path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let (name, played, summary) = py.detach(|| {
        let mut steps = replay::parse(BufReader::new(file)).map_err(at)?;
        let recorded = steps.iter().find_map(|step| step.method.clone());
        let (name, method) = match (method, given, recorded) {
            (Some(name), Some(method), _) => (name.to_owned(), method),
            (_, _, Some(name)) => {
                let method = name.parse().map_err(|error: gradscale::MethodError| at(error.to_string()))?;
                (name, method)
            }
            (_, _, None) => return Err(at("does not record its method; pass one".to_owned())),
        };
        replay::keep_weights(&mut steps, method.weight_gradients).map_err(at)?;
        let (played, summary) = replay::play(method.scaling, &steps).map_err(at)?;
        PyResult::Ok((name, played, summary))
    })?;
    let result = PyDict::new(py);
    result.set_item("method", name)?;
    result.set_item("skipped", summary.skipped)?;
    result.set_item("repeats", summary.repeats)?;
    result.set_item("steps", steps(py, &played)?)?;
    result.set_item("sites", sites(py, &summary)?)?;
    Ok(result)
}

fn steps<'py>(py: Python<'py>, played: &[Played]) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let step = |played: &Played| {
        let step = PyDict::new(py);
        step.set_item("iteration", played.iteration)?;
        step.set_item("skipped", played.skipped)?;
        step.set_item("repeated", played.repeated)?;
        let sites = played.sites.iter().map(|seen| {
            let site = PyDict::new(py);
            site.set_item("name", &seen.name)?;
            site.set_item("exponent", seen.alpha)?;
            site.set_item("next", seen.next)?;
            site.set_item("flushed", seen.gamma)?;
            site.set_item("subnormal", seen.subnormal_share)?;
            Ok(site)
        });
        step.set_item("sites", sites.collect::<PyResult<Vec<_>>>()?)?;
        Ok(step)
    };
    played.iter().map(step).collect()
}

fn sites<'py>(py: Python<'py>, summary: &Summary) -> PyResult<Bound<'py, PyDict>> {
    let sites = PyDict::new(py);
    for (name, total) in &summary.sites {
        let site = PyDict::new(py);
        let mean = |sum: f64| sum / total.steps.max(1) as f64;
        site.set_item("first", total.first)?;
        site.set_item("last", total.last)?;
        site.set_item("steps", total.steps)?;
        site.set_item("flushed", mean(total.flushed))?;
        site.set_item("flushed_worst", total.worst)?;
        site.set_item("subnormal", mean(total.subnormal))?;
        sites.set_item(name, site)?;
    }
    Ok(sites)
}
