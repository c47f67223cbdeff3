//! SegNetBasic, and SegNet in full.

use crate::tasks::{Net, Network};
use gradscale::{
    Parameter, Parameters, Var,
    models::{SegNet, SegNetVgg},
    nn::Module,
};

/// Network that classifies pixels: SegNetBasic or SegNet.
#[derive(Debug)]
pub enum Pixelwise {
    Basic(SegNet),
    Full {
        net: SegNetVgg,
        /// True if inputs are raw bytes, which must be scaled for the initial weights.
        bytes: bool,
    },
}

impl Module for Pixelwise {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        match self {
            Self::Basic(net) => net.forward(x),
            Self::Full { net, bytes: true } => net.forward(x.affine(1.0 / 64.0, -2.0)),
            Self::Full { net, bytes: false } => net.forward(x),
        }
    }
}

/// Creates a segmentation network with parameters initialised by `seed`, and the loss's class weights. Its input is
/// bytes, or the normalised values that a PyTorch model reads.
#[must_use]
pub fn network(seed: u64, network: Network, bytes: bool, class_weights: &[f32]) -> (Parameters, Pixelwise, Parameter) {
    let classes = class_weights.len();
    let mut parameters = Parameters::seeded(seed);
    let scope = &mut parameters.at("segnet");
    let net = if network.net == Net::Segnet {
        Pixelwise::Full { net: SegNetVgg::new(scope, 3, network.scale(), classes), bytes }
    } else {
        Pixelwise::Basic(SegNet::new(scope, 3, network.width, classes))
    };
    let weights = parameters.at("loss").constant("weights", [classes], class_weights);
    (parameters, net, weights)
}
