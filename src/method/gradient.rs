//! Parser and formatter of gradient scaling.

use super::{
    ForwardScaling, GradientScaling, Preset, SharedLayers, StoreFormats, formats,
    options::{Options, Text},
};
use gradscale_core::{
    site::{Memory, Site, SiteConfig},
    solve::{Amax, ConfigError, Paper},
};

/// Default flush threshold γ′ of the rules, that of the paper.
const GAMMA: f64 = 1e-3;

pub(super) fn parse(mut options: Options<'_>) -> Result<GradientScaling, String> {
    let rule = |error: ConfigError| error.to_string();
    let preset = options.first.unwrap_or("exact");
    let gamma = options.read("gamma", "a share between 0 and 1")?.unwrap_or(GAMMA);
    let mut scaling = match preset {
        "exact" => {
            let mut scaling = GradientScaling::exact();
            scaling.site.exact = scaling.site.exact.with_gamma(gamma).map_err(rule)?;
            scaling
        }
        "paper" => GradientScaling::paper(gamma).map_err(rule)?,
        "paper-literal" => {
            let preset = Preset::Paper(Paper::new(gamma).map_err(rule)?.literal());
            GradientScaling::without_forward(preset, SiteConfig::paper())
        }
        "authors" => GradientScaling::authors(gamma).map_err(rule)?,
        other => return Err(format!("{other} is not a preset; choose exact, paper, paper-literal or authors")),
    };
    match options.read("interval", "a whole number of steps from 1")? {
        Some(0) => return Err(ConfigError::Interval.to_string()),
        Some(interval) => scaling.site.interval = interval,
        None => {}
    }
    common(&mut scaling, &mut options)?;
    let site = &mut scaling.site;
    if preset != "exact" {
        formats::refuse(&mut options, &format!("does not go with gs:{preset}, whose numbers are those of FP16"))?;
        options.end(preset, "gamma, interval, calls")?;
        return Ok(scaling);
    }
    if let Some(window) = options.read("window", "a whole number from 0 to 30")? {
        site.exact = site.exact.with_window(window).map_err(rule)?;
    }
    if let Some(room) = options.read("room", "a whole number from 2 to 30")? {
        site.exact = site.exact.with_headroom(room).map_err(rule)?;
    }
    site.memory = match options.take("history") {
        None => site.memory,
        Some("0") => Memory::None,
        Some("least" | "1") => Memory::Least,
        Some("ring") => Memory::Ring,
        Some(other) => return Err(format!("history must be ring, least or 0, not {other}")),
    };
    site.outliers = match options.read("outliers", "a whole number from 8 to 100")? {
        Some(bits) if !(8..=100).contains(&bits) => return Err(ConfigError::Outliers(bits).to_string()),
        bits => bits,
    };
    if site.outliers.is_some() && site.memory != Memory::Ring {
        return Err("outliers need history=ring".to_owned());
    }
    scaling.formats = formats::parse(&mut options)?;
    scaling.products = formats::parse_products(&mut options, scaling.formats)?;
    scaling.forward = match options.take("forward") {
        None => default_forward(&scaling),
        Some("off") => ForwardScaling::Off,
        Some("repeat") => ForwardScaling::Repeat,
        Some("on") => ForwardScaling::On,
        Some(other) => return Err(format!("forward must be on, repeat or off, not {other}")),
    };
    if scaling.formats.scales_forward() && scaling.forward != ForwardScaling::On {
        return Err("activations and weights in 8 bits need forward=on, which they imply: leave forward out".to_owned());
    }
    if scaling.forward != ForwardScaling::Off && !scaling.repeats() {
        return Err("exponents of forward stores need history=ring, which repeats batches".to_owned());
    }
    check_formats(&scaling)?;
    options.end(
        "exact",
        "gamma, interval, calls, window, room, history, outliers, forward, format, grad, act, weight, products",
    )?;
    Ok(scaling)
}

/// Returns the default of `forward` for a rule: exponents from the first step on for 8-bit formats, and otherwise that of
/// gradient scaling if the rule repeats batches.
fn default_forward(scaling: &GradientScaling) -> ForwardScaling {
    match (scaling.formats.scales_forward(), scaling.repeats()) {
        (true, _) => ForwardScaling::On,
        (false, true) => GradientScaling::exact().forward,
        (false, false) => ForwardScaling::Off,
    }
}

/// Checks that the rule can decide in the formats of its sites.
fn check_formats(scaling: &GradientScaling) -> Result<(), String> {
    let StoreFormats { gradient, activation, weight } = scaling.formats;
    let check = |format| Site::new(scaling.site_in(format)).map_err(|error| error.to_string());
    [gradient, activation, weight].into_iter().try_for_each(|format| check(format).map(drop))
}

/// Parses the options that all rules of gradient scaling have.
fn common(scaling: &mut GradientScaling, options: &mut Options<'_>) -> Result<(), String> {
    scaling.shared = match options.take("calls") {
        None | Some("merged") => SharedLayers::Merged,
        Some("each") => SharedLayers::Each,
        Some(other) => return Err(format!("calls must be merged or each, not {other}")),
    };
    if options.take("wgrad").is_some() {
        return Err("wgrad needs a loss scale, because weight gradients are f32 under gradient scaling".to_owned());
    }
    Ok(())
}

/// Parses the method `amax`, per-tensor scales from largest magnitudes: `amax:history=16,margin=1`.
pub(super) fn parse_amax(mut options: Options<'_>) -> Result<GradientScaling, String> {
    if let Some(word) = options.first {
        return Err(format!("{word} is not option=value"));
    }
    let history = options.read("history", "a whole number of steps from 0 to 16")?.unwrap_or(0);
    let margin = options.read("margin", "a whole number of binades from 0 to 30")?.unwrap_or(0);
    let mut scaling = GradientScaling::amax(Amax::new(history, margin).map_err(|error| error.to_string())?);
    common(&mut scaling, &mut options)?;
    scaling.formats = formats::parse(&mut options)?;
    scaling.products = formats::parse_products(&mut options, scaling.formats)?;
    scaling.forward = default_forward(&scaling);
    check_formats(&scaling)?;
    options.end("amax", "history, margin, calls, format, grad, act, weight, products")?;
    Ok(scaling)
}

/// Formats per-tensor scales for [`parse_amax`]. A site that a caller configured may lack the `amax` settings; it
/// decides by histograms.
fn amax_text(scaling: &GradientScaling) -> Text {
    let mut text = Text("amax".to_owned());
    if let Some(amax) = scaling.site.amax {
        text.unless(0, "history", amax.history(), amax.history());
        text.unless(0, "margin", amax.margin(), amax.margin());
    }
    formats::text(&mut text, scaling.formats, scaling.products);
    text.unless(SharedLayers::Merged, "calls", scaling.shared, "each");
    text
}

pub(super) fn text(scaling: &GradientScaling) -> Text {
    let GradientScaling { preset, site, formats, products, shared, forward } = scaling;
    let (name, gamma, usual) = match preset {
        Preset::Amax => return amax_text(scaling),
        Preset::Exact => ("gs", f64::from(site.exact.ppm()) / 1e6, SiteConfig::exact()),
        Preset::Paper(paper) if paper.is_literal() => ("gs:paper-literal", paper.gamma(), SiteConfig::paper()),
        Preset::Paper(paper) => ("gs:paper", paper.gamma(), SiteConfig::paper()),
        Preset::Authors(authors) => ("gs:authors", authors.gamma(), SiteConfig::paper()),
    };
    let mut text = Text(name.to_owned());
    text.unless(GAMMA, "gamma", gamma, gamma);
    text.unless(usual.interval, "interval", site.interval, site.interval);
    if *preset == Preset::Exact {
        text.unless(usual.exact.window(), "window", site.exact.window(), site.exact.window());
        text.unless(usual.exact.headroom(), "room", site.exact.headroom(), site.exact.headroom());
        let memory = match site.memory {
            Memory::None => "0",
            Memory::Least => "least",
            Memory::Ring => "ring",
        };
        text.unless(usual.memory, "history", site.memory, memory);
        if let Some(bits) = site.outliers {
            text.push("outliers", bits);
        }
        formats::text(&mut text, *formats, *products);
        let word = match forward {
            ForwardScaling::Off => "off",
            ForwardScaling::Repeat => "repeat",
            ForwardScaling::On => "on",
        };
        text.unless(default_forward(scaling), "forward", *forward, word);
    }
    text.unless(SharedLayers::Merged, "calls", *shared, "each");
    text
}
