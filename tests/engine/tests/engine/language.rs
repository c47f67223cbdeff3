//! Language models against PyTorch (`tests/golden/language.py`): LSTM with projection, sampled softmax, a decoder and its
//! cache.

use crate::{
    corners::{self, trainer},
    golden::numbers,
};
use gradscale::{
    Cpu, Input, Parameters, Scope, Tensor, TorchModule, Trainer, Var,
    models::{BigLstm, BigLstmSize, Cache, Cached, Decoder, DecoderSize},
    nn::{Candidate, Lstm},
};
use safetensors::{Dtype, tensor::TensorView};
use std::collections::BTreeMap;

const TABLE: &str = include_str!("../../../golden/language.txt");

/// Shapes and values of a case by key.
struct Case(BTreeMap<&'static str, (Vec<usize>, &'static str)>);

impl Case {
    fn of(name: &str) -> Self {
        let mut all = BTreeMap::new();
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let mut parts = line.split('\t');
            let [case, key, shape, values] = [(); 4].map(|()| parts.next().expect("four columns"));
            if case == name {
                all.insert(key, (numbers(shape), values));
            }
        }
        Self(all)
    }

    fn floats(&self, key: &str) -> Vec<f32> {
        numbers(self.0[key].1)
    }

    fn words(&self, key: &str) -> Vec<u32> {
        numbers(self.0[key].1)
    }

    /// Returns the `state_dict` that PyTorch would have saved.
    fn state_dict(&self) -> Vec<u8> {
        let all = self.0.iter().filter_map(|(key, (shape, values))| {
            let bytes: Vec<u8> = numbers::<f32>(values).into_iter().flat_map(f32::to_le_bytes).collect();
            Some((key.strip_prefix("state_dict.")?, shape.clone(), bytes))
        });
        let all: Vec<_> = all.collect();
        let views = all
            .iter()
            .map(|(name, shape, bytes)| (*name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("a tensor")));
        safetensors::serialize(views, None).expect("a file")
    }

    /// A trainer of parameters that have this case's values.
    fn trainer(&self, mut parameters: Parameters, method: &str) -> Trainer<Cpu> {
        let torch =
            |layer: &str| Some(Decoder::torch(layer.strip_prefix("net").expect("of net").trim_start_matches('.')));
        let imported = parameters.import_torch(&self.state_dict(), torch).expect("weights");
        assert!(imported.is_complete(), "{imported}");
        trainer(parameters, method)
    }

    /// Checks the loss and the gradients of all parameters.
    fn check<const N: usize>(
        &self, trainer: &mut Trainer<Cpu>, batch: [Input<'_>; N], net: impl for<'t> Fn([Var<'t>; N]) -> Var<'t>,
    ) {
        let gradients = trainer.backward(batch, net).expect("it fits");
        let mut far = 0f64;
        let mut count = 0;
        for key in self.0.keys().filter_map(|key| key.strip_prefix("gradient.")) {
            // Names of parameters are PyTorch's but for attention.
            let here = key.replace("self_attn.in_proj_", "self_attn.in.").replace("out_proj", "out");
            let here =
                if here.contains("norm") { here.replace("weight", "scale").replace("bias", "shift") } else { here };
            let gradient = trainer.gradient(&gradients, &format!("net.{here}")).expect("a parameter");
            let off = distance(&gradient.expect("a gradient").data, &self.floats(&format!("gradient.{key}")));
            assert!(off < 1e-5, "{key}: {off:e}");
            (far, count) = (far.max(off), count + 1);
        }
        let outcome = trainer.step(gradients).expect("a step");
        let loss = distance(&[outcome.loss], &self.floats("loss"));
        println!("{count} gradients: {far:.1e}, loss {loss:.1e}");
        assert!(count > 7 && loss < 1e-6, "{loss:e}");
    }
}

/// The largest difference, relative to the largest value.
fn distance(found: &[f32], right: &[f32]) -> f64 {
    assert_eq!(found.len(), right.len());
    let largest = right.iter().fold(0f64, |most, &x| most.max(f64::from(x).abs()));
    let differences = found.iter().zip(right).map(|(&x, &y)| (f64::from(x) - f64::from(y)).abs());
    let worst = differences.fold(0f64, |most, x| if x.is_nan() { f64::INFINITY } else { most.max(x) });
    if worst == 0.0 { 0.0 } else { worst / largest }
}

#[test]
fn lstm_with_projection() {
    let case = Case::of("lstm");
    let mut parameters = Parameters::seeded(1);
    let net = Lstm::projected(&mut parameters.at("net"), 3, [5, 2], 2);
    let mut trainer = case.trainer(parameters, "fp32");
    let [x, h, c, t, th, tc] = ["x", "h0", "c0", "t", "th", "tc"].map(|key| case.floats(key));
    let batch = [
        Input::f32([2, 4, 3], &x),
        Input::f32([2, 2, 2], &h),
        Input::f32([2, 2, 5], &c),
        Input::f32([2, 4, 2], &t),
        Input::f32([2, 2, 2], &th),
        Input::f32([2, 2, 5], &tc),
    ];
    case.check(&mut trainer, batch, |[x, h, c, t, th, tc]| {
        let (y, [h, c]) = net.sequence(x, Some([h, c]), None);
        let _ = (y.output("y"), h.output("h"), c.output("c"));
        (y * t).sum() + (h * th).sum() + (c * tc).sum()
    });
    for key in ["y", "h", "c"] {
        let far = distance(&trainer.output(key).expect("named").data, &case.floats(key));
        assert!(far < 1e-5, "{key}: {far:e}");
    }
    let wrong = [Input::f32([2, 4, 3], &x), Input::f32([2, 2, 5], &c)];
    let error = trainer.evaluate(wrong, |[x, h]| net.sequence(x, Some([h, h]), None).0).expect_err("h is projected");
    assert_eq!(error.to_string(), "net: state [2, 1, 2, 5], expected [2, 1, 2, 2] (n, h, w, c)");
}

fn biglstm() -> (Parameters, BigLstm) {
    let mut parameters = Parameters::seeded(1);
    let size = BigLstmSize { width: 4, hidden: 6, projection: 3, layers: 2, dropout: 0.0 };
    let net = BigLstm::new(&mut parameters.at("net"), 17, size);
    (parameters, net)
}

#[test]
fn biglstm_with_the_whole_softmax() {
    let case = Case::of("biglstm");
    let (parameters, net) = biglstm();
    assert_eq!(net.state(3).map(|shape| shape.sizes()), [[2, 1, 3, 3], [2, 1, 3, 6]]);
    let mut trainer = case.trainer(parameters, "fp32");
    let [tokens, targets] = ["tokens", "targets"].map(|key| case.words(key));
    let batch = [Input::u32([2, 5], &tokens), Input::u32([2, 5], &targets)];
    case.check(&mut trainer, batch, |[tokens, targets]| {
        let logits = net.logits(net.features(tokens, None).0);
        let _ = logits.output("logits");
        logits.cross_entropy(targets)
    });
    let far = distance(&trainer.output("logits").expect("named").data, &case.floats("logits"));
    assert!(far < 1e-5, "{far:e}");
}

#[test]
fn biglstm_with_sampled_softmax() {
    let case = Case::of("sampled");
    let [tokens, targets, classes] = ["tokens", "targets", "classes"].map(|key| case.words(key));
    let [of_classes, of_labels] = ["of_classes", "of_labels"].map(|key| case.floats(key));
    let place = |label: &u32| classes.iter().position(|class| class == label).map_or(7, |place| place + 1);
    let hits: Vec<u32> = targets.iter().map(|label| u32::try_from(place(label)).expect("few")).collect();
    assert!(hits.iter().filter(|&&hit| hit < 7).count() >= 3, "labels that were drawn: {hits:?}");
    let batch = || {
        [
            Input::u32([2, 5], &tokens),
            Input::u32([10], &targets),
            Input::f32([10], &of_labels),
            Input::u32([6], &classes),
            Input::f32([6], &of_classes),
            Input::u32([10], &hits),
            Input::u8([10], &[0; 10]),
        ]
    };
    let (parameters, net) = biglstm();
    let mut trainer = case.trainer(parameters.clone(), "fp32");
    case.check(&mut trainer, batch(), |[tokens, labels, of_labels, classes, of_classes, hits, first]| {
        let of = Candidate { labels, of_labels, classes, of_classes, hits, first };
        net.sampled_loss(net.features(tokens, None).0, &of)
    });
    // In half the results agree to its rounding, with the causal mask.
    for method in ["gs", "gs:amp=O2", "dynamic:amp=O2"] {
        let mut trainer = case.trainer(parameters.clone(), method);
        let gradients = trainer.backward(batch(), |[tokens, labels, of_labels, classes, of_classes, hits, first]| {
            let of = Candidate { labels, of_labels, classes, of_classes, hits, first };
            net.sampled_loss(net.features(tokens, None).0, &of)
        });
        let outcome = trainer.step(gradients.expect("it fits")).expect("a step");
        let right = case.floats("loss")[0];
        assert!((outcome.loss - right).abs() < 0.01 * right, "{method}: {} {right}", outcome.loss);
    }
}

#[test]
fn decoder_with_a_tied_table() {
    let case = Case::of("decoder");
    let mut parameters = Parameters::seeded(1);
    let size = DecoderSize { context: 6, width: 4, heads: 2, layers: 2, dropout: 0.0 };
    let net = Decoder::new(&mut parameters.at("net"), 11, size);
    let mut trainer = case.trainer(parameters, "fp32");
    let [tokens, targets] = ["tokens", "targets"].map(|key| case.words(key));
    let batch = [Input::u32([2, 5], &tokens), Input::u32([2, 5], &targets)];
    case.check(&mut trainer, batch, |[tokens, targets]| {
        let logits = net.logits(tokens);
        let _ = logits.output("logits");
        logits.cross_entropy(targets)
    });
    let far = distance(&trainer.output("logits").expect("named").data, &case.floats("logits"));
    assert!(far < 1e-5, "{far:e}");
    let long = [Input::u32([1, 7], &[0; 7])];
    let error = trainer.evaluate(long, |[tokens]| net.logits(tokens)).expect_err("seven places of six");
    assert!(error.to_string().contains("exceed axis 2"), "{error}");
}

#[test]
fn decoder_with_rotary_positions() {
    let case = Case::of("rotary");
    let mut parameters = Parameters::seeded(1);
    let size = DecoderSize { context: 9, width: 4, heads: 1, layers: 1, dropout: 0.0 };
    let net = Decoder::rotary(&mut parameters.at("net"), 7, size);
    assert_eq!(parameters.names().filter(|name| name.contains("places")).count(), 0);
    let mut trainer = case.trainer(parameters, "fp32");
    let [tokens, targets] = ["tokens", "targets"].map(|key| case.words(key));
    let batch = [Input::u32([2, 6], &tokens), Input::u32([2, 6], &targets)];
    case.check(&mut trainer, batch, |[tokens, targets]| {
        let logits = net.logits(tokens);
        let _ = logits.output("logits");
        logits.cross_entropy(targets)
    });
    let far = distance(&trainer.output("logits").expect("named").data, &case.floats("logits"));
    assert!(far < 1e-5, "{far:e}");
    let mut parameters = Parameters::seeded(1);
    let odd = Decoder::rotary(&mut parameters.at("net"), 7, DecoderSize { width: 6, heads: 2, ..size });
    let error = corners::trainer(parameters, "fp32").evaluate([Input::u32([1, 2], &[0; 2])], |[x]| odd.logits(x));
    assert!(error.expect_err("three channels").to_string().contains("heads of an even width"));
}

/// Token by token with a cache: the logits of the whole, up to the end of the context.
#[test]
fn a_cache_changes_nothing() {
    let learned: fn(&mut Scope<'_>, usize, DecoderSize) -> Decoder = Decoder::new;
    for (build, method, bound) in
        [(learned, "fp32", 1e-6), (learned, "gs", 2e-3), (Decoder::rotary, "fp32", 2e-6), (Decoder::rotary, "gs", 4e-3)]
    {
        let mut parameters = Parameters::seeded(3);
        let size = DecoderSize { context: 6, width: 8, heads: 2, layers: 3, dropout: 0.5 };
        let net = build(&mut parameters.at("net"), 11, size);
        let mut trainer = trainer(parameters, method);
        // Weights of a size that makes attention attend.
        let values = trainer.parameters().expect("values");
        for (name, Tensor { data, .. }) in values.iter().filter(|(name, _)| name.ends_with("weight")) {
            let larger: Vec<f32> = data.iter().map(|x| 20.0 * x).collect();
            trainer.set_parameter(name, &larger).expect("a parameter");
        }
        let tokens: Vec<u32> = (0..12).map(|i| i * 7 % 11).collect();
        let whole = trainer.evaluate([Input::u32([2, 6], &tokens)], |[tokens]| net.logits(tokens)).expect("it fits");
        let mut cache = net.cache(2);
        for place in 0..6 {
            assert_eq!(cache.places_left(), 6 - place);
            let [past, mask, at] = cache.inputs();
            let now = [tokens[place], tokens[6 + place]];
            let logits = trainer.evaluate([Input::u32([2], &now), past, mask, at], |[tokens, past, mask, place]| {
                net.next(tokens, &Cached { past, mask, place })
            });
            let found = logits.expect("it fits").data;
            cache.push(&trainer.output(Cache::NEW).expect("named"));
            let right: Vec<f32> =
                [0, 1].iter().flat_map(|n| &whole.data[(n * 6 + place) * 11..][..11]).copied().collect();
            let far = distance(&found, &right);
            assert!(far < bound, "{method}, place {place}: {far:e}");
        }
        assert_eq!(cache.places_left(), 0);
    }
}

/// The embedding table and the output layer share one parameter, whose gradients are added.
#[test]
fn names_of_layers_in_torch() {
    let named = |layer: &str| Decoder::torch(layer);
    assert_eq!(named("layers.1.self_attn.in"), TorchModule::named("layers.1.self_attn").in_projection());
    assert_eq!(named("layers.1.self_attn.out"), TorchModule::named("layers.1.self_attn.out_proj"));
    assert_eq!(named("lstm.in"), TorchModule::named("lstm.in"));
}
