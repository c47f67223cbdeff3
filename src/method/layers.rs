//! Layers by name that run in another precision than their operator's list says.

use gradscale_core::amp::Precision;

/// Layers that run in f32, or in half, whatever list their operators are on: `net.encoder` is all that is in it, as
/// `net.encoder.conv1` and `net.encoder.conv1/relu`. Of several that fit, the longest name counts.
///
/// As the lists of a policy they count under O1 and O2; under O0 and O3 all is of one type. A name that nothing has
/// changes nothing: [`Trainer::plan`](crate::Trainer::plan) shows what there is, and what became of it.
///
/// ```
/// use gradscale::{Layers, core::amp::Precision};
/// let mut layers = Layers::none();
/// layers.set("net.encoder", Precision::Single);
/// layers.set("net.encoder.conv2", Precision::Half);
/// assert_eq!(layers.precision_of("net.encoder.conv1"), Some(Precision::Single));
/// assert_eq!(layers.precision_of("net.encoder.conv2"), Some(Precision::Half));
/// assert_eq!(layers.precision_of("net.encoders"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers(Vec<(String, Precision)>);

impl Layers {
    /// No layer is an exception.
    #[must_use]
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Makes a layer run in that precision.
    pub fn set(&mut self, layer: &str, precision: Precision) {
        // By name, so that exceptions said in another order are the same.
        match self.0.binary_search_by(|(known, _)| known.as_str().cmp(layer)) {
            Ok(known) => self.0[known].1 = precision,
            Err(place) => self.0.insert(place, (layer.to_owned(), precision)),
        }
    }

    /// Each layer that is an exception, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Precision)> {
        self.0.iter().map(|(layer, precision)| (layer.as_str(), *precision))
    }

    /// The precision of an operator of that name, if it is an exception.
    #[must_use]
    pub fn precision_of(&self, name: &str) -> Option<Precision> {
        let fitting = self.0.iter().filter(|(layer, _)| is_of(name, layer));
        fitting.max_by_key(|(layer, _)| layer.len()).map(|(_, precision)| *precision)
    }
}

/// Whether an operator is a layer's, or in it.
pub(crate) fn is_of(name: &str, layer: &str) -> bool {
    name.strip_prefix(layer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '/']))
}
