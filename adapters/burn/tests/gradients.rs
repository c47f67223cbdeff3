//! Compares gradients with those of burn's own autodiff in f32.

use crate::{
    numbers::{Random, error},
    tensors::{device, tensor, values},
};
use burn::{
    module::Param,
    nn::{
        Linear, LinearConfig, PaddingConfig2d,
        conv::{Conv2d, Conv2dConfig},
    },
    tensor::Tensor,
};
use gradscale_burn::{ScaledConv2d, ScaledLinear, Scaler, Site};

fn scaler() -> Scaler {
    Scaler::with_threads("gs", 1).expect("a method")
}

/// Computes the output, and the gradients of input, weight and bias for the output gradient `given`.
fn gradients<const D: usize, const W: usize>(
    x: &Tensor<D>, given: &Tensor<D>, weight: &Param<Tensor<W>>, bias: Option<&Param<Tensor<1>>>,
    forward: impl Fn(Tensor<D>) -> Tensor<D>,
) -> Vec<Vec<f32>> {
    let x = x.clone().require_grad();
    let y = forward(x.clone());
    let all = (y.clone() * given.clone()).sum().backward();
    let mut found = vec![values(&y), values(&x.grad(&all).expect("of x"))];
    found.push(values(&weight.val().grad(&all).expect("of the weight")));
    found.extend(bias.map(|bias| values(&bias.val().grad(&all).expect("of the bias"))));
    found
}

fn linear<const D: usize>(
    shape: [usize; D], outputs: usize, bias: bool, number: impl Fn() -> f32,
) -> [Vec<Vec<f32>>; 2] {
    let inputs = shape[D - 1];
    let mut plain: Linear = LinearConfig::new(inputs, outputs).with_bias(bias).init(&device());
    plain.weight = Param::from_tensor(tensor([inputs, outputs], &number));
    plain.bias = bias.then(|| Param::from_tensor(tensor([outputs], &number)));
    let mut to = shape;
    to[D - 1] = outputs;
    let (x, given) = (tensor(shape, &number), tensor(to, || number() * 2f32.powi(-30)));
    let scaled = ScaledLinear::new(plain.clone(), &scaler(), "layer").expect("a new name");
    let own = gradients(&x, &given, &scaled.linear.weight, scaled.linear.bias.as_ref(), |x| scaled.forward(x));
    [own, gradients(&x, &given, &plain.weight, plain.bias.as_ref(), |x| plain.forward(x))]
}

#[test]
fn a_linear_layer_has_every_bit_of_what_is_exact() {
    let random = Random::new(1);
    let exact = || random.integer();
    for bias in [true, false] {
        let all = [
            linear([5], 3, bias, exact),
            linear([1, 5], 3, bias, exact),
            linear([7, 6], 1, bias, exact),
            linear([2, 3, 4], 5, bias, exact),
            linear([2, 3, 2, 4], 2, bias, exact),
        ];
        for (at, [own, plain]) in all.iter().enumerate() {
            assert_eq!(own, plain, "case {at}, bias {bias}");
            assert!(own[1].iter().any(|&g| g != 0.0 && g.abs() < 2f32.powi(-25)), "what FP16 alone would flush");
        }
    }
}

#[test]
fn other_numbers_are_rounded_as_halves_are() {
    let random = Random::new(2);
    let [own, plain] = linear([16, 40], 24, true, || random.uniform());
    for (own, plain) in own.iter().zip(&plain) {
        let error = error(own, plain);
        assert!(0.0 < error && error < 2e-3, "{error}");
    }
}

fn conv(config: Conv2dConfig, batch: usize, size: [usize; 2]) {
    let random = Random::new(3);
    let exact = || random.integer();
    let mut plain: Conv2d = config.init(&device());
    plain.weight = Param::from_tensor(tensor(plain.weight.dims(), exact));
    plain.bias = plain.bias.map(|bias| Param::from_tensor(tensor(bias.dims(), exact)));
    let x = tensor([batch, config.channels[0], size[0], size[1]], exact);
    let given = tensor(plain.forward(x.clone()).dims(), || exact() * 2f32.powi(-28));
    let scaled = ScaledConv2d::new(plain.clone(), &scaler(), "layer").expect("a new name");
    let own = gradients(&x, &given, &scaled.conv.weight, scaled.conv.bias.as_ref(), |x| scaled.forward(x));
    let burns = gradients(&x, &given, &plain.weight, plain.bias.as_ref(), |x| plain.forward(x));
    assert_eq!(own, burns, "{config}");
}

#[test]
fn a_convolution_has_every_bit_of_what_is_exact() {
    conv(Conv2dConfig::new([2, 3], [3, 3]), 2, [6, 5]);
    conv(Conv2dConfig::new([2, 3], [3, 3]).with_bias(false).with_padding(PaddingConfig2d::Same), 1, [5, 6]);
    conv(Conv2dConfig::new([2, 3], [2, 4]).with_stride([2, 1]).with_padding(PaddingConfig2d::Same), 1, [7, 6]);
    conv(
        Conv2dConfig::new([2, 2], [3, 2]).with_stride([2, 3]).with_padding(PaddingConfig2d::Explicit(1, 0, 2, 1)),
        1,
        [6, 7],
    );
    conv(Conv2dConfig::new([4, 6], [3, 3]).with_groups(2).with_dilation([2, 1]), 1, [7, 5]);
    conv(Conv2dConfig::new([3, 2], [1, 1]), 3, [1, 4]);
}

/// Compares with a result computed by hand, for x and weights 0, 1, 2 …
#[test]
fn a_convolution_of_counted_numbers_is_the_known_one() {
    let counted = |shape: [usize; 4]| {
        let next = std::cell::Cell::new(-1f32);
        tensor(shape, || {
            next.set(next.get() + 1.0);
            next.get()
        })
    };
    let mut conv = Conv2dConfig::new([1, 1], [2, 2]).init(&device());
    conv.weight = Param::from_tensor(counted([1, 1, 2, 2]));
    let x = counted([1, 1, 3, 3]).require_grad();
    let scaled = ScaledConv2d::new(conv, &scaler(), "layer").expect("a new name");
    let all = scaled.forward(x.clone()).sum().backward();
    // Computed by hand: each input is multiplied with the taps that read it, and each tap with the sum of its inputs.
    assert_eq!(values(&x.grad(&all).expect("of x")), [0.0, 1.0, 1.0, 2.0, 6.0, 4.0, 2.0, 5.0, 3.0]);
    let weight = values(&scaled.conv.weight.val().grad(&all).expect("of the weight"));
    assert_eq!(weight, [8.0, 12.0, 20.0, 24.0]);
}

#[test]
fn a_branch_is_rounded_once_as_a_sum() {
    let scaler = scaler();
    let site = Site::new(&scaler, "branch").expect("a new name");
    let x = tensor([3, 2], || 1.0).require_grad();
    let h = site.forward(x.clone());
    // 1 + 2^-11 is between two halves, and so is the sum of both parts. If each part were rounded, the small one would
    // be kept exactly and added to 1.
    let all = (h.clone().sum() + (h * 2f32.powi(-11)).sum()).backward();
    assert_eq!(values(&x.grad(&all).expect("of x")), [1.0; 6]);
    assert_eq!(site.name(), "branch");
}

#[test]
fn f32_is_burns_own() {
    let random = Random::new(4);
    let scaler = Scaler::new("fp32").expect("a method");
    let plain = LinearConfig::new(5, 4).init(&device());
    let scaled = ScaledLinear::new(plain.clone(), &scaler, "layer").expect("a new name");
    let (x, given) = (tensor([3, 5], || random.uniform()), tensor([3, 4], || random.uniform()));
    let own = gradients(&x, &given, &scaled.linear.weight, None, |x| scaled.forward(x));
    assert_eq!(own, gradients(&x, &given, &plain.weight, None, |x| plain.forward(x)));
}

#[test]
fn evaluation_without_autodiff_rounds_operands_alone() {
    let random = Random::new(5);
    let linear = LinearConfig::new(5, 4).init(&device());
    let scaled = ScaledLinear::new(linear, &scaler(), "layer").expect("a new name");
    let x = tensor([3, 5], || random.uniform());
    let trained = values(&scaled.forward(x.clone()));
    assert_eq!(values(&burn::module::Module::valid(&scaled).forward(x.inner())), trained);
}

#[test]
fn sites_on_the_way_survive_checkpointing() {
    let random = Random::new(6);
    let scaler = scaler();
    let (first, second) = (Site::new(&scaler, "first").expect("new"), Site::new(&scaler, "second").expect("new"));
    let data = tensor::<1>([4], || random.uniform()).to_data();
    let gradient = |device: &burn::tensor::Device| {
        let x = Tensor::<1>::from_data(data.clone(), device).require_grad();
        let y = second.forward(burn::tensor::activation::relu(first.forward(x.clone() * 2.0) + 1.0).exp() * 1e-9);
        values(&x.grad(&y.sum().backward()).expect("of x"))
    };
    let own = gradient(&device());
    scaler.discard_pass();
    assert_eq!(gradient(&device().gradient_checkpointing()), own);
}

#[test]
#[should_panic(expected = "expected 5, got 4")]
fn another_number_of_inputs_is_burns_own_error() {
    let scaled = ScaledLinear::new(LinearConfig::new(5, 2).init(&device()), &scaler(), "layer").expect("a new name");
    let _ = scaled.forward(tensor([3, 4], || 1.0));
}

#[test]
#[should_panic(expected = "gradscale rounds f32 tensors to FP16, but this one is F64")]
fn other_types_are_refused_in_one_line() {
    let scaled = ScaledLinear::new(LinearConfig::new(5, 2).init(&device()), &scaler(), "layer").expect("a new name");
    let _ = scaled.forward(tensor([3, 5], || 1.0).cast(burn::tensor::DType::F64));
}
