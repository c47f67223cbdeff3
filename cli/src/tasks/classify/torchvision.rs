//! Torchvision's networks, by the names of their layers.

use crate::tasks::{Net, Network, Reads, Recognised, Task, torch};
use safetensors::SafeTensors;

/// A network, with a tensor that it alone of all has beside those before it, and its first and last weights.
const NETWORKS: [(Net, &str, &str, &str); 7] = [
    (Net::InceptionV3, "Mixed_7c.branch_pool.conv.weight", "Conv2d_1a_3x3.conv.weight", "fc.weight"),
    (Net::InceptionV2, "inception3c.branch2.0.conv.weight", "conv1.conv.weight", "fc.weight"),
    (Net::GoogLeNet, "inception3a.branch1.conv.weight", "conv1.conv.weight", "fc.weight"),
    (Net::ResNet50, "layer1.0.conv3.weight", "conv1.weight", "fc.weight"),
    (Net::ResNet18, "layer1.0.conv2.weight", "conv1.weight", "fc.weight"),
    (Net::Vgg16, "features.28.weight", "features.0.weight", "classifier.6.weight"),
    (Net::AlexNet, "features.10.weight", "features.0.weight", "classifier.6.weight"),
];

/// The network of a file.
pub fn recognise(file: &SafeTensors<'_>) -> Option<Recognised> {
    let (net, _, first, last) = NETWORKS.into_iter().find(|(_, own, ..)| file.tensor(own).is_ok())?;
    let [first, last] = torch::sizes(file, first, last);
    let (&[outputs, channels, rows, _], &[classes, _]) = (&first[..], &last[..]) else { return None };
    // Of the paper's 64 parts; Inception v3's first layer has 32.
    let width = if net == Net::InceptionV3 { 2 * outputs } else { outputs };
    let small = match net {
        Net::AlexNet => rows == 5,
        // Nothing in its convolutions tells: what its first linear layer reads does.
        Net::Vgg16 => torch::sizes(file, "classifier.0.weight", "")[0].get(1) == Some(&(8 * width)),
        Net::InceptionV3 => file.tensor("AuxLogits.fc.weight").is_err(),
        Net::GoogLeNet | Net::InceptionV2 | Net::ResNet18 | Net::ResNet50 => rows == 3,
        Net::Mlp
        | Net::Resnet
        | Net::Towers
        | Net::SegnetBasic
        | Net::Segnet
        | Net::DeepSpeech2
        | Net::Dcgan
        | Net::Seq2Seq1
        | Net::Seq2Seq3
        | Net::Seq2Seq5
        | Net::BigLstm
        | Net::Decoder
        | Net::Ssd300
        | Net::Ssd512 => return None,
    };
    let network = Network { net, width, small };
    Some(Recognised { task: Task::Classify, network, classes, input: Reads::Channels(channels), whole: true })
}
