//! Writes every network of the library, small and after two steps of training, as an ONNX model, with a batch and this
//! engine's results: `onnx DIR`. `tests/onnx/compare.py` computes the same in ONNX Runtime.

use gradscale::{
    AttentionMask, Cpu, Input, Method, Parameters, Scope, Shape, Trainer, Var,
    gradscale_core::ops::Unary,
    models::{
        Architecture, BigLstm, BigLstmSize, Decoder, DecoderSize, DeepSpeech, Discriminator, FasterRcnn, GanSize,
        Generator, Mlp, ResNet, Scale, SegNet, SegNetVgg, Seq2Seq, Ssd, SsdSize,
    },
    nn::{Conv1d, CrossAttention, GroupNorm, Gru, InstanceNorm, LayerNorm, Linear, Module, RmsNorm},
    optim::Sgd,
};
use half::f16;
use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

type Failure = Box<dyn Error>;

/// An input, and its bytes as the model takes them.
struct Given<'a> {
    input: Input<'a>,
    bytes: Vec<u8>,
}

impl<'a> Given<'a> {
    fn f32(shape: impl Into<Shape>, all: &'a [f32]) -> Self {
        Self { input: Input::f32(shape, all), bytes: all.iter().flat_map(|value| value.to_le_bytes()).collect() }
    }

    fn u8(shape: impl Into<Shape>, all: &'a [u8]) -> Self {
        Self { input: Input::u8(shape, all), bytes: all.to_vec() }
    }

    fn u32(shape: impl Into<Shape>, all: &'a [u32]) -> Self {
        let bytes = all.iter().flat_map(|&value| i64::from(value).to_le_bytes()).collect();
        Self { input: Input::u32(shape, all), bytes }
    }
}

/// Network with its own parameters.
struct Case {
    out: PathBuf,
    parameters: Parameters,
}

impl Case {
    fn new<M>(out: &Path, name: &str, build: impl FnOnce(&mut Scope<'_>) -> M) -> (Self, M) {
        let mut parameters = Parameters::seeded(1);
        let net = build(&mut parameters.at("net"));
        (Self { out: out.join(name), parameters }, net)
    }

    /// Trains for two steps, so that no bias is 0 and no running variance 1, and writes model, batch and answer.
    fn write<const N: usize>(
        self, given: [Given<'_>; N], net: impl for<'t> Fn([Var<'t>; N]) -> Var<'t>,
    ) -> Result<(), Failure> {
        let batch = given.each_ref().map(|given| given.input);
        let mut trainer = Trainer::new(Cpu::new(1)?, self.parameters, Sgd::new(0.05), Method::fp32())?;
        for _ in 0..2 {
            let gradients = trainer.backward(batch, |inputs| net(inputs).square().mean())?;
            trainer.step(gradients)?;
        }
        for (i, given) in given.iter().enumerate() {
            fs::write(self.out.with_extension(format!("input{i}.bin")), &given.bytes)?;
        }
        for (half, ending) in [(false, "onnx"), (true, "half.onnx")] {
            fs::write(self.out.with_extension(ending), trainer.onnx(batch, half, &net)?)?;
        }
        let answer = |trainer: &mut Trainer<Cpu>, ending: &str| -> Result<(), Failure> {
            let answer = trainer.evaluate(batch, &net)?;
            let bytes: Vec<u8> = answer.data.iter().flat_map(|value| value.to_le_bytes()).collect();
            Ok(fs::write(self.out.with_extension(ending), bytes)?)
        };
        answer(&mut trainer, "output.bin")?;
        // Learned parameters, rounded to FP16; running statistics are not changed.
        for (name, weights) in trainer.parameters()? {
            if !name.ends_with(".running") {
                let rounded: Vec<f32> = weights.data.iter().map(|&weight| f16::from_f32(weight).to_f32()).collect();
                trainer.set_parameter(&name, &rounded)?;
            }
        }
        answer(&mut trainer, "half.output.bin")
    }
}

fn images(
    out: &Path, name: &str, size: [usize; 4], build: impl FnOnce(&mut Scope<'_>) -> Box<dyn Module>,
) -> Result<(), Failure> {
    let (case, net) = Case::new(out, name, build);
    let pixels = bytes(size.iter().product());
    // Bytes, as `gradscale train` feeds them.
    case.write([Given::u8(size, &pixels)], |[x]| net.forward(x.affine(1.0 / 64.0, -2.0)))
}

fn main() -> Result<(), Failure> {
    let path = std::env::args().nth(1).ok_or("usage: onnx DIR")?;
    let out = Path::new(&path);
    fs::create_dir_all(out)?;
    let small = Scale::small(8);
    for architecture in Architecture::ALL {
        let build =
            |scope: &mut Scope<'_>| -> Box<dyn Module> { Box::new(Boxed(architecture.build(scope, 3, small, 7))) };
        images(out, architecture.name(), [2, 32, 32, 3], build)?;
    }
    let large = Scale { width: 4, small: false, dropout: true };
    images(out, "resnet-50-large", [1, 64, 64, 3], |scope| {
        Box::new(Boxed(Architecture::ResNet50.build(scope, 3, large, 7)))
    })?;
    images(out, "inception-v3-large", [1, 96, 96, 3], |scope| {
        Box::new(Boxed(Architecture::InceptionV3.build(scope, 3, large, 7)))
    })?;
    images(out, "segnet", [2, 45, 60, 3], |scope| Box::new(SegNet::new(scope, 3, 8, 5)))?;
    images(out, "segnet-vgg", [1, 32, 48, 3], |scope| Box::new(SegNetVgg::new(scope, 3, small, 5)))?;
    images(out, "resnet", [2, 28, 28, 1], |scope| Box::new(ResNet::new(scope, 1, 8, 2, 10)))?;
    images(out, "discriminator", [2, 32, 32, 3], |scope| Box::new(Discriminator::new(scope, 3, GanSize::small(8))))?;

    let numbers: Vec<f32> = (0..4000).map(|i| ((i * i % 199) as f32 - 99.0) / 64.0).collect();
    let tokens: Vec<u32> = (0..40).map(|i| i * i % 11).collect();
    let (case, net) = Case::new(out, "mlp", |scope| Mlp::new(scope, &[5, 16, 3]));
    case.write([Given::f32([4, 5], &numbers[..20])], |[x]| net.forward(x))?;
    let (case, net) = Case::new(out, "generator", |scope| Generator::new(scope, 3, GanSize::small(8)));
    let noise = GanSize::small(8).noise;
    case.write([Given::f32([2, noise], &numbers[..2 * noise])], |[x]| net.forward(x))?;
    let (case, net) = Case::new(out, "ssd", |scope| Ssd::new(scope, SsdSize::Ssd300, small, 4));
    let side = SsdSize::Ssd300.side(true);
    let pictures = bytes(side * side * 3);
    case.write([Given::u8([1, side, side, 3], &pictures)], |[x]| {
        let [scores, codes] = net.answers(x.affine(1.0 / 64.0, -2.0));
        scores.reshape([1, scores.shape().len()]).concat(&[codes.reshape([1, codes.shape().len()])], 3)
    })?;
    // Bins are means of points, and the largest of places.
    let narrow = Scale { width: 4, small: false, dropout: false };
    for (name, scale) in [("faster-rcnn", small), ("faster-rcnn-paper", narrow)] {
        let (case, net) = Case::new(out, name, |scope| FasterRcnn::new(scope, scale, 4));
        let side = FasterRcnn::side(true);
        let pictures = bytes(side * side * 3);
        // The last is of no image.
        let boxes = [0.0, 3.0, 4.0, 40.5, 33.0, 0.0, 10.0, 0.0, 60.0, 20.0, -1.0, 0.0, 0.0, 9.0, 9.0];
        case.write([Given::u8([1, side, side, 3], &pictures), Given::f32([3, 5], &boxes)], |[x, boxes]| {
            let x = x.affine(1.0 / 64.0, -2.0);
            let (told, proposed) = (net.told(x, boxes), net.proposed(x));
            told.reshape([1, told.shape().len()]).concat(&[proposed.reshape([1, proposed.shape().len()])], 3)
        })?;
    }

    let (case, net) = Case::new(out, "deepspeech", |scope| DeepSpeech::new(scope, 20, [4, 8, 2], 7));
    let (frames, steps) = ([24, 17], [24, 17].map(DeepSpeech::steps));
    let batch = [Given::f32([2, 24, 20, 1], &numbers[..960]), Given::u32([2], &frames), Given::u32([2], &steps)];
    case.write(batch, |[x, frames, steps]| net.logits(x, frames, steps))?;
    let (case, net) = Case::new(out, "seq2seq", |scope| Seq2Seq::new(scope, [11, 11], 8, 2));
    let batch = [Given::u32([2, 6], &tokens[..12]), Given::u32([2], &[6, 4]), Given::u32([2, 5], &tokens[12..22])];
    case.write(batch, |[source, lengths, target]| net.logits(source, lengths, target))?;
    let size = BigLstmSize { width: 8, hidden: 12, projection: 8, layers: 2, dropout: 0.0 };
    let (case, net) = Case::new(out, "biglstm", |scope| BigLstm::new(scope, 11, size));
    case.write([Given::u32([2, 6], &tokens[..12])], |[tokens]| net.logits(net.features(tokens, None).0))?;
    let size = DecoderSize { context: 10, width: 16, heads: 2, layers: 2, dropout: 0.0 };
    let (case, net) = Case::new(out, "decoder", |scope| Decoder::new(scope, 11, size));
    case.write([Given::u32([2, 9], &tokens[..18])], |[tokens]| net.logits(tokens))?;
    let (case, net) = Case::new(out, "decoder-rotary", |scope| Decoder::rotary(scope, 11, size));
    case.write([Given::u32([2, 9], &tokens[..18])], |[tokens]| net.logits(tokens))?;
    layers(out, &numbers)
}

/// Operators that no network above has.
fn layers(out: &Path, numbers: &[f32]) -> Result<(), Failure> {
    let (case, (group, layer, rms, gru)) = Case::new(out, "layers", |scope| {
        let group = GroupNorm::new(&mut scope.at("group"), 6, 3);
        let (layer, rms) = (LayerNorm::new(&mut scope.at("layer"), 6), RmsNorm::new(&mut scope.at("rms"), 6));
        (group, layer, rms, Gru::new(&mut scope.at("gru"), 6, 4, 1))
    });
    case.write([Given::f32([2, 5, 7, 6], &numbers[..420])], |[x]| {
        let x = group.forward(x).leaky_relu(0.1) + layer.forward(x).gelu() - rms.forward(x).silu().hardswish();
        let up = x.upsample_nearest([2, 3]).upsample_bilinear([7, 9], false) * x.mean();
        let down = up.adaptive_average_pool([3, 4]).clipped_relu(1.5).softplus() + up.adaptive_max_pool([3, 4]).tanh();
        let parts = down.split(3, &[2, 4]);
        let joined = parts[1].concat(&[parts[0]], 3).permute([0, 2, 1, 3]) / 3.0;
        let sequence = joined.reshape([2, 1, 12, 6]);
        gru.forward(sequence).log_softmax() + sequence.sum_axis(3).unary(Unary::Abs).pow(0.5)
    })?;
    let (case, (conv, norm, attention)) = Case::new(out, "sequences", |scope| {
        let conv = Conv1d::grouped(&mut scope.at("conv"), 6, 4, 3, 2).stride(2);
        let norm = InstanceNorm::new(&mut scope.at("norm"), 4);
        (conv, norm, CrossAttention::new(&mut scope.at("attention"), 4, 6, 2))
    });
    case.write(
        [
            Given::f32([2, 9, 6], &numbers[..108]),
            Given::u8([5, 9], &[[1, 0, 1], [0, 0, 0], [1, 1, 1]].concat().repeat(5)),
        ],
        |[x, mask]| {
            let mask = mask.reshape([1, 1, 5, 9]);
            attention.forward(norm.forward(conv.forward(x)), x, AttentionMask::Where(mask))
        },
    )?;
    let (case, linear) = Case::new(out, "choices", |scope| Linear::new(scope, 6, 6));
    case.write([Given::f32([2, 5, 7, 6], &numbers[..420]), Given::u8([7, 1], &[1, 0, 0, 1, 1, 0, 1])], |[x, mask]| {
        let x = linear.forward(x);
        let by_mask = mask.reshape([1, 1, 7, 1]).where_cond(x.sin(), x.cos());
        let by_size = by_mask.maximum(x).minimum(x.max_axis(1) - x.min_axis(3)).cumsum(2);
        let (values, places) = by_size.top_k(3, 2);
        values.concat(&[by_size, places.scale(1.0)], 3)
    })
}

/// Returns `count` bytes of all values.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i * i % 251).to_le_bytes()[0]).collect()
}

/// Network behind a trait object.
struct Boxed(Box<dyn gradscale::models::Vision>);

impl Module for Boxed {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.0.forward(x)
    }
}
