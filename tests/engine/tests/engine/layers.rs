//! First values of layers: the formulas of PyTorch's documentation. U(a) is uniform in ±a.

use gradscale::{
    Cpu, Method, Trainer,
    optim::{Optimizer, Sgd},
};
use gradscale::{
    Parameters, Scope,
    models::{ResNet, SegNet},
    nn::{BatchNorm, Conv2d, ConvTranspose2d, Embedding, GroupNorm, GruCell, LayerNorm, Linear, LstmCell, RmsNorm},
    nn::{Module, SelfAttention},
};
use std::collections::BTreeMap;

/// Initial distribution of a parameter.
#[derive(Clone, Copy, Debug)]
enum First {
    Uniform(f64),
    Normal(f64),
    Every(f64),
}
use First::{Every, Normal, Uniform};

fn draw(build: impl FnOnce(&mut Scope<'_>)) -> BTreeMap<String, Vec<f64>> {
    let mut parameters = Parameters::seeded(11);
    build(&mut parameters.at("p"));
    let device = Cpu::new(1).expect("a thread");
    let trainer = Trainer::new(device, parameters, Sgd::new(0.1), Method::fp32()).expect("a trainer");
    let wide = |data: Vec<f32>| data.into_iter().map(f64::from).collect();
    trainer.parameters().expect("values").into_iter().map(|(name, one)| (name, wide(one.data))).collect()
}

fn check(name: &str, values: &[f64], first: First) {
    let n = values.len() as f64;
    let most = values.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let mean = values.iter().sum::<f64>() / n;
    let spread = (values.iter().map(|x| x * x).sum::<f64>() / n).sqrt();
    let right = match first {
        Every(value) => return assert!(values.iter().all(|&x| x == value), "{name}"),
        // Of n uniform samples, the largest is further than 7 / n below the bound with probability e⁻⁷.
        Uniform(bound) => {
            assert!(most <= bound * (1.0 + 1e-6) && most > bound * (1.0 - 7.0 / n), "{name}: {most} for {bound}");
            bound / 3f64.sqrt()
        }
        Normal(deviation) => {
            assert!(most > 2.5 * deviation, "{name} is not normal");
            deviation
        }
    };
    // Four deviations of the estimates; a square of a normal number has a kurtosis of 3.
    assert!((spread / right - 1.0).abs() < 4.0 / (2.0 * n).sqrt(), "{name}: {spread} for {right}");
    assert!(mean.abs() < 4.0 * right / n.sqrt(), "{name}: mean {mean}");
}

fn all(build: impl FnOnce(&mut Scope<'_>), expected: &[(&str, First)]) {
    let mut drawn = draw(build);
    for (name, first) in expected {
        let values = drawn.remove(&format!("p.{name}")).unwrap_or_else(|| panic!("no {name}"));
        check(name, &values, *first);
    }
    assert!(drawn.is_empty(), "{:?}", drawn.keys());
}

fn root(fan: f64) -> First {
    Uniform(1.0 / fan.sqrt())
}

#[test]
fn layers_begin_as_pytorchs() {
    // Linear: U(√k), k = 1 / in_features, for weight and bias.
    all(|p| drop(Linear::new(p, 50, 300)), &[("weight", root(50.0)), ("bias", root(50.0))]);
    // Conv2d: U(√k), k = groups / (C_in · kernel sizes).
    let conv = |p: &mut Scope<'_>| drop(Conv2d::new(p, 12, 200, 3).bias(p));
    all(conv, &[("weight", root(108.0)), ("bias", root(108.0))]);
    // ConvTranspose2d: k = groups / (C_out · kernel sizes).
    let conv = |p: &mut Scope<'_>| drop(ConvTranspose2d::new(p, 5, 150, 3).bias(p));
    all(conv, &[("weight", root(1350.0)), ("bias", root(1350.0))]);
    // LSTMCell, GRUCell: U(√k), k = 1 / hidden_size, for all.
    let gates = ["ih.weight", "ih.bias", "hh.weight", "hh.bias"].map(|name| (name, root(64.0)));
    all(|p| drop(LstmCell::new(p, 30, 64)), &gates);
    all(|p| drop(GruCell::new(p, 30, 64)), &gates);
    // Embedding: N(0, 1).
    all(|p| drop(Embedding::new(p, 100, 30)), &[("weight", Normal(1.0))]);
    // MultiheadAttention: Xavier's for the joined weight [3·64, 64], Linear's for the second, biases 0.
    let attention = [
        ("in.weight", Uniform((6.0f64 / (64.0 + 3.0 * 64.0)).sqrt())),
        ("in.bias", Every(0.0)),
        ("out.weight", root(64.0)),
        ("out.bias", Every(0.0)),
    ];
    all(|p| drop(SelfAttention::new(p, 64, 4)), &attention);
    // Normalisations: 1 and 0.
    let affine = [("scale", Every(1.0)), ("shift", Every(0.0))];
    all(|p| drop(LayerNorm::new(p, 9)), &affine);
    all(|p| drop(GroupNorm::new(p, 8, 2)), &affine);
    all(|p| drop(RmsNorm::new(p, 9)), &affine[..1]);
    let mut norm = draw(|p| drop(BatchNorm::new(p, 3)));
    assert_eq!(norm.remove("p.running"), Some(vec![0.0, 0.0, 0.0, 1.0, 1.0, 1.0]));
    assert_eq!(norm, BTreeMap::from([("p.scale".to_owned(), vec![1.0; 3]), ("p.shift".to_owned(), vec![0.0; 3])]));
}

/// He et al. (2015): normal with variance 2 / fan_in. The last layer of the residual network is PyTorch's.
#[test]
fn networks_of_papers_begin_as_these_say() {
    let he = |fan: f64| Normal((2.0 / fan).sqrt());
    let drawn = draw(|p| drop(SegNet::new(p, 3, 20, 200)));
    check("encoder", &drawn["p.encoder.conv2.weight"], he(49.0 * 20.0));
    check("decoder", &drawn["p.decoder.conv4.weight"], he(49.0 * 20.0));
    check("classifier", &drawn["p.classifier.weight"], he(20.0));
    check("classifier", &drawn["p.classifier.bias"], Every(0.0));
    let drawn = draw(|p| drop(ResNet::new(p, 3, 16, 1, 60)));
    check("first", &drawn["p.conv.weight"], he(27.0));
    check("block", &drawn["p.stage2.block1.conv1.weight"], he(9.0 * 16.0));
    check("shortcut", &drawn["p.stage2.block1.conv0.weight"], he(16.0));
    check("linear", &drawn["p.linear.weight"], root(64.0));
    check("linear", &drawn["p.linear.bias"], root(64.0));
}

#[test]
fn heads_that_do_not_divide_the_width_are_said() {
    let mut parameters = Parameters::seeded(1);
    let attention = SelfAttention::new(&mut parameters.at("attention"), 8, 3);
    let mut trainer = crate::corners::trainer(parameters, "fp32");
    let batch = [gradscale::Input::f32([1, 4, 8], &[0.5; 32])];
    let error = trainer.evaluate(batch, |[x]| attention.forward(x)).expect_err("three heads of eight channels");
    assert_eq!(error.to_string(), "attention: a width of 8 channels is not divisible by 3 heads");
}

/// Groups match whole components of names; a group without parameters is an error.
#[test]
fn groups_of_the_optimizer() {
    let build = |optimizer: Optimizer| {
        let mut parameters = Parameters::seeded(1);
        for name in ["net.block1", "net.block10", "head"] {
            Linear::new(&mut parameters.at(name), 2, 2);
        }
        Trainer::new(Cpu::new(1).expect("a thread"), parameters, optimizer, Method::fp32())
    };
    let error = build(Optimizer::from(Sgd::new(0.1)).group("nett", 1.0, 0.0)).expect_err("no such part").to_string();
    assert_eq!(error, "optimizer: no parameter begins with nett; the parts are head, net");
    assert!(build(Optimizer::from(Sgd::new(0.1)).group("net.bloc", 1.0, 0.0)).is_err());
    for good in ["net.block1", "net.block1.weight", "net", "head.", ""] {
        assert!(build(Optimizer::from(Sgd::new(0.1)).group(good, 1.0, 0.0)).is_ok(), "{good}");
    }

    // Only the named block moves.
    let mut parameters = Parameters::seeded(1);
    let [one, ten] = ["block1", "block10"].map(|name| Linear::new(&mut parameters.at(name), 2, 2));
    let device = Cpu::new(1).expect("a thread");
    let optimizer = Optimizer::from(Sgd::new(0.0)).group("block1", 0.5, 0.0);
    let mut trainer = Trainer::new(device, parameters, optimizer, Method::fp32()).expect("a trainer");
    let before = trainer.parameters().expect("values");
    let batch = [gradscale::Input::f32([1, 2], &[1.0, -1.0]), gradscale::Input::u8([1], &[1])];
    let gradients = trainer.backward(batch, |[x, y]| ten.forward(one.forward(x)).cross_entropy(y));
    trainer.step(gradients.expect("gradients")).expect("a step");
    for ((name, old), (_, new)) in before.into_iter().zip(trainer.parameters().expect("values")) {
        assert_eq!(old.data != new.data, name.starts_with("block1."), "{name}");
    }
}
