//! SegNetBasic.

use gradscale::{Parameter, Parameters, models::SegNet};

/// The network with its parameters, first values by `seed`, and the weights of the loss.
#[must_use]
pub fn network(seed: u64, width: usize, class_weights: &[f32]) -> (Parameters, SegNet, Parameter) {
    let classes = class_weights.len();
    let mut parameters = Parameters::seeded(seed);
    let net = SegNet::new(&mut parameters.at("segnet"), 3, width, classes);
    let weights = parameters.at("loss").constant("weights", [classes], class_weights);
    (parameters, net, weights)
}
