//! Methods in checkpoints: every setting by its name in a method's text.

use super::{
    BlockScaling, ForwardScaling, GradientScaling, Layers, Method, Preset, Products, Scaling, SharedLayers,
    StoreFormats, exceptions, schedule,
};
use crate::configuration::Configuration;
use gradscale_core::{
    amp::AmpPolicy,
    block_format::ScaleRounding,
    site::{Calls, Memory, SiteConfig, When},
    store_format::StoreFormat,
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
        Scaling::Loss(schedule) => schedule::save(&mut all, schedule),
        Scaling::Gradient(gradient) => gradient_scaling(&mut all, gradient),
        Scaling::Blocks(blocks) => block_scaling(&mut all, *blocks),
    }
    all
}

fn gradient_scaling(all: &mut Configuration, gradient: &GradientScaling) {
    let GradientScaling { preset, site, formats, products, shared, forward } = gradient;
    let SiteConfig { interval, when, calls, memory, outliers, exact, amax, format: _ } = site;
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
    all.set("room", exact.headroom());
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
    // Without exponents of forward stores, or with those that only an overflow creates, everything is as before they
    // existed. So checkpoints of that time, and those of `forward=off`, can be resumed with the default: the method of the
    // resumed training decides what an overflow does.
    if *forward == ForwardScaling::On {
        all.set("forward", "on");
    }
    // Checkpoints from before formats have no such settings, and are of this one.
    store_formats(all, *formats);
    if *products == Products::EightBits {
        all.set("products", "fp8");
    }
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

fn block_scaling(all: &mut Configuration, blocks: BlockScaling) {
    all.set("scaling", "block");
    all.set("size", blocks.size());
    // Checkpoints from before there was a choice have no such setting.
    if blocks.scale_rounding() == ScaleRounding::Up {
        all.set("scale", "up");
    }
    store_formats(all, blocks.formats());
}

/// Sets the formats of stores that are not FP16.
fn store_formats(all: &mut Configuration, formats: StoreFormats) {
    let StoreFormats { gradient, activation, weight } = formats;
    for (name, format) in [("grad", gradient), ("act", activation), ("weight", weight)] {
        if format != StoreFormat::Fp16 {
            all.set(name, format.name());
        }
    }
}

/// Returns the text of a rule in checkpoints of formats 1 and 2. It never changes: rules that existed before repeats
/// keep their texts of that time.
pub(crate) fn before(gradient: &GradientScaling) -> String {
    let GradientScaling { preset, site, formats, products: _, shared, forward: _ } = gradient;
    // The amax rule did not exist then, and its preset distinguishes it from all rules of that time.
    let SiteConfig { interval, when, calls, memory, outliers, exact, amax: _, format: _ } = site;
    let shared = match shared {
        SharedLayers::Merged => "",
        SharedLayers::Each => ", shared: Each",
    };
    let memory = match memory {
        Memory::None => "amax_history: false".to_owned(),
        Memory::Least => "amax_history: true".to_owned(),
        Memory::Ring => format!("memory: Ring, outliers: {outliers:?}"),
    };
    // No rule of that time had another format, so its text is never the same. Units of products belong to such a format.
    let formats = if *formats == StoreFormats::default() { String::new() } else { format!(", {formats:?}") };
    format!(
        "GradientScaling {{ preset: {preset:?}, site: SiteConfig {{ interval: {interval}, when: {when:?}, \
         calls: {calls:?}, {memory}, exact: {exact:?} }}{shared}{formats} }}"
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
