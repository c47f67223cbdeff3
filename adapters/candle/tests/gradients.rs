//! Compares gradients with those of candle's own autograd in f32.

use crate::{
    numbers::{Random, error},
    tensors::{tensor, values, var},
};
use candle_core::{DType, Module, Result, Tensor, Var};
use candle_nn::{Conv2d, Conv2dConfig, Linear};
use gradscale_candle::{ScaledConv2d, ScaledLinear, Scaler, Site};

fn scaler() -> Scaler {
    Scaler::with_threads("gs", 1).expect("a method")
}

/// Computes the output, and the gradients of all parameters for the output gradient `given`.
fn gradients(parameters: &[&Var], given: &Tensor, y: Result<Tensor>) -> Vec<Vec<f32>> {
    let y = y.expect("an output");
    let all = (&y * given).and_then(|product| product.sum_all()?.backward()).expect("gradients");
    let of = |var: &&Var| values(all.get(var).expect("a gradient"));
    std::iter::once(values(&y)).chain(parameters.iter().map(of)).collect()
}

fn linear(shape: &[usize], outputs: usize, bias: bool, number: impl Fn() -> f32) -> [Vec<Vec<f32>>; 2] {
    let inputs = shape[shape.len() - 1];
    let (x, weight) = (var(shape, &number), var((outputs, inputs), &number));
    let bias = bias.then(|| var(outputs, &number));
    let to = [&shape[..shape.len() - 1], &[outputs]].concat();
    let given = tensor(to, || number() * 2f32.powi(-30));
    let plain = Linear::new(weight.as_tensor().clone(), bias.as_ref().map(|bias| bias.as_tensor().clone()));
    let scaled = ScaledLinear::new(plain.clone(), &scaler(), "layer").expect("a new name");
    let parameters: Vec<&Var> = [&x, &weight].into_iter().chain(&bias).collect();
    [gradients(&parameters, &given, scaled.forward(&x)), gradients(&parameters, &given, plain.forward(&x))]
}

#[test]
fn a_linear_layer_has_every_bit_of_what_is_exact() {
    let random = Random::new(1);
    let exact = || random.integer();
    for bias in [true, false] {
        let all = [
            linear(&[1, 5], 3, bias, exact),
            linear(&[7, 6], 1, bias, exact),
            linear(&[2, 3, 4], 5, bias, exact),
            linear(&[2, 3, 2, 4], 2, bias, exact),
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
    let [own, plain] = linear(&[16, 40], 24, true, || random.uniform());
    for (own, plain) in own.iter().zip(&plain) {
        let error = error(own, plain);
        assert!(0.0 < error && error < 2e-3, "{error}");
    }
}

fn conv(config: Conv2dConfig, weight: [usize; 4], batch: usize, size: [usize; 2], bias: bool) {
    let random = Random::new(3);
    let exact = || random.integer();
    let (x, bias) =
        (var((batch, weight[1] * config.groups, size[0], size[1]), exact), bias.then(|| var(weight[0], exact)));
    let weight = var(weight.as_slice(), exact);
    let plain = Conv2d::new(weight.as_tensor().clone(), bias.as_ref().map(|bias| bias.as_tensor().clone()), config);
    let given = tensor(plain.forward(&x).expect("an output").shape(), || exact() * 2f32.powi(-28));
    let scaled = ScaledConv2d::new(plain.clone(), &scaler(), "layer").expect("a new name");
    let parameters: Vec<&Var> = [&x, &weight].into_iter().chain(&bias).collect();
    let [own, candles] = [scaled.forward(&x), plain.forward(&x)].map(|y| gradients(&parameters, &given, y));
    assert_eq!(own, candles, "{config:?}");
}

#[test]
fn a_convolution_has_every_bit_of_what_is_exact() {
    let config = Conv2dConfig::default();
    conv(config, [3, 2, 3, 3], 2, [6, 5], true);
    conv(Conv2dConfig { padding: 1, ..config }, [3, 2, 3, 3], 1, [5, 6], false);
    conv(Conv2dConfig { stride: 2, padding: 1, ..config }, [3, 2, 2, 2], 1, [6, 6], true);
    conv(Conv2dConfig { groups: 2, ..config }, [6, 2, 3, 3], 1, [6, 5], true);
    conv(Conv2dConfig { dilation: 2, ..config }, [2, 3, 2, 2], 1, [6, 5], true);
    conv(config, [2, 3, 1, 1], 3, [1, 4], true);
}

#[test]
fn a_branch_is_rounded_once_as_a_sum() {
    let scaler = scaler();
    let site = Site::new(&scaler, "branch").expect("a new name");
    let x = var((3, 2), || 1.0);
    let h = site.forward(&x).expect("as it is");
    // 1 + 2^-11 is between two halves. If each part were rounded, the small one would be kept exactly and added to 1.
    let both = h.sum_all().and_then(|sum| sum + (h * f64::from(2f32.powi(-11)))?.sum_all()?);
    let all = both.and_then(|loss| loss.backward()).expect("gradients");
    assert_eq!(values(all.get(&x).expect("of x")), [1.0; 6]);
    assert_eq!(site.name(), "branch");
}

/// Shows why operands are not rounded by candle's casts: these flush gradients, and ours do not.
#[test]
fn candles_own_casts_flush_gradients() {
    let x = var(4, || 1.0);
    let loss = x.to_dtype(DType::F16).and_then(|half| (half.to_dtype(DType::F32)? * 1e-9)?.sum_all());
    let all = loss.and_then(|loss| loss.backward()).expect("gradients");
    assert_eq!(values(all.get(&x).expect("of x")), [0.0; 4]);
}

#[test]
fn f32_is_candles_own() {
    let random = Random::new(4);
    let scaler = Scaler::new("fp32").expect("a method");
    let (x, weight) = (var((3, 5), || random.uniform()), var((4, 5), || random.uniform()));
    let plain = Linear::new(weight.as_tensor().clone(), None);
    let scaled = ScaledLinear::new(plain.clone(), &scaler, "layer").expect("a new name");
    let given = tensor((3, 4), || random.uniform());
    let [own, candles] = [scaled.forward(&x), plain.forward(&x)].map(|y| gradients(&[&x, &weight], &given, y));
    assert_eq!(own, candles);
}

#[test]
fn a_transposed_input_is_taken_as_it_is() {
    let random = Random::new(5);
    let (x, weight) = (var((5, 3), || random.integer()), var((4, 5), || random.integer()));
    let scaled = ScaledLinear::new(Linear::new(weight.as_tensor().clone(), None), &scaler(), "layer").expect("new");
    let given = tensor((3, 4), || random.integer());
    let own = gradients(&[&x, &weight], &given, x.t().and_then(|x| scaled.forward(&x)));
    let candles = gradients(&[&x, &weight], &given, x.t().and_then(|x| x.matmul(&weight.t()?)));
    assert_eq!(own, candles);
}

#[test]
fn wrong_shapes_and_types_are_errors_of_one_line() {
    let scaled = ScaledLinear::new(Linear::new(tensor((2, 5), || 1.0), None), &scaler(), "layer").expect("a new name");
    let of =
        |x: Tensor| scaled.forward(&x).expect_err("an error").to_string().lines().next().unwrap_or_default().to_owned();
    assert!(of(tensor((3, 4), || 1.0)).contains("shape mismatch in matmul"));
    let doubles = tensor((3, 5), || 1.0).to_dtype(DType::F64).expect("f64");
    assert!(of(doubles).contains("gradscale rounds f32 tensors to FP16, but this one is F64"));
}
