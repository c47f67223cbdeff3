//! Layers by name that run in another precision than that of their operator's list.

use gradscale_core::amp::Precision;

/// Layers that run in f32, or in half, whatever the list of their operators. `net.encoder` includes everything inside
/// it, for example `net.encoder.conv1` and `net.encoder.conv1/relu`. If several names match, the longest counts.
///
/// Like the lists of a policy they apply under O1 and O2; under O0 and O3 everything has one type. A name without a
/// layer has no effect. [`Trainer::plan`](crate::Trainer::plan) shows the layers and their precision.
///
/// ```
/// use gradscale::{Layers, gradscale_core::amp::Precision};
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
    /// Creates an empty set of layers with their own precision.
    #[must_use]
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Sets the precision of a layer, which differs from the policy's.
    pub fn set(&mut self, layer: &str, precision: Precision) {
        // Sorted by name, so that the order of calls makes no difference.
        match self.0.binary_search_by(|(known, _)| known.as_str().cmp(layer)) {
            Ok(known) => self.0[known].1 = precision,
            Err(place) => self.0.insert(place, (layer.to_owned(), precision)),
        }
    }

    /// Returns each layer that is an exception with its precision, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Precision)> {
        self.0.iter().map(|(layer, precision)| (layer.as_str(), *precision))
    }

    /// Returns the precision of an operator of that name, if it is an exception.
    #[must_use]
    pub fn precision_of(&self, name: &str) -> Option<Precision> {
        let fitting = self.0.iter().filter(|(layer, _)| is_of(name, layer));
        fitting.max_by_key(|(layer, _)| layer.len()).map(|(_, precision)| *precision)
    }
}

/// Returns true if an operator's name is that of the layer, or of a part of it.
pub(crate) fn is_of(name: &str, layer: &str) -> bool {
    name.strip_prefix(layer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '/']))
}
