//! Mixed-precision options: a level, and layers with their own precision.

use crate::{Failure, help::heading, tasks::Network};
use clap::{Args, ValueEnum};
use gradscale::{
    Method, Scaling,
    gradscale_core::{
        amp::{Level, Precision},
        loss_scale::LossScale,
    },
};
use serde::{Deserialize, Serialize};

/// Options of all that trains. A checkpoint keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Amp {
    /// Mixed-precision level [default: O1]
    ///
    /// fp32 is always O0. The method sets the scale at every level.
    #[arg(long, value_enum, ignore_case = true, value_name = "LEVEL", alias = "level", help_heading = heading::PRECISION)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amp: Option<LevelName>,
    /// Layers that run in f32, including the layers inside them, by the names of `gradscale plan` (segnet.encoder); for
    /// O1 and O2.
    #[arg(long, value_name = "NAME", value_delimiter = ',', hide_short_help = true, help_heading = heading::PRECISION)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep_f32: Vec<String>,
    /// Layers that run in half, for any operator. If a layer is inside another listed one, its own entry applies.
    #[arg(long, value_name = "NAME", value_delimiter = ',', hide_short_help = true, help_heading = heading::PRECISION)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub half: Vec<String>,
}

/// Levels by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum LevelName {
    /// Everything in f32: the baseline, without casts. A scale has no effect.
    #[value(name = "O0")]
    O0,
    /// Products in half; exponentials, sums, softmax and losses in f32; other operators in the type of their inputs.
    /// Weights are f32.
    #[value(name = "O1")]
    O1,
    /// Weights and data in half, with f32 master weights; otherwise as O1.
    #[value(name = "O2")]
    O2,
    /// Everything in half, including losses, without master weights: weights are rounded to half after each update. May
    /// lose accuracy.
    #[value(name = "O3")]
    O3,
}

impl LevelName {
    const fn level(self) -> Level {
        match self {
            Self::O0 => Level::O0,
            Self::O1 => Level::O1,
            Self::O2 => Level::O2,
            Self::O3 => Level::O3,
        }
    }
}

impl Amp {
    /// Returns true if no mixed-precision option was given.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if the options name layers for f32 or half.
    #[must_use]
    pub const fn names_layers(&self) -> bool {
        !self.keep_f32.is_empty() || !self.half.is_empty()
    }

    fn level(&self) -> Level {
        self.amp.map_or(Level::O1, LevelName::level)
    }

    /// Returns each named layer with its precision and the option that named it.
    fn named(&self) -> impl Iterator<Item = (&'static str, &str, Precision)> {
        let single = self.keep_f32.iter().map(|layer| ("--keep-f32", layer.trim(), Precision::Single));
        single.chain(self.half.iter().map(|layer| ("--half", layer.trim(), Precision::Half)))
    }

    /// Checks that the network has the layers that the options and the methods name, and that their level allows
    /// exceptions. Each method comes with its text.
    ///
    /// # Errors
    /// A layer that there is not, or that is named twice; layers under O0 or O3.
    pub fn check<'a>(
        &self, network: Network, methods: impl IntoIterator<Item = (&'a str, &'a Method)>,
    ) -> Result<(), Failure> {
        let own = self.named().map(|(option, layer, _)| (format!("{option} {layer}"), layer.to_owned(), self.level()));
        let own: Vec<_> = own.collect();
        if let Some((place, ..)) = own
            .iter()
            .enumerate()
            .find_map(|(i, one)| own[..i].iter().any(|(_, before, _)| *before == one.1).then_some(one))
        {
            return Err(Failure::at(place, "is given twice"));
        }
        let of_method = |(text, method): (&'a str, &'a Method)| {
            let level = self.apply_to(method.clone()).amp.level();
            let layers: Vec<_> =
                method.layers.iter().map(|(layer, _)| (text.to_owned(), layer.to_owned(), level)).collect();
            layers
        };
        let named: Vec<_> = own.into_iter().chain(methods.into_iter().flat_map(of_method)).collect();
        if named.is_empty() {
            return Ok(());
        }
        let narrow = Network { width: network.width.min(8), ..network };
        let rows = network.net.task().kind().layers(narrow, Method::mixed())?;
        for (place, layer, level) in named {
            if let Level::O0 | Level::O3 = level {
                return Err(Failure::at(
                    place,
                    format!("a layer of its own precision is for O1 and O2; under {level:?} all layers have one type"),
                ));
            }
            if !rows.iter().any(|row| row.is_of(&layer)) {
                let mut names: Vec<&str> = Vec::new();
                for row in &rows {
                    if !names.contains(&row.name.as_str()) {
                        names.push(&row.name);
                    }
                }
                return Err(Failure::at(
                    place,
                    format!("{layer} is not a layer of this network; the layers are {}", names.join(", ")),
                ));
            }
        }
        Ok(())
    }

    /// Returns a method with this level and these layers, where they were given; a method all in f32 stays so.
    #[must_use]
    pub fn apply_to(&self, method: Method) -> Method {
        if is_fp32(&method) {
            return method;
        }
        let method = match self.amp {
            Some(level) => method.with_level(level.level()),
            None => method,
        };
        self.named().fold(method, |method, (_, layer, precision)| method.with_layer(layer, precision))
    }

    /// Applies the settings to the only method of a command.
    ///
    /// # Errors
    /// Layers in half with a level that is f32 everywhere.
    pub fn only(&self, method: Method) -> Result<Method, Failure> {
        let contradicts = self.names_layers() || self.level() != Level::O0 && self.amp.is_some();
        if is_fp32(&method) && contradicts {
            return Err(Failure::at("--amp", "fp32 means all f32 (O0); choose another method"));
        }
        Ok(self.apply_to(method))
    }

    /// Returns a sentence about the settings, if any were given.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        let layers = self.named().map(|(_, layer, precision)| format!(", {layer} in {precision}"));
        (!self.is_default()).then(|| format!("Mixed precision {:?}{}.", self.level(), layers.collect::<String>()))
    }
}

/// Returns true if the method is plain f32 without a loss scale.
fn is_fp32(method: &Method) -> bool {
    method.amp.level() == Level::O0 && method.scaling == Scaling::Loss(LossScale::None)
}
