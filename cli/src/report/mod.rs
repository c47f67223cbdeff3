//! `report.html`: results of a training or a comparison for readers. It is one file, without scripts and without access
//! to the network; colours follow the reader's light or dark mode.

mod activations;
pub(crate) mod axis;
mod curves;
mod events;
mod histogram;
mod overview;
pub(crate) mod page;
pub(crate) mod plot;
mod png;
mod range;
mod ranks;
mod samples;
mod scales;
pub(crate) mod series;
mod svg;
pub(crate) mod text;
mod underflow;

#[cfg(test)]
mod tests;

use crate::{
    machine::Origin,
    record::{Record, SiteSeries, gradients::threshold},
    tasks::Dataset,
};
use serde_json::Value;

/// Content of a report page, from which its HTML is written.
#[derive(Debug)]
pub struct Report<'a> {
    /// Title of the page: network and data.
    pub title: String,
    /// Subject of the verdict: the network and how its loss is divided.
    pub subject: String,
    /// Explanation of what the runs show; may be empty.
    pub about: &'static str,
    /// Settings, program and machine of the runs, as a sentence.
    pub circumstances: String,
    /// Sentence that comes before all others, for example that runs are missing.
    pub notice: Option<String>,
    /// Names of the methods, in the order of their colours.
    pub methods: Vec<&'a str>,
    /// Records of the runs, by method and seed, as far as they exist.
    pub runs: &'a [&'a Record],
    /// Data set; `None` for a trace, which has sites but no loss and scores.
    pub data: Option<&'a dyn Dataset>,
    pub origin: &'a Origin,
    pub arguments: Value,
}

/// Returns the HTML page of a training or a comparison: the first report, and the others for comparison.
pub fn html(reports: &[Report<'_>]) -> String {
    let Some((report, beside)) = reports.split_first() else { return String::new() };
    let notice = report.notice.as_ref().map(|notice| format!("<p class=\"failure\">{}</p>\n", text::escape(notice)));
    let mut sections =
        vec![notice.unwrap_or_default(), overview::first_screen(report), overview::after_first_screen(report)];
    sections.extend(report.data.map(|_| overview::summary(report)));
    sections.extend(beside.iter().map(overview::beside));
    sections.extend([
        report.data.map_or_else(String::new, |data| curves::section_of(report, data)),
        scales::section_of(report),
        underflow::section_of(report),
        activations::section_of(report),
        histogram::section_of(report),
        range::section_of(report),
        events::section_of(report),
        ranks::section_of(report),
        report.data.map_or_else(String::new, |data| samples::section_of(report, data)),
        page::arguments(report.origin, &report.arguments),
    ]);
    page::page(&report.title, &sections)
}

impl Report<'_> {
    /// Returns the HTML page that contains only this report.
    pub fn html(&self) -> String {
        html(std::slice::from_ref(self))
    }

    /// Returns the records of all runs of a method.
    fn runs_of(&self, method: &str) -> impl Iterator<Item = &Record> {
        self.runs.iter().copied().filter(move |run| run.method == method)
    }

    /// Returns the methods of the report, each with the CSS class of its colour.
    fn coloured(&self) -> impl Iterator<Item = (&str, String)> {
        self.methods.iter().enumerate().map(|(i, method)| (*method, format!("m{}", i % 8)))
    }

    /// Returns the methods that have cast sites and runs.
    fn with_sites(&self) -> impl Iterator<Item = (&str, String)> {
        self.coloured().filter(|(method, _)| self.runs_of(method).any(|run| !run.sites.is_empty()))
    }

    /// Returns the methods of gradient scaling, which have a scale for every site.
    fn gradient_scaling(&self) -> impl Iterator<Item = (&str, String)> {
        self.with_sites().filter(|(method, _)| threshold(method).is_some())
    }

    /// Returns the names of all cast sites in the order of the network, the input's first: as they come they run from
    /// the loss.
    fn sites(&self) -> Vec<&str> {
        let most = self.runs.iter().max_by_key(|run| run.sites.len());
        most.map_or_else(Vec::new, |run| run.sites.iter().rev().map(|site| site.name.as_str()).collect())
    }
}

/// Returns the series of a cast site in a run, by the site's name.
fn site<'a>(run: &'a Record, name: &str) -> Option<&'a SiteSeries> {
    run.sites.iter().find(|site| site.name == name)
}
