//! Checkpoints as bytes: any damage is found, equal states are equal bytes, old files still load, weights go into other
//! networks.

use gradscale::{
    CheckpointError, Cpu, Error, ImportError, Input, LoadError, Method, Parameters, TorchModule, Trainer, Var,
    checkpoint_metadata,
    nn::{BatchNorm, Linear, Module},
    optim::{Adam, Sgd},
};
use std::collections::BTreeMap;

pub struct Net {
    one: Linear,
    norm: BatchNorm,
    two: Linear,
}

const METHOD: &str = "gs:exact,interval=3,history=1";

/// The network that made `format1.safetensors`.
pub fn network(outputs: usize) -> (Parameters, Net) {
    let mut parameters = Parameters::seeded(1);
    let one = Linear::new(&mut parameters.at("one"), 2, 3);
    let norm = BatchNorm::new(&mut parameters.at("norm"), 3);
    let two = Linear::new(&mut parameters.at("two"), 3, outputs);
    (parameters, Net { one, norm, two })
}

impl Module for Net {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.two.forward(self.norm.forward(self.one.forward(x)).relu())
    }
}

pub fn device() -> Cpu {
    Cpu::new(1).expect("a thread")
}

fn training() -> (Trainer<Cpu>, Net) {
    let (parameters, net) = network(2);
    let method: Method = METHOD.parse().expect("a method");
    (Trainer::new(device(), parameters, Sgd { momentum: 0.9, ..Sgd::new(0.1) }, method).expect("a trainer"), net)
}

const X: [f32; 8] = [0.5, -1.0, 2.0, 0.25, 1.0, 1.5, -0.5, 0.75];

pub fn step(trainer: &mut Trainer<Cpu>, net: &Net) -> u32 {
    let batch = [Input::f32([4, 2], &X), Input::u8([4], &[0, 1, 1, 0])];
    let gradients = trainer.backward(batch, |[x, y]| net.forward(x).cross_entropy(y)).expect("gradients");
    trainer.step(gradients).expect("a step").loss.to_bits()
}

pub fn steps(count: usize, trainer: &mut Trainer<Cpu>, net: &Net) {
    for _ in 0..count {
        step(trainer, net);
    }
}

pub fn apply(trainer: &mut Trainer<Cpu>, net: &Net) -> Vec<f32> {
    trainer.evaluate([Input::f32([4, 2], &X)], |[x]| net.forward(x)).expect("an answer").data
}

fn mine() -> BTreeMap<String, String> {
    ["position", "epoch", "a", "z", "plan"].map(|key| (key.to_owned(), format!("\"{key}\" = {{1}}"))).into()
}

fn saved() -> Vec<u8> {
    let (mut trainer, net) = training();
    steps(5, &mut trainer, &net);
    trainer.save(&mine()).expect("a checkpoint")
}

fn refused(trainer: &mut Trainer<Cpu>, bytes: &[u8]) -> CheckpointError {
    let metadata = checkpoint_metadata(bytes).expect_err("metadata of what is damaged");
    let (mut parameters, _) = network(2);
    assert_eq!(parameters.load(bytes), Err(LoadError::Checkpoint(metadata.clone())));
    let Err(Error::Checkpoint(error)) = trainer.load(bytes) else { panic!("damage was taken") };
    assert_eq!(error, metadata);
    error
}

#[test]
fn a_flip_of_any_byte_is_found() {
    let good = saved();
    let (mut trainer, net) = training();
    steps(2, &mut trainer, &net);
    let before = trainer.save(&BTreeMap::new()).expect("a checkpoint");
    let start = 8 + usize::from(u16::from_le_bytes([good[0], good[1]]));
    let mut tensors = 0;
    for i in 0..good.len() {
        let mut bytes = good.clone();
        bytes[i] ^= 1 << (i % 8);
        let error = refused(&mut trainer, &bytes);
        let inside = (start..good.len() - 4).contains(&i);
        let named = matches!(&error, CheckpointError::Damaged(part) if part.starts_with("tensor "));
        assert!(named || !inside, "{i}: {error}");
        tensors += usize::from(inside);
        for other in [0xFF, 1 << ((i + 3) % 8), 1 << ((i + 6) % 8)] {
            bytes[i] = good[i] ^ other;
            assert!(checkpoint_metadata(&bytes).is_err(), "byte {i}");
        }
    }
    // Masters and momenta of 6 + 3, 3 + 3 and 6 + 2 weights, and the running statistics.
    assert_eq!(tensors, 4 * (2 * 23 + 6));
    assert!(trainer.save(&BTreeMap::new()).expect("a checkpoint") == before, "changed by what was refused");
    assert_eq!(trainer.load(&good).expect("the good one"), mine());
}

#[test]
fn a_cut_at_any_length_is_found() {
    let good = saved();
    let (mut trainer, _) = training();
    for end in 0..good.len() {
        let error = refused(&mut trainer, &good[..end]);
        assert!(matches!(error, CheckpointError::Unreadable(_)), "{end}: {error}");
        // A file of the old length whose rest is zeros, as a file system may leave it after a crash.
        let mut zeros = good[..end].to_vec();
        zeros.resize(good.len(), 0);
        assert!(zeros == good || checkpoint_metadata(&zeros).is_err(), "zeros from {end}");
    }
    let mut longer = good;
    longer.push(0);
    refused(&mut trainer, &longer);
}

#[test]
fn equal_states_are_equal_bytes() {
    let good = saved();
    assert!(saved() == good);
    let (mut trainer, _) = training();
    let metadata = trainer.load(&good).expect("a checkpoint");
    assert!(trainer.save(&metadata).expect("a checkpoint") == good);
}

/// Written before there were checksums, with the losses of the steps that followed.
const OLD: &[u8] = include_bytes!("format1.safetensors");
const NEXT: [u32; 4] = [0x3f04_3253, 0x3eec_cec2, 0x3ed0_d696, 0x3eb8_7b25];

#[test]
fn files_of_format_1_still_load() {
    let (mut trainer, net) = training();
    let metadata = trainer.load(OLD).expect("an old checkpoint");
    assert_eq!(metadata, BTreeMap::from([("position".to_owned(), "17".to_owned())]));
    assert_eq!(checkpoint_metadata(OLD), Ok(metadata));
    let new = trainer.save(&BTreeMap::new()).expect("a checkpoint");
    assert_eq!([0; 4].map(|_: u32| step(&mut trainer, &net)), NEXT);
    trainer.load(&new).expect("the same, newly written");
    assert_eq!([0; 4].map(|_: u32| step(&mut trainer, &net)), NEXT);
    let (mut parameters, _) = network(2);
    assert!(parameters.load(OLD).expect("weights").is_complete());
    // A new file never passes for an old one.
    let find = |text: &str| new.windows(text.len()).position(|window| window == text.as_bytes()).expect("the word");
    let at = find("\\\"format\\\":3") + 11;
    let mut bytes = new.clone();
    bytes[at] = b'1';
    assert!(matches!(refused(&mut trainer, &bytes), CheckpointError::Damaged(_)));
    let name = find("\"checksum\"") + 1;
    bytes[name] = b'C';
    assert!(trainer.load(&bytes).is_err());
}

/// Weights alone load into a trainer with any settings, and give the same results.
#[test]
fn weights_load_without_the_training() {
    let (mut trainer, net) = training();
    steps(5, &mut trainer, &net);
    let bytes = trainer.save(&BTreeMap::new()).expect("a checkpoint");
    let expected = apply(&mut trainer, &net);
    for method in ["gs", "dynamic", METHOD] {
        let (mut parameters, net) = network(2);
        let imported = parameters.load(&bytes).expect("weights");
        assert!(imported.is_complete() && imported.filled.len() == 7, "{imported}");
        let method = method.parse::<Method>().expect("a method");
        let mut other = Trainer::new(device(), parameters, Adam::new(1.0), method).expect("a trainer");
        assert_eq!(apply(&mut other, &net), expected);
    }
}

#[test]
fn weights_that_do_not_fit_are_named() {
    let bytes = saved();
    let (mut parameters, _) = network(5);
    let before = format!("{parameters:?}");
    let error = parameters.load(&bytes).expect_err("another size");
    assert_eq!(error.to_string(), "two.weight is 2×3 in the checkpoint, but 5×3 here");
    parameters.at("three").constant("weights", [2], &[1.0, 2.0]);
    Linear::new(&mut parameters.at("three"), 2, 2);
    let (mut more, _) = network(2);
    Linear::new(&mut more.at("three"), 2, 2);
    let error = more.load(&bytes).expect_err("a layer too many");
    assert_eq!(error.to_string(), "the checkpoint has no parameter three.weight");
    let error = more.load_as(&bytes, |name| Some(name.replace("three", "four"))).expect_err("another name");
    assert_eq!(error.to_string(), "the checkpoint has no parameter four.weight, which was requested for three.weight");
    let imported = more.load_as(&bytes, |name| (!name.starts_with("three")).then(|| name.to_owned()));
    assert_eq!(imported.expect("the others").missing, ["three.weight", "three.bias"]);
    assert!(format!("{parameters:?}").starts_with(&before[..before.len() / 2]), "changed by what was refused");

    // Each format has its own load function, and the error names it.
    let torch = parameters.import_torch(&bytes, |layer| Some(TorchModule::named(layer)));
    assert_eq!(torch, Err(ImportError::Checkpoint));
    let values = [0; 24];
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![3, 2], &values).expect("a tensor");
    let foreign = safetensors::serialize([("one.weight", view)], None).expect("a file");
    assert_eq!(parameters.load(&foreign), Err(LoadError::Checkpoint(CheckpointError::Foreign)));
}
