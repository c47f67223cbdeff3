//! The networks for images against PyTorch: torchvision's, and modules after the papers, computed in f64 by
//! `tests/golden/vision.py`. Weights go the way of a user's: as the safetensors file of a `state_dict`.

mod detection;
mod faster_rcnn;
mod table;

use gradscale::{
    Cpu, Input, Method, Parameters, TorchModule, Trainer, Var,
    models::{Architecture, Scale, SegNetVgg, Vgg16, Vision},
    nn::Module,
    optim::Sgd,
};
use table::{Golden, Row, golden, hashed, line, state_dict, uniform};

/// Number of classes, as in the script.
const CLASSES: usize = 7;
const NARROW: Scale = Scale { width: 8, small: false, dropout: false };
/// Maximum error of the output and of gradients, relative to the largest of all.
const BOUND: f32 = 1e-5;
/// Maximum error relative to a layer's largest gradient. One batch norm follows another, so gradients of its factors
/// nearly cancel, and PyTorch's f32 gradients are as far from those in f64.
const OF_LAYER: f32 = 1e-4;

/// SegNet as the other networks are: with one answer.
#[derive(Debug)]
struct Pixels(SegNetVgg);

impl Module for Pixels {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.0.forward(x)
    }
}

impl Vision for Pixels {}

fn build(name: &str, parameters: &mut Parameters) -> Box<dyn Vision> {
    let scope = &mut parameters.at("net");
    match Architecture::ALL.into_iter().find(|one| one.name() == name) {
        Some(architecture) => architecture.build(scope, 3, NARROW, CLASSES),
        None => Box::new(Pixels(SegNetVgg::new(scope, 3, NARROW, CLASSES))),
    }
}

/// The largest difference of a row, relative to the largest magnitude that it tells, or to `scale`.
fn off(found: &Row, right: &Row, scale: f32) -> f32 {
    let differences = found.numbers.iter().zip(right.numbers).map(|(found, right)| (found - right).abs());
    differences.fold(0f32, f32::max) / scale
}

fn agrees(network: &Golden) {
    let [batch, rows, columns] = network.images;
    let mut parameters = Parameters::seeded(1);
    let net = build(network.name, &mut parameters);
    let flattened = net.flattened();
    let names: Vec<String> = parameters.names().map(str::to_owned).collect();
    let imported = parameters.import_torch(&state_dict(network), |layer| {
        let name = layer.strip_prefix("net.")?;
        let module = TorchModule::named(name);
        let image = flattened.iter().find(|(layer, _)| *layer == name);
        Some(image.map_or(module.clone(), |(_, image)| module.flattened(*image)))
    });
    let imported = imported.expect("weights");
    assert!(imported.is_complete(), "{}: {imported}", network.name);

    let device = Cpu::new(0).expect("threads");
    let mut trainer = Trainer::new(device, parameters, Sgd::new(0.0), Method::fp32()).expect("a trainer");
    let images = table::channels_last(&uniform("input", batch * 3 * rows * columns), 3, rows * columns);
    let count = if network.name == "segnet" { batch * rows * columns } else { batch };
    let labels: Vec<u8> = (hashed("labels", count, 0).into_iter())
        .map(|bits| u8::try_from(bits as usize % CLASSES).expect("a class"))
        .collect();
    let input = || Input::f32([batch, rows, columns, 3], &images);
    let evaluation = trainer.evaluate([input()], |[x]| net.forward(x)).expect("an answer");
    let all = [input(), Input::u8([count], &labels)];
    let gradients = trainer.backward(all, |[x, labels]| {
        let heads = net.heads(x);
        for (i, (head, _)) in heads.iter().enumerate() {
            let _ = head.output(&format!("head{i}"));
        }
        let losses = heads.into_iter().map(|(head, weight)| head.cross_entropy(labels).scale(weight));
        losses.reduce(|sum, loss| sum + loss).expect("a head")
    });
    let gradients = gradients.expect("gradients");

    let answers = (0..).map_while(|i| trainer.output(&format!("head{i}")).ok());
    let training: Vec<f32> = answers.flat_map(|head| table::channels_first(&head.data, head.shape.sizes())).collect();
    let right = network.row("training");
    let difference = off(&line("training", &training), right, right.numbers[0]);
    assert!(difference <= BOUND, "{} while training: {difference:.1e}", network.name);
    let evaluation = table::channels_first(&evaluation.data, evaluation.shape.sizes());
    let right = network.row("evaluation");
    let difference = off(&line("evaluation", &evaluation), right, right.numbers[0]);
    assert!(difference <= BOUND, "{} in evaluation: {difference:.1e}", network.name);

    let largest = network.rows[2..].iter().fold(0f32, |most, row| most.max(row.numbers[0]));
    let (mut worst, mut of_all, mut seen) = ((0f32, ""), 0f32, 0);
    for name in names {
        let Some(gradient) = trainer.gradient(&gradients, &name).expect("a parameter") else { continue };
        let name = name.strip_prefix("net.").expect("its prefix");
        let (layer, leaf) = name.rsplit_once('.').expect("a layer");
        let leaf = match leaf {
            "scale" => "weight",
            "shift" => "bias",
            leaf => leaf,
        };
        let right = network.row(&format!("{layer}.{leaf}"));
        let values = match flattened.iter().find(|(flat, _)| *flat == layer && leaf == "weight") {
            Some((_, [h, w, c])) => {
                gradient.data.chunks(h * w * c).flat_map(|row| table::channels_first(row, [1, *h, *w, *c])).collect()
            }
            None => table::channels_first(&gradient.data, gradient.shape.sizes()),
        };
        // Relative to the layer, not to the tensor, because a bias before batch norm has only rounding errors as
        // gradient.
        let layer = ["weight", "bias"].map(|leaf| format!("{layer}.{leaf}"));
        let of_layer = network.rows.iter().filter(|row| layer.iter().any(|name| name == row.key));
        let of_layer = of_layer.fold(0f32, |most, row| most.max(row.numbers[0]));
        let found = line(right.key, &values);
        let difference = off(&found, right, of_layer);
        of_all = of_all.max(off(&found, right, largest));
        if difference > worst.0 {
            worst = (difference, right.key);
        }
        seen += 1;
    }
    let (of_layer, name) = worst;
    println!("{}: {seen} gradients off by {of_all:.1e}, of their layer {of_layer:.1e} ({name})", network.name);
    assert_eq!(seen, network.rows.len() - 2, "{}: as many gradients as PyTorch's", network.name);
    assert!(of_all <= BOUND && of_layer <= OF_LAYER, "{}: {of_all:.1e}, {name} {of_layer:.1e}", network.name);
}

fn by_name(name: &str) {
    let all = golden();
    agrees(all.iter().find(|network| network.name == name).expect("a network of the table"));
}

#[test]
fn alexnet() {
    by_name("alexnet");
}

#[test]
fn vgg_16() {
    by_name("vgg-16");
}

#[test]
fn googlenet() {
    by_name("googlenet");
}

#[test]
fn inception_v2() {
    by_name("inception-v2");
}

#[test]
fn inception_v3() {
    by_name("inception-v3");
}

#[test]
fn resnet_18() {
    by_name("resnet-18");
}

#[test]
fn resnet_50() {
    by_name("resnet-50");
}

#[test]
fn segnet() {
    by_name("segnet");
}

/// The papers' networks have as many parameters as torchvision's for a thousand classes.
#[test]
fn sizes_are_the_papers() {
    let count = |build: &dyn Fn(&mut Parameters)| {
        let mut parameters = Parameters::seeded(0);
        build(&mut parameters);
        parameters.count()
    };
    for (architecture, parameters) in [
        (Architecture::AlexNet, 61_100_840),
        (Architecture::GoogLeNet, 13_004_888),
        (Architecture::InceptionV3, 27_161_264),
        (Architecture::ResNet18, 11_689_512),
        (Architecture::ResNet50, 25_557_032),
    ] {
        let found = count(&|parameters| drop(architecture.build(&mut parameters.at("net"), 3, Scale::PAPER, 1000)));
        assert_eq!(found, parameters, "{}", architecture.name());
    }
    // Only the convolutions of VGG-16, because its first linear layer has a hundred million weights.
    let encoder = count(&|parameters| drop(SegNetVgg::new(&mut parameters.at("net"), 3, Scale::PAPER, 12)));
    assert_eq!(encoder, 29_446_220);
}

/// With batch norm, VGG-16 has the parameter names of torchvision's `vgg16_bn`.
#[test]
fn vgg_with_batch_norm_is_called_as_torchvision_s() {
    let mut parameters = Parameters::seeded(0);
    let net = Vgg16::with_norm(&mut parameters.at("net"), 3, Scale::small(1), 2);
    let names: Vec<&str> = parameters.names().collect();
    for name in ["net.features.0.weight", "net.features.1.scale", "net.features.40.bias", "net.features.41.running"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    drop(net);
}
