//! Error messages: they name the layer, the values found and the remedy; `Debug` writes the same sentence.

use crate::corners::trainer;
use gradscale::{
    AttentionMask, Cpu, CrossEntropy, Error, Input, Method, Parameters, Trainer,
    gradscale_core::{
        backend::{
            Backend, Caps, Control, DType, Data, DataMut, DeviceResult, Error as _, ErrorKind, Launch, OnDevice,
        },
        stats::Stats,
    },
    nn::{Conv2d, CrossAttention, GruCell, Linear, Module, SelfAttention},
    optim::Sgd,
};
use gradscale_conformance::Reference;
use std::ops::Range;

#[test]
fn heads_and_widths() {
    let mut parameters = Parameters::seeded(1);
    let attention = SelfAttention::new(&mut parameters.at("block.attention"), 8, 3);
    let mut trainer = trainer(parameters, "gs");
    let x = [0.0; 80];
    let said = |trainer: &mut Trainer<Cpu>, shape: [usize; 4]| {
        trainer.evaluate([Input::f32(shape, &x)], |[x]| attention.forward(x)).expect_err("refused").to_string()
    };
    assert_eq!(said(&mut trainer, [2, 1, 5, 8]), "block.attention: a width of 8 channels is not divisible by 3 heads");
    assert_eq!(said(&mut trainer, [2, 5, 1, 8]), "block.attention: a sequence must be n × 1 × t × width, not 2×5×1×8");
}

#[test]
fn heads_and_memories() {
    let mut parameters = Parameters::seeded(1);
    let attention = CrossAttention::new(&mut parameters.at("cross"), 8, 4, 3);
    let groups = Conv2d::grouped(&mut parameters.at("grouped"), 8, 8, 3, 3);
    let mut trainer = trainer(parameters, "gs");
    let (x, memory) = ([0.0; 80], [0.0; 40]);
    let mut said = |shape: [usize; 4]| {
        let batch = [Input::f32([2, 1, 5, 8], &x), Input::f32(shape, &memory)];
        trainer.evaluate(batch, |[x, memory]| attention.forward(x, memory, AttentionMask::None)).expect_err("refused")
    };
    assert_eq!(said([2, 1, 5, 4]).to_string(), "cross: a width of 8 channels is not divisible by 3 heads");
    assert_eq!(said([2, 5, 1, 4]).to_string(), "cross: a sequence must be n × 1 × t × width, not 2×5×1×4");
    let grouped = trainer.evaluate([Input::f32([2, 1, 5, 8], &x)], |[x]| groups.forward(x)).expect_err("refused");
    let words = "grouped: the number of groups must divide the channels; the input is 2×1×5×8 (n × h × w × c)";
    assert_eq!(grouped.to_string(), words);
}

/// A label that is no class is named before a device answers NaN to it; one that is ignored is no class either.
#[test]
fn labels_beyond_the_classes() {
    let mut parameters = Parameters::seeded(1);
    let net = Linear::new(&mut parameters.at("net"), 2, 3);
    let mut trainer = trainer(parameters, "gs");
    let x = [0.5; 8];
    let mut step = |labels: Input<'_>| {
        let options = CrossEntropy { ignore: Some(255), ..CrossEntropy::default() };
        let gradients = trainer.backward([Input::f32([4, 2], &x), labels], |[x, labels]| {
            net.forward(x).cross_entropy_with(labels, &options)
        })?;
        trainer.step(gradients).map(|outcome| outcome.skipped.is_none())
    };
    let said = "cross_entropy: label 2 of the batch is 3, but the 3 classes are numbered from 0";
    assert_eq!(step(Input::u8([4], &[0, 255, 3, 7])).expect_err("3 is no class").to_string(), said);
    assert_eq!(step(Input::u32([4], &[0, 1, 3, 2])).expect_err("3 is no class").to_string(), said);
    assert!(step(Input::u8([4], &[0, 255, 2, 1])).expect("a step"), "the trainer goes on");
}

/// 64 states of a cell, put together.
#[test]
fn many_parts_are_joined() {
    let mut parameters = Parameters::seeded(1);
    let cell = GruCell::new(&mut parameters.at("cell"), 2, 3);
    let mut trainer = trainer(parameters, "gs");
    let (x, one) = ([0.5; 4], [0.0; 6]);
    let batch = || [Input::f32([2, 2], &x), Input::f32([2, 3], &one)];
    let mut last = Vec::new();
    let joined = trainer.evaluate(batch(), |[x, mut state]| {
        let mut all = Vec::new();
        for _ in 0..64 {
            state = cell.forward(x, state);
            all.push(state);
        }
        all[0].concat(&all[1..], 1)
    });
    let joined = joined.expect("64 parts");
    assert_eq!(joined.shape.sizes(), [2, 64, 1, 3]);
    let states = trainer.evaluate(batch(), |[x, mut state]| {
        for _ in 0..64 {
            state = cell.forward(x, state);
        }
        state
    });
    last.extend(states.expect("a state").data);
    assert_eq!([&joined.data[63 * 3..64 * 3], &joined.data[127 * 3..]].concat(), last, "in their order");
    // In the backward pass every part receives its gradient.
    let gradients = trainer.backward(batch(), |[x, state]| {
        let all: Vec<_> = (0..20).map(|_| cell.forward(x, state)).collect();
        all[0].concat(&all[1..], 3).mean()
    });
    assert!(trainer.step(gradients.expect("gradients")).expect("a step").skipped.is_none());
}

#[test]
fn a_main_that_fails_prints_a_sentence() {
    let error = Trainer::new(Cpu::new(1).expect("threads"), Parameters::seeded(1), Sgd::new(-1.0), Method::mixed())
        .expect_err("no such rate");
    assert!(error.to_string().starts_with("optimizer: -1 is out of range: learning rate"), "{error}");
    assert_eq!(format!("{error:?}"), error.to_string());
    let mut parameters = Parameters::seeded(1);
    let net = Linear::new(&mut parameters.at("net"), 3, 1);
    let mut trainer = trainer(parameters, "gs");
    let error = trainer.evaluate([Input::f32([2, 4], &[0.5; 8])], |[x]| net.forward(x)).expect_err("4 are not 3");
    assert_eq!(format!("{error:?}"), "Linear net: input [2, 4], expected [_, 3]");
    let Error::Trace(inside) = &error else { panic!("{error}") };
    assert_eq!(format!("{inside:?}"), error.to_string());
    let error = trainer.set_parameter("net.weight", &[0.0; 2]).expect_err("2 are not 3");
    assert_eq!(error.to_string(), "parameter net.weight is 1×3, but 2 values were passed");
    let unknown = |name: &str| trainer.parameter(name).expect_err("no such").to_string();
    assert_eq!(unknown("net.wieght"), "there is no parameter net.wieght; did you mean net.weight?");
    assert_eq!(unknown("bias"), "there is no parameter bias; did you mean net.bias?");
    assert_eq!(unknown("encoder"), "there is no parameter encoder");
    let labels = trainer
        .evaluate([Input::f32([2, 3], &[0.5; 6]), Input::f32([2], &[0.0; 2])], |[x, labels]| x.cross_entropy(labels));
    assert_eq!(labels.expect_err("labels").to_string(), "cross_entropy: labels must be u8 or u32, not f32");
    assert_eq!(format!("{:?}", "fixed:3".parse::<Method>().expect_err("none")).lines().count(), 1);
    assert_eq!(format!("{:?}", gradscale::CpuError::unsupported("gemm")), "the CPU backend has no operator gemm");
    assert_eq!(format!("{:?}", ErrorKind::unsupported("gemm")), "not supported by this device");
}

/// Custom device with few operators, whose error has only a kind.
struct Few(Reference);

type Buffer = <Reference as Backend>::Buffer;
type Table = <Reference as Backend>::Table;

impl Backend for Few {
    type Buffer = Buffer;
    type Table = Table;
    type Recording = <Reference as Backend>::Recording;
    type Error = ErrorKind;

    fn caps(&self) -> Caps<'_> {
        self.0.caps()
    }
    fn alloc(&self, dtype: DType, len: usize) -> Result<Buffer, ErrorKind> {
        self.0.alloc(dtype, len)
    }
    fn write(&self, src: Data<'_>, dst: &mut Buffer) -> DeviceResult<Self> {
        self.0.write(src, dst)
    }
    fn read(&self, src: &Buffer, dst: DataMut<'_>) -> impl Future<Output = DeviceResult<Self>> {
        self.0.read(src, dst)
    }
    fn table(&self, slots: u16, hyperparameters: u16) -> Result<Table, ErrorKind> {
        self.0.table(slots, hyperparameters)
    }
    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Table) -> DeviceResult<Self> {
        self.0.upload(control, clear, table)
    }
    fn collect(
        &self, table: &Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Buffer], values: &mut [f32],
    ) -> impl Future<Output = DeviceResult<Self>> {
        self.0.collect(table, rows, out, scalars, values)
    }
    fn launch(&self, launch: Launch<OnDevice<'_, Self>>) -> DeviceResult<Self> {
        match launch {
            Launch::Unary { .. } | Launch::Copy { .. } | Launch::Reduce { .. } | Launch::Gemm { .. } => {
                self.0.launch(launch.inside())
            }
            _ => Err(ErrorKind::unsupported(launch.name())),
        }
    }
}

#[test]
fn an_operator_that_a_device_lacks_is_named() {
    for method in ["fp32", "gs", "gs:paper"] {
        let mut parameters = Parameters::seeded(1);
        let net = Linear::new(&mut parameters.at("net"), 4, 4);
        let method: Method = method.parse().expect("a method");
        let mut trainer = Trainer::new(Few(Reference::default()), parameters, Sgd::new(0.1), method).expect("one");
        let batch = || [Input::f32([2, 4], &[0.5; 8])];
        let said = trainer.evaluate(batch(), |[x]| net.forward(x).softmax()).expect_err("no sum of channels");
        assert!(said.to_string().starts_with("softmax (softmax): not supported by this device"), "{said}");
        // A relu is a unary function; its derivative is none.
        let said = trainer.backward(batch(), |[x]| net.forward(x).relu().mean()).expect_err("no derivative");
        assert_eq!(said.to_string(), "relu (relu, its gradient): not supported by this device");
        assert!(matches!(said, Error::Operator { error: ErrorKind::Unsupported, backward: true, .. }));
    }
}

/// A network with foreign parameters is refused, for any number and shape of them.
#[test]
fn parameters_of_somebody_else() {
    let net = |count: usize| {
        let mut parameters = Parameters::seeded(1);
        let layers: Vec<Linear> = (0..count).map(|i| Linear::new(&mut parameters.at(&format!("{i}")), 4, 4)).collect();
        (parameters, layers)
    };
    let ((own, layers), (_, others)) = (net(1), net(3));
    let mut clone = own.clone();
    let added = Linear::new(&mut clone.at("added"), 4, 4);
    let mut trainer = trainer(own, "gs");
    let batch = || [Input::f32([2, 4], &[0.5; 8])];
    for layer in others.iter().chain([&added]) {
        let said = trainer.backward(batch(), |[x]| layer.forward(x).mean()).expect_err("not its own").to_string();
        assert_eq!(
            said,
            "parameter: a parameter of 4×4 is not in this trainer's Parameters; build the network from those"
        );
        assert!(trainer.evaluate(batch(), |[x]| layer.forward(x)).is_err());
        assert!(trainer.plan(batch(), |[x]| layer.forward(x).mean()).is_err());
    }
    let gradients = trainer.backward(batch(), |[x]| layers[0].forward(x).mean()).expect("its own");
    assert!(trainer.step(gradients).expect("a step").skipped.is_none());
}
