//! Weights of PyTorch models, compared with PyTorch's results for them. `golden/make.py` wrote the files.

use gradscale::{
    Cpu, ImportError, Imported, Input, Method, Parameters, Shape, TorchModule, Trainer, Var,
    models::{Mlp, ResNet, SegNet},
    nn::{BatchNorm, Conv1d, Conv2d, GroupNorm, Gru, Linear, Module},
    optim::Sgd,
};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

fn golden(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/import/golden/{name}.safetensors", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn tensor(file: &SafeTensors<'_>, name: &str) -> (Vec<usize>, Vec<f32>) {
    let view = file.tensor(name).expect(name);
    assert_eq!(view.dtype(), Dtype::F32);
    let values = view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    (view.shape().to_vec(), values.collect())
}

/// Runs `net` on the model's input; the largest difference to PyTorch's output, relative to the largest output.
fn difference(name: &str, parameters: Parameters, net: impl for<'t> FnOnce(Var<'t>) -> Var<'t>) -> f32 {
    let bytes = golden(&format!("{name}-answer"));
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let ((sizes, input), (_, expected)) = (tensor(&file, "input"), tensor(&file, "output"));
    let sizes: [usize; 4] = sizes.try_into().expect("images");
    let device = Cpu::new(1).expect("a thread");
    let mut trainer = Trainer::new(device, parameters, Sgd::new(0.1), Method::fp32()).expect("a trainer");
    let output = trainer.evaluate([Input::f32(sizes, &input)], |[x]| net(x)).expect("an answer");
    assert_eq!(output.data.len(), expected.len());
    let largest = expected.iter().fold(0f32, |most, value| most.max(value.abs()));
    let pairs = output.data.iter().zip(&expected);
    let difference = pairs.fold(0f32, |most, (got, want)| most.max((got - want).abs())) / largest;
    println!("{name}: {} numbers, off by {difference:.1e} of the largest", expected.len());
    difference
}

const BOUND: f32 = 1e-5;

struct Small {
    conv1: Conv2d,
    norm1: BatchNorm,
    conv2: Conv2d,
    norm2: GroupNorm,
    head: Linear,
}

impl Small {
    fn new(parameters: &mut Parameters) -> Self {
        let conv1 = Conv2d::new(&mut parameters.at("net.conv1"), 3, 6, 3).bias(&mut parameters.at("net.conv1"));
        let norm1 = BatchNorm::new(&mut parameters.at("net.norm1"), 6);
        let conv2 = Conv2d::new(&mut parameters.at("net.conv2"), 6, 4, 3).stride(2);
        let norm2 = GroupNorm::new(&mut parameters.at("net.norm2"), 4, 2);
        let head = Linear::new(&mut parameters.at("net.head"), 2 * 3 * 4, 5);
        Self { conv1, norm1, conv2, norm2, head }
    }

    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let x = self.norm1.forward(self.conv1.forward(x)).relu().max_pool([2, 2]);
        let x = self.norm2.forward(self.conv2.forward(x));
        self.head.forward(x.reshape([2, 2 * 3 * 4]))
    }
}

/// Returns the names of the small model, whose head is either separate or follows a flattening.
fn small(layer: &str, flattened: bool) -> Option<TorchModule> {
    let named = |name: &str| Some(TorchModule::named(name));
    match layer {
        "net.conv1" => named("features.0"),
        "net.norm1" => named("features.1"),
        "net.conv2" => named("features.4"),
        "net.norm2" => named("features.5"),
        "net.head" if flattened => Some(TorchModule::named("head").flattened([2, 3, 4])),
        "net.head" => named("head"),
        _ => None,
    }
}

#[test]
fn every_layer_in_every_type() {
    for name in ["small-f32", "small-f16", "small-bf16", "small-f64"] {
        let mut parameters = Parameters::seeded(1);
        let net = Small::new(&mut parameters);
        let imported = parameters.import_torch(&golden(name), |layer| small(layer, true)).expect("weights");
        assert!(imported.is_complete(), "{imported}");
        assert_eq!(imported.filled.len(), 10);
        let off = difference(name, parameters, |x| net.forward(x));
        assert!(off <= BOUND, "{name}: {off}");
    }
    // Without the information about the flattening, shapes fit and values do not.
    let mut parameters = Parameters::seeded(1);
    let net = Small::new(&mut parameters);
    let imported = parameters.import_torch(&golden("small-f32"), |layer| small(layer, false)).expect("weights");
    assert!(imported.is_complete());
    assert!(difference("small-f32", parameters, |x| net.forward(x)) > 0.1);
}

#[test]
fn segnet() {
    let mut parameters = Parameters::seeded(1);
    let net = SegNet::new(&mut parameters.at("net"), 3, 4, 3);
    // encoder.conv2 is encoder.1.0 there; the decoder's levels count down here and up there.
    let module = |layer: &str| {
        let (part, rest) = layer.strip_prefix("net.")?.split_once('.').unwrap_or(("classifier", ""));
        let at = |digit: &str| digit.parse::<usize>().ok();
        Some(TorchModule::named(match (part, rest.split_at(rest.len().min(4))) {
            ("encoder", ("conv", i)) => format!("encoder.{}.0", at(i)? - 1),
            ("encoder", ("norm", i)) => format!("encoder.{}.1", at(i)? - 1),
            ("decoder", ("conv", i)) => format!("decoder.{}.0", 4 - at(i)?),
            ("decoder", ("norm", i)) => format!("decoder.{}.1", 4 - at(i)?),
            _ => part.to_owned(),
        }))
    };
    let imported = parameters.import_torch(&golden("segnet"), module).expect("weights");
    assert!(imported.is_complete(), "{imported}");
    let off = difference("segnet", parameters, |x| net.forward(x));
    assert!(off <= BOUND, "{off}");
}

#[test]
fn resnet() {
    let mut parameters = Parameters::seeded(1);
    let net = ResNet::new(&mut parameters.at("net"), 3, 4, 1, 5);
    let module = |layer: &str| {
        let layer = layer.strip_prefix("net.")?;
        let name = match layer {
            "conv" => "conv1".to_owned(),
            "norm" => "bn1".to_owned(),
            "linear" => "fc".to_owned(),
            block => {
                let name = block.replace("stage", "layer").replace("block1", "0").replace("norm", "bn");
                name.replace("conv0", "downsample.0").replace("bn0", "downsample.1")
            }
        };
        Some(TorchModule::named(name))
    };
    let imported = parameters.import_torch(&golden("resnet"), module).expect("weights");
    assert!(imported.is_complete(), "{imported}");
    let off = difference("resnet", parameters, |x| net.forward(x));
    assert!(off <= BOUND, "{off}");
}

/// A file with these tensors, all zero.
fn file(tensors: &[(&str, Dtype, &[usize])]) -> Vec<u8> {
    let zeros = [0; 4096];
    let view = |dtype: Dtype, shape: &[usize]| {
        let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        TensorView::new(dtype, shape.to_vec(), &zeros[..bytes]).expect("a tensor")
    };
    let all = tensors.iter().map(|(name, dtype, shape)| (*name, view(*dtype, shape)));
    safetensors::serialize(all, None).expect("a file")
}

fn first_values(parameters: Parameters) -> Vec<f32> {
    let device = Cpu::new(1).expect("a thread");
    let trainer = Trainer::new(device, parameters, Sgd::new(0.1), Method::fp32()).expect("a trainer");
    trainer.parameters().expect("values").into_iter().flat_map(|(_, tensor)| tensor.data).collect()
}

fn two_layers() -> Parameters {
    let mut parameters = Parameters::seeded(1);
    Mlp::new(&mut parameters.at("net"), &[12, 4, 2]);
    parameters
}

#[test]
fn what_does_not_fit_is_named_and_changes_nothing() {
    let before = first_values(two_layers());
    let refused = |bytes: &[u8], image: Option<[usize; 3]>| -> ImportError {
        let mut parameters = two_layers();
        let module = |layer: &str| {
            let module = TorchModule::named(layer.trim_start_matches("net."));
            Some(match image {
                Some(image) if layer == "net.linear1" => module.flattened(image),
                _ => module,
            })
        };
        let error = parameters.import_torch(bytes, module).expect_err("does not fit");
        assert_eq!(first_values(parameters), before, "{error}");
        error
    };
    let (f32, first) = (Dtype::F32, ("linear1.weight", Dtype::F32, &[4usize, 12][..]));
    let error = refused(&file(&[first, ("linear2.weight", f32, &[4, 2])]), None);
    let (parameter, tensor) = ("net.linear2.weight".to_owned(), "linear2.weight".to_owned());
    let text = "linear2.weight is 4×2, which does not fit net.linear2.weight: 2×4";
    assert_eq!(error.to_string(), text);
    assert_eq!(error, ImportError::Shape { parameter, expected: Shape::from([2, 4]), tensor, found: vec![4, 2] });
    for shape in [&[2usize, 2, 2][..], &[2, 2, 2, 1], &[8], &[], &[1, 2, 4]] {
        let error = refused(&file(&[first, ("linear2.weight", f32, shape)]), None);
        assert!(matches!(error, ImportError::Shape { .. }), "{error}");
    }
    let error = refused(&file(&[first, ("linear2.bias", Dtype::I32, &[2])]), None);
    assert_eq!(error.to_string(), "linear2.bias has type I32, not f16, bf16, f32 or f64");
    let error = refused(&file(&[first]), Some([2, 2, 2]));
    assert_eq!(error.to_string(), "net.linear1.weight is 4×12, but an image of 2×2×2 has 8 values");
    for bytes in [&b""[..], b"\x08\0\0\0\0\0\0\0{\"a\":1} ", &golden("resnet")[..2000]] {
        assert!(matches!(refused(bytes, None), ImportError::File(_)));
    }
}

#[test]
fn what_is_missing_or_left_over_is_reported() {
    let mut parameters = two_layers();
    let bytes = file(&[
        ("linear1.weight", Dtype::F32, &[4, 12]),
        ("linear1.num_batches_tracked", Dtype::I64, &[]),
        ("linear2.weight", Dtype::F32, &[2, 4]),
        ("other.weight", Dtype::F32, &[3]),
    ]);
    let module = |layer: &str| (layer == "net.linear1").then(|| TorchModule::named("linear1"));
    let imported = parameters.import_torch(&bytes, module).expect("weights");
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let expected = Imported {
        filled: words(&["net.linear1.weight"]),
        missing: words(&["net.linear1.bias", "net.linear2.weight", "net.linear2.bias"]),
        unused: words(&["linear2.weight", "other.weight"]),
    };
    assert_eq!(imported, expected);
    assert!(!imported.is_complete());
    let text = "1 parameters imported; not in the file: net.linear1.bias, net.linear2.weight, net.linear2.bias; \
                not used: linear2.weight, other.weight";
    assert_eq!(imported.to_string(), text);
    let values = first_values(parameters);
    assert!(values[..48].iter().all(|&value| value == 0.0) && values[52..60].iter().all(|&value| value != 0.0));
}

/// All parameters of a recurrent module are imported by PyTorch's own names.
#[test]
fn recurrent_layers_from_one_module() {
    let mut parameters = Parameters::seeded(1);
    let net = Gru::bidirectional(&mut parameters.at("net.gru"), 2, 3, 2);
    let mut tensors = Vec::new();
    for layer in 0..2 {
        for end in ["", "_reverse"] {
            for (part, inputs) in [("ih", if layer == 0 { 2 } else { 6 }), ("hh", 3)] {
                tensors.push((format!("gru.weight_{part}_l{layer}{end}"), vec![9, inputs]));
                tensors.push((format!("gru.bias_{part}_l{layer}{end}"), vec![9]));
            }
        }
    }
    let bytes: Vec<u8> = (0..54u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    let views = tensors.iter().map(|(name, shape)| {
        let values = &bytes[..4 * shape.iter().product::<usize>()];
        (name, TensorView::new(Dtype::F32, shape.clone(), values).expect("a view"))
    });
    let file = safetensors::serialize(views, None).expect("a file");
    let found = parameters.import_torch(&file, |layer| (layer == "net.gru").then(|| TorchModule::named("gru")));
    let found = found.expect("it fits");
    assert!(found.is_complete(), "{found}");
    let device = Cpu::new(1).expect("a thread");
    let mut trainer = Trainer::new(device, parameters, Sgd::new(0.1), Method::fp32()).expect("a trainer");
    let read = trainer.parameter("net.gru.weight_ih_l1_reverse").expect("a parameter");
    assert!(read.shape == Shape::from([9, 6]) && read.data.iter().zip(0u8..).all(|(&x, i)| x == f32::from(i)));
    let y = trainer.evaluate([Input::f32([1, 4, 2], &[0.5; 8])], |[x]| net.forward(x)).expect("it fits");
    assert_eq!(y.shape.sizes(), [1, 1, 4, 6]);
}

/// A convolution over time has its taps last in PyTorch, and its channels last here.
#[test]
fn convolutions_over_time() {
    let mut parameters = Parameters::seeded(1);
    let _ = Conv1d::grouped(&mut parameters.at("conv"), 4, 2, 3, 2);
    // Output 0, inputs 0 and 1 of its group, each with three taps; then output 1.
    let bytes: Vec<u8> = (0..12u8).flat_map(|x| f32::from(x).to_le_bytes()).collect();
    let view = TensorView::new(Dtype::F32, vec![2, 2, 3], &bytes).expect("a view");
    let file = safetensors::serialize([("conv.weight", view)], None).expect("a file");
    let found = parameters.import_torch(&file, |layer| Some(TorchModule::named(layer))).expect("it fits");
    assert!(found.is_complete(), "{found}");
    assert_eq!(first_values(parameters), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0, 6.0, 9.0, 7.0, 10.0, 8.0, 11.0]);
}
