//! Invalid networks and inputs are refused with an error that names the reason, and the training can continue.

use crate::corners::trainer;
use gradscale::{
    Error, Input, Parameters, TraceErrorKind, Var,
    gradscale_core::ops::ShapeError,
    nn::{Conv2d, ConvTranspose2d, Linear, LstmCell, Module, SelfAttention},
};

/// The sentence of such an error.
fn said(net: impl for<'t> FnOnce(Var<'t>) -> Var<'t>) -> String {
    let mut trainer = trainer(Parameters::seeded(1), "fp32");
    let y = trainer.evaluate([Input::f32([2, 3, 4, 6], &[0.0; 144])], |[x]| net(x));
    y.expect_err("it does not fit").to_string()
}

/// The error of a network over x `[2, 3, 4, 6]`.
fn refused(net: impl for<'t> FnOnce(Var<'t>) -> Var<'t>) -> TraceErrorKind {
    let mut trainer = trainer(Parameters::seeded(1), "fp32");
    match trainer.evaluate([Input::f32([2, 3, 4, 6], &[0.0; 144])], |[x]| net(x)) {
        Err(Error::Trace(error)) => error.kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn shapes_and_numbers_that_do_not_fit() {
    use TraceErrorKind::{Mismatch, Range, Shape};
    assert!(matches!(refused(|x| x.matmul(x)), Mismatch { .. }));
    assert!(matches!(refused(|x| x.matmul_transposed(x.slice(1, 0, 2))), Mismatch { .. }));
    assert!(matches!(refused(|x| x.attention("a", x, x.slice(2, 0, 1), false)), Mismatch { .. }));
    assert_eq!(refused(|x| x.slice(3, 0, 0).softmax()), Shape(ShapeError::Empty));
    assert_eq!(said(|x| x.permute([0, 1, 1, 3])), "permute: [0, 1, 1, 3] does not name each axis from 0 to 3 once");
    assert!(matches!(refused(|x| x.permute([0, 1, 2, 4])), Range(_)));
    assert_eq!(said(|x| x.split(3, &[2, 2])[0]), "split: [2, 2] do not add up to axis 3 of 2×3×4×6");
    assert_eq!(said(|x| x.split(4, &[6])[0]), "split: 4 is not an axis; 0 is n, 1 h, 2 w, 3 c");
    assert!(matches!(refused(|x| x.split(3, &[usize::MAX, 7])[0]), Range(_)));
    assert_eq!(said(|x| x.slice(2, 3, 2)), "slice: 2 elements from 3 exceed axis 2 of 2×3×4×6");
    assert_eq!(said(|x| x.concat(&[x], 4)), "concat: 4 is not an axis; 0 is n, 1 h, 2 w, 3 c");
    let window = "max_pool: the window does not fit the input; the input is 2×3×4×6 (n × h × w × c)";
    assert_eq!(said(|x| x.max_pool([9, 9])), window);
    assert_eq!(refused(|x| x.upsample_nearest([0, 1])), Shape(ShapeError::Window));
    assert_eq!(refused(|x| x.upsample_nearest([1 << 20, 1 << 20])), Shape(ShapeError::TooLarge));
    assert_eq!(refused(|x| x.upsample_bilinear([0, 3], false)), Shape(ShapeError::Window));
    assert_eq!(refused(|x| x.upsample_bilinear([1 << 31, 1 << 31], true)), Shape(ShapeError::TooLarge));
    assert_eq!(refused(|x| x.slice(1, 0, 0).upsample_bilinear([2, 2], false)), Shape(ShapeError::Window));
    assert_eq!(refused(|x| x.adaptive_average_pool([0, 1])), Shape(ShapeError::Window));
    assert_eq!(refused(|x| x.slice(1, 0, 0).adaptive_average_pool([1, 1])), Shape(ShapeError::Window));
    assert_eq!(refused(|x| x.adaptive_max_pool([3, 0])), Shape(ShapeError::Window));
    assert!(matches!(refused(|x| x.smooth_l1_loss(x, 0.0)), Shape(ShapeError::Value(_))));
    assert!(matches!(refused(|x| x.smooth_l1_loss(x, f32::NAN)), Shape(ShapeError::Value(_))));
    assert!(matches!(refused(|x| x.focal_loss(x, 1.5, 2.0)), Shape(ShapeError::Value(_))));
    assert!(matches!(refused(|x| x.focal_loss(x, 0.5, -1.0)), Shape(ShapeError::Value(_))));
    assert!(matches!(refused(|x| x.bce_with_logits(x.slice(3, 0, 5))), Mismatch { .. }));
    assert!(matches!(refused(|x| x.layer_norm("n", 0.0, [x.slice(0, 0, 0); 2])), Shape(ShapeError::Value(_))));
    assert!(matches!(refused(|x| x.rms_norm("n", 1e-5, x)), Mismatch { .. }));
    assert!(matches!(refused(|x| x.dropout(1.0)), Shape(ShapeError::Value(_))));
    assert!(matches!(refused(|x| x.embedding("e", x)), Mismatch { .. }));
    assert!(matches!(refused(|x| x.where_cond(x, x.slice(2, 0, 3))), Mismatch { .. }));
    assert!(matches!(refused(|x| x.slice(3, 1, 5).where_cond(x, x)), Mismatch { .. }));
    assert!(matches!(refused(|x| x.softmax_where(x.slice(3, 0, 2))), Mismatch { .. }));
    assert!(matches!(refused(|x| x.minimum(x.slice(0, 0, 0))), Mismatch { .. }));
    assert_eq!(refused(|x| x.slice(3, 0, 0).max_axis(3)), Shape(ShapeError::Empty));
    assert_eq!(said(|x| x.min_axis(4)), "min: 4 is not an axis; 0 is n, 1 h, 2 w, 3 c");
    assert!(matches!(refused(|x| x.cumsum(usize::MAX)), Range(_)));
    let beyond = "top_k: expected k from 1 to 6, the size of axis 3, not 7";
    assert_eq!(said(|x| x.top_k(3, 7).0), beyond);
    assert!(matches!(refused(|x| x.top_k(3, 0).0), Range(_)));
    assert_eq!(said(|x| x.reshape([2, 70])), "reshape: 144 elements do not fit the shape 2×70");
    let unpooled = "unpool: its second operand must be the result of a max-pooling";
    assert_eq!(said(|x| x.unpool(x)), unpooled);
}

/// Messages name the operand, its shape and the layout that it should have.
#[test]
fn operands_are_named() {
    assert_eq!(said(|x| x.matmul(x)), "matmul: right operand [2, 3, 4, 6], expected [2, 3, 6, _] (n, h, w, c)");
    let transposed = "matmul: right operand [2, 2, 4, 6], expected [2, 3, _, 6] (n, h, w, c)";
    assert_eq!(said(|x| x.matmul_transposed(x.slice(1, 0, 2))), transposed);
    let sum = "add: right operand [2, 3, 4, 5], expected [2, 3, 4, 6] (n, h, w, c)";
    assert_eq!(said(|x| x + x.slice(3, 0, 5)), sum);
    let labels = "cross_entropy: labels [2, 3, 4, 6], expected [2, 3, 4, 1] (n, h, w, c)";
    assert_eq!(said(|x| x.cross_entropy(x)), labels);
    assert_eq!(
        said(|x| x.roi_pool(x, [1, 1], 1.0)),
        "roi_pool: boxes [2, 3, 4, 6], expected [_, 1, 1, 5] (n, h, w, c)"
    );
}

/// Layers say what they are and what they expect; images with channels in the second place and integers are named.
#[test]
fn layers_name_their_input() {
    let mut parameters = Parameters::seeded(1);
    let conv = Conv2d::new(&mut parameters.at("conv"), 3, 4, 3);
    let up = ConvTranspose2d::new(&mut parameters.at("up"), 3, 4, 3);
    let linear = Linear::new(&mut parameters.at("head"), 3, 4);
    let mut trainer = trainer(parameters, "fp32");
    let mut said = |batch: Input<'_>, layer: &dyn Module| {
        trainer.evaluate([batch], |[x]| layer.forward(x)).expect_err("refused").to_string()
    };
    let x = [0.0; 2 * 3 * 4 * 6];
    let first = || Input::f32([2, 3, 4, 6], &x);
    let expected = "input [2, 3, 4, 6], expected [_, _, _, 3] (n, h, w, c); channels come last";
    assert_eq!(said(first(), &conv), format!("Conv2d conv: {expected}"));
    assert_eq!(said(first(), &up), format!("ConvTranspose2d up: {expected}"));
    assert_eq!(said(first(), &linear), format!("Linear head: {expected}"));
    assert_eq!(said(Input::f32([2, 8], &x[..16]), &linear), "Linear head: input [2, 8], expected [_, 3]");
    let tokens = [1u32, 2, 3, 4];
    assert_eq!(said(Input::u32([4], &tokens), &linear), "Linear head: input [4, 1] of u32 integers, expected [_, 3]");
}

#[test]
fn layers_that_do_not_fit() {
    let mut parameters = Parameters::seeded(1);
    let mut scope = parameters.at("net");
    let up = |scope: &mut gradscale::Scope<'_>, name: &str| ConvTranspose2d::new(&mut scope.at(name), 6, 2, 3);
    let cut = up(&mut scope, "cut").pad(9);
    let still = up(&mut scope, "still").stride(0);
    let extra = up(&mut scope, "extra").stride(2).extra(2);
    let attention = SelfAttention::new(&mut scope.at("attention"), 6, 4);
    let cell = LstmCell::new(&mut scope.at("cell"), 6, 5);
    let mut trainer = trainer(parameters, "fp32");
    let x = [0.0; 144];
    for layer in [&cut as &dyn Module, &still, &extra, &attention] {
        let error = trainer.evaluate([Input::f32([2, 3, 4, 6], &x)], |[x]| layer.forward(x));
        assert!(matches!(error, Err(Error::Trace(_))), "{error:?}");
    }
    let error = trainer.evaluate([Input::f32([4, 6], &x[..24])], |[x]| cell.forward(x, [x; 2])[0]);
    assert!(matches!(error, Err(Error::Trace(_))), "{error:?}");
}

/// Indices are words. A network that cannot be compiled leaves no state that another network would notice.
#[test]
fn a_refused_network_leaves_nothing() {
    let mut trainer = trainer(Parameters::seeded(1), "fp32");
    let (table, bytes, words) = ([1.0, 2.0, 3.0, 4.0], [1u8, 0], [1u32, 0]);
    // The mask of a causal softmax is a constant of the program that is then refused.
    let table = || Input::f32([2, 2], &table);
    let error = trainer.evaluate([table(), Input::u8([2], &bytes)], |[table, indices]| {
        let weights = table.reshape([1, 1, 2, 2]).causal_softmax();
        weights.matmul(table.embedding("e", indices).reshape([1, 1, 2, 2]))
    });
    match error {
        Err(error) => assert_eq!(error.to_string(), "e: indices must be u32, not u8"),
        Ok(y) => panic!("{y:?}"),
    }
    let y = trainer.evaluate([table(), Input::u32([2], &words)], |[table, indices]| {
        let weights = table.reshape([1, 1, 2, 2]).causal_softmax();
        weights.matmul(table.embedding("e", indices).reshape([1, 1, 2, 2]))
    });
    let y = y.unwrap().data;
    // The second row's weights are 1/(1 + e) and e/(1 + e) of (3, 4) and (1, 2).
    let right = [3.0, 4.0, 1.0 + 2.0 / (1.0 + 1f32.exp()), 2.0 + 2.0 / (1.0 + 1f32.exp())];
    assert!(y.iter().zip(right).all(|(y, right)| (y - right).abs() < 1e-6), "{y:?}");
}

/// Of several invalid operators the error names the first, and later ones operate on a placeholder.
#[test]
fn the_first_of_several() {
    let first = "concat: part [2, 3, 4, 5], expected [_, 3, 4, 6] (n, h, w, c)";
    fn wrong(x: Var<'_>) -> Var<'_> {
        x.concat(&[x.slice(3, 0, 5)], 0)
    }
    assert_eq!(said(|x| wrong(x).named("lost").matmul(x).permute([0, 0, 0, 0])), first);
    // A loop over a shape ends, and parts can be counted on.
    let shrunk = said(|x| {
        let mut y = wrong(x);
        while y.shape().sizes()[1] > 1 {
            y = y.max_pool([2, 2]);
        }
        let parts = y.split(3, &[2, 4]);
        parts[0] + parts[1]
    });
    assert_eq!(shrunk, first);
    // An error that does not reach the output is one as well.
    let beside = said(|x| {
        let _ = wrong(x).relu();
        x.mean()
    });
    assert_eq!(beside, first);
}

#[test]
fn a_layer_that_refuses() {
    fn odd(x: Var<'_>) -> Var<'_> {
        if x.shape().channels() == 6 { x.bail("net.odd", "six channels are too many") } else { x }
    }
    assert_eq!(said(odd), "net.odd: six channels are too many");
    assert_eq!(said(|x| odd(x).slice(3, 0, 9)), "net.odd: six channels are too many");
    let mut trainer = trainer(Parameters::seeded(1), "fp32");
    assert_eq!(trainer.evaluate([Input::f32([1, 5], &[3.0; 5])], |[x]| odd(x)).expect("five fit").data, [3.0; 5]);
}

#[test]
fn numbers_and_values() {
    type Net = fn(Var<'_>) -> Var<'_>;
    let mut trainer = trainer(Parameters::seeded(1), "fp32");
    let mut of = |net: Net| trainer.evaluate([Input::f32([3], &[1.0, -2.0, 8.0])], |[x]| net(x));
    let cases: [(Net, [f32; 3]); 10] = [
        (|x| x + 2.0, [3.0, 0.0, 10.0]),
        (|x| x - 2.0, [-1.0, -4.0, 6.0]),
        (|x| 2.0 - x, [1.0, 4.0, -6.0]),
        (|x| x * 3.0, [3.0, -6.0, 24.0]),
        (|x| 3.0 * x, [3.0, -6.0, 24.0]),
        (|x| x / 4.0, [0.25, -0.5, 2.0]),
        (|x| -x, [-1.0, 2.0, -8.0]),
        (|x| x - x * x, [0.0, -6.0, -56.0]),
        (|x| x / x.sum(), [1.0 / 7.0, -2.0 / 7.0, 8.0 / 7.0]),
        (|x| (x + 1.0) * 0.5 - x / 2.0, [0.5; 3]),
    ];
    for (net, right) in cases {
        assert_eq!(of(net).expect("it fits").data, right);
    }
}
