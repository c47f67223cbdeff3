//! Methods in checkpoints: every setting by its name in a method's text.

use super::{GradientScaling, Layers, Method, Preset, Scaling, SharedLayers, exceptions};
use crate::configuration::Configuration;
use gradscale_core::{
    amp::AmpPolicy,
    loss_scale::{Bounds, DelayedConfig, Dynamic, DynamicConfig, Hysteresis, LogMaxConfig, LossScale},
    site::{Calls, Memory, SiteConfig, When},
};

/// Returns the settings of a method: the policy with its exceptions, the scaling, and the type of weight gradients.
pub(crate) fn configuration(method: &Method) -> Configuration {
    let Method { amp, layers, scaling, weight_gradients } = method;
    let mut all = self::scaling(scaling);
    policy(&mut all, amp, layers);
    all.set("wgrad", weight_gradients.to_string());
    all
}

fn policy(all: &mut Configuration, amp: &AmpPolicy, layers: &Layers) {
    all.set("amp", format!("{:?}", amp.level()));
    for (op, list) in exceptions(amp) {
        all.set(format!("list of {op}"), list.to_string());
    }
    for (layer, precision) in layers.iter() {
        all.set(format!("precision of {layer}"), precision.to_string());
    }
}

/// Returns the settings of a loss scale in its initial state, or of a rule.
pub(crate) fn scaling(scaling: &Scaling) -> Configuration {
    let mut all = Configuration::default();
    match scaling {
        Scaling::Loss(schedule) => loss_scale(&mut all, schedule),
        Scaling::Gradient(gradient) => gradient_scaling(&mut all, gradient),
    }
    all
}

fn loss_scale(all: &mut Configuration, schedule: &LossScale) {
    let kind = match schedule {
        LossScale::None | LossScale::Gradient => "none",
        LossScale::Fixed(fixed) => {
            all.set("scale", format!("2^{}", fixed.exponent()));
            "fixed"
        }
        LossScale::Dynamic(dynamic) => {
            dynamic_scale(all, dynamic);
            "dynamic"
        }
        LossScale::LogMax(log_max) => {
            let LogMaxConfig { mean_decay, spread_decay, quantile, ceiling, bounds: limits } = *log_max.config();
            all.set("mean", mean_decay);
            all.set("spread", spread_decay);
            all.set("quantile", quantile);
            all.set("ceiling", ceiling);
            bounds(all, limits);
            "logmax"
        }
        LossScale::Chainer(chainer) => {
            all.set("interval", chainer.interval());
            bounds(all, chainer.bounds());
            "dynamic:N"
        }
        LossScale::Delayed(delayed) => {
            let DelayedConfig { history, margin, bounds: limits } = *delayed.config();
            all.set("history", history);
            all.set("margin", margin);
            bounds(all, limits);
            "delayed"
        }
    };
    all.set("scaling", kind);
}

fn dynamic_scale(all: &mut Configuration, dynamic: &Dynamic) {
    let DynamicConfig { start, growth, backoff, interval, bounds: limits, hysteresis, tolerance_ppm, floor } =
        dynamic.config();
    all.set("init", *start);
    all.set("growth", *growth);
    all.set("backoff", *backoff);
    all.set("interval", *interval);
    bounds(all, *limits);
    all.set(
        "hysteresis",
        match hysteresis {
            Hysteresis::None => "none".to_owned(),
            Hysteresis::Cumulative(count) => format!("cumulative:{count}"),
            Hysteresis::Consecutive(count) => format!("consecutive:{count}"),
        },
    );
    all.set("tolerance", f64::from(*tolerance_ppm) / 1e6);
    let steps = floor.steps().iter().map(|(step, exponent)| format!("{step}:2^{exponent}"));
    all.set("floor", steps.collect::<Vec<_>>());
}

fn bounds(all: &mut Configuration, bounds: Bounds) {
    all.set("least", bounds.least());
    all.set("most", bounds.most());
}

fn gradient_scaling(all: &mut Configuration, gradient: &GradientScaling) {
    let GradientScaling { preset, site, shared } = gradient;
    let SiteConfig { interval, when, calls, memory, outliers, exact, amax } = site;
    let exact_gamma = f64::from(exact.ppm()) / 1e6;
    let (name, gamma) = match preset {
        Preset::Exact => ("gs:exact", exact_gamma),
        Preset::Amax => ("amax", exact_gamma),
        Preset::Paper(paper) if paper.is_literal() => ("gs:paper-literal", paper.gamma()),
        Preset::Paper(paper) => ("gs:paper", paper.gamma()),
        Preset::Authors(authors) => ("gs:authors", authors.gamma()),
    };
    all.set("scaling", name);
    all.set("gamma", gamma);
    all.set("interval", *interval);
    all.set("window", exact.window());
    all.set("room", exact.room());
    all.set(
        "history",
        match memory {
            Memory::None => "0",
            Memory::Least => "least",
            Memory::Ring => "ring",
        },
    );
    all.set("outliers", *outliers);
    if let Some(amax) = amax {
        all.set("history", amax.history());
        all.set("margin", amax.margin());
    }
    all.set(
        "calls",
        match shared {
            SharedLayers::Merged => "merged",
            SharedLayers::Each => "each",
        },
    );
    // Settings that no text can express, because a caller configured the site.
    if !preset.decides_from_rows() {
        all.set("gamma of sites", exact_gamma);
    }
    all.set(
        "decides",
        match when {
            When::Between => "between steps",
            When::AtOnce => "at once",
        },
    );
    all.set(
        "sites",
        match calls {
            Calls::One => "of one call",
            Calls::Several => "of several calls",
        },
    );
}

/// Returns the text of a rule in checkpoints of formats 1 and 2. It never changes: rules that existed before repeats
/// keep their texts of that time.
pub(crate) fn before(gradient: &GradientScaling) -> String {
    let GradientScaling { preset, site, shared } = gradient;
    // The amax rule did not exist then, and its preset distinguishes it from all rules of that time.
    let SiteConfig { interval, when, calls, memory, outliers, exact, amax: _ } = site;
    let shared = match shared {
        SharedLayers::Merged => "",
        SharedLayers::Each => ", shared: Each",
    };
    let memory = match memory {
        Memory::None => "amax_history: false".to_owned(),
        Memory::Least => "amax_history: true".to_owned(),
        Memory::Ring => format!("memory: Ring, outliers: {outliers:?}"),
    };
    format!(
        "GradientScaling {{ preset: {preset:?}, site: SiteConfig {{ interval: {interval}, when: {when:?}, \
         calls: {calls:?}, {memory}, exact: {exact:?} }}{shared} }}"
    )
}

/// Returns the options by which a rule of formats 1 and 2 differs from this one, if it differs only in its history.
pub(crate) fn other_memory(gradient: &GradientScaling, saved: &str) -> Option<&'static str> {
    let site = gradient.site;
    let with = |memory: Memory| GradientScaling { site: SiteConfig { memory, outliers: None, ..site }, ..*gradient };
    let all = [(Memory::None, "history=0"), (Memory::Least, "history=least"), (Memory::Ring, "history=ring")];
    all.into_iter().find(|&(memory, _)| before(&with(memory)) == saved).map(|(_, options)| options)
}

#[cfg(test)]
mod tests;
