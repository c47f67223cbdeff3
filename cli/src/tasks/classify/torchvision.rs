//! Torchvision's networks, by the names of their layers.

use crate::tasks::{DetectedNetwork, InputSpec, Network, Task, torch};
use gradscale::models::Architecture;
use safetensors::SafeTensors;

/// Networks of torchvision, each with a tensor that tells it from those after it, and its first and last weights.
const NETWORKS: [(Architecture, &str, &str, &str); 7] = [
    (Architecture::InceptionV3, "Mixed_7c.branch_pool.conv.weight", "Conv2d_1a_3x3.conv.weight", "fc.weight"),
    (Architecture::InceptionV2, "inception3c.branch2.0.conv.weight", "conv1.conv.weight", "fc.weight"),
    (Architecture::GoogLeNet, "inception3a.branch1.conv.weight", "conv1.conv.weight", "fc.weight"),
    (Architecture::ResNet50, "layer1.0.conv3.weight", "conv1.weight", "fc.weight"),
    (Architecture::ResNet18, "layer1.0.conv2.weight", "conv1.weight", "fc.weight"),
    (Architecture::Vgg16, "features.28.weight", "features.0.weight", "classifier.6.weight"),
    (Architecture::AlexNet, "features.10.weight", "features.0.weight", "classifier.6.weight"),
];

/// Recognises a network of torchvision by the tensors in its file.
pub fn recognise(file: &SafeTensors<'_>) -> Option<DetectedNetwork> {
    let (architecture, _, first, last) = NETWORKS.into_iter().find(|(_, own, ..)| file.tensor(own).is_ok())?;
    let [first, last] = torch::sizes(file, first, last);
    let (&[outputs, channels, rows, _], &[classes, _]) = (&first[..], &last[..]) else { return None };
    // Of the paper's 64 parts; Inception v3's first layer has 32.
    let width = if architecture == Architecture::InceptionV3 { 2 * outputs } else { outputs };
    let small = match architecture {
        Architecture::AlexNet => rows == 5,
        // Its convolutions do not distinguish it, but the input size of its first linear layer does.
        Architecture::Vgg16 => torch::sizes(file, "classifier.0.weight", "")[0].get(1) == Some(&(8 * width)),
        Architecture::InceptionV3 => file.tensor("AuxLogits.fc.weight").is_err(),
        Architecture::GoogLeNet | Architecture::InceptionV2 | Architecture::ResNet18 | Architecture::ResNet50 => {
            rows == 3
        }
    };
    let network = Network { net: architecture.into(), width, small };
    Some(DetectedNetwork { task: Task::Classify, network, classes, input: InputSpec::Channels(channels), whole: true })
}
