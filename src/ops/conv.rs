//! Convolutions and transposed convolutions.

use super::linear::vjp_of_bias;
#[cfg(feature = "onnx")]
use crate::onnx::{Is, Writer};
use crate::{
    Shape, TraceError, Var,
    graph::{BufferId, Context, Gradient, Operation, Operator, ScaleRule, input, mismatch, other_shape},
};
use gradscale_core::{
    model::terms::{ConvShape, Terms},
    ops::{ActivationFlow, Conv2d, GradientFlow, Op, Pass, ShapeError},
};

impl<'t> Var<'t> {
    /// Applies a convolution, which `conv` describes for the shape of x; weights OHWI.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn conv(
        self, name: &str, conv: impl FnOnce([u32; 4]) -> Result<Conv2d, ShapeError>, weight: Self, bias: Option<Self>,
    ) -> Self {
        self.try_record(|| {
            let p = conv(self.sizes(name)?).map_err(|error| input(name, error, self.shape()))?;
            let shape = Shape::from(p.y().map(|size| size as usize));
            check(name, &p, (self, weight, bias), shape.channels()).map_err(|error| error.in_layer("Conv2d"))?;
            let others: Vec<Self> = std::iter::once(weight).chain(bias).collect();
            Ok(self.record_named_op(name.to_owned(), Op::Conv, p, &others, shape))
        })
    }

    /// Applies a transposed convolution: the data pass of the convolution that `conv` describes for the shape of the
    /// result. x has the shape of that convolution's output. Weights are those of that convolution,
    /// `[channels of x, kh, kw, channels of the result / groups]`.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn conv_transpose(
        self, name: &str, conv: impl FnOnce([u32; 4]) -> Result<Conv2d, ShapeError>, weight: Self, bias: Option<Self>,
    ) -> Self {
        self.try_record(|| {
            let sizes = self.sizes(name)?;
            let p = conv(sizes).map_err(|error| input(name, error, self.shape()))?;
            let shape = Shape::from(p.x().map(|size| size as usize));
            if p.y() != sizes {
                let expected = Shape::from(p.y().map(|size| size as usize));
                return Err(other_shape(name, "input", self, expected).in_layer("ConvTranspose2d"));
            }
            check(name, &p, (self, weight, bias), shape.channels())
                .map_err(|error| error.in_layer("ConvTranspose2d"))?;
            let others: Vec<Self> = std::iter::once(weight).chain(bias).collect();
            Ok(self.record_named_op(name.to_owned(), Op::ConvTranspose, ConvTranspose(p), &others, shape))
        })
    }
}

/// Checks weights and bias of a convolution. Weights that only have other channels than the input blame the input.
fn check(
    name: &str, p: &Conv2d, (x, weight, bias): (Var<'_>, Var<'_>, Option<Var<'_>>), outputs: usize,
) -> Result<(), TraceError> {
    let ([o, h, w, i], sizes) = (p.w().map(|size| size as usize), weight.shape().sizes());
    if sizes == [o, h, w, i] {
        let wrong = bias.filter(|bias| bias.shape().len() != outputs);
        return wrong.map_or(Ok(()), |bias| Err(other_shape(name, "bias", bias, [outputs].into())));
    }
    let groups = p.group_count() as usize;
    Err(match sizes {
        // The input of a convolution, whose descriptor takes its channels from the input.
        [so, sh, sw, channels] if [so, sh, sw] == [o, h, w] => {
            mismatch(name, "input", x, [None, None, None, Some(channels * groups)])
        }
        // The input of a transposed convolution, which is the output of that descriptor.
        [channels, sh, sw, si] if [sh, sw, si] == [h, w, i] => {
            mismatch(name, "input", x, [None, None, None, Some(channels)])
        }
        _ => other_shape(name, "weight", weight, [o, h, w, i].into()),
    })
}

/// Impl of the convolution operator, with inputs x, weights and an optional bias.
impl Operator for Conv2d {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        run(*self, Pass::Forward, at)
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        export(self, at, "Conv", &[])
    }

    fn bias(&self) -> Option<usize> {
        Some(2)
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (p, x, g) = (*self, at.operand(0).buf, dy.value.buf);
        weights(p, [x, g], at, dy)?;
        vjp_of_bias(at, dy)?;
        let terms = Terms::conv(p.terms_shape()).map_err(|error| at.node.error(error))?;
        data(p, Pass::Data, terms, at, dy)
    }
}

/// Operator of a transposed convolution, with inputs x, weights and an optional bias. Inputs: x, weights, optional
/// bias. Its forward pass is the data pass of this convolution.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ConvTranspose(Conv2d);

impl Operator for ConvTranspose {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        run(self.0, Pass::Data, at)
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        // Rows and columns of the result that the stride leaves undetermined.
        let (p, pads) = (&self.0, self.0.padding());
        let rest = [0, 1].map(|i| {
            let reach = (p.w()[1 + i] - 1) * p.dilations()[i] + 1;
            let least = (p.y()[1 + i] - 1) * p.strides()[i] + reach;
            i64::from(p.x()[1 + i] + 2 * pads[i]) - i64::from(least)
        });
        export(p, at, "ConvTranspose", &[("output_padding", Is::Ints(&rest))])
    }

    fn bias(&self) -> Option<usize> {
        Some(2)
    }

    /// Emits the gradients: the data gradient is this convolution's forward pass, the weight gradient its weight pass
    /// with exchanged operands.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (p, x, g) = (self.0, at.operand(0).buf, dy.value.buf);
        let shape = ConvShape { out_channels: p.x()[3], ..p.terms_shape() };
        weights(p, [g, x], at, dy)?;
        vjp_of_bias(at, dy)?;
        let terms = Terms::conv_transpose(shape).map_err(|error| at.node.error(error))?;
        data(p, Pass::Forward, terms, at, dy)
    }
}

/// Writes the ONNX node of a convolution; weights OHWI become OIHW.
#[cfg(feature = "onnx")]
fn export(p: &Conv2d, at: &mut Writer<'_>, kind: &str, more: &[(&str, Is<'_>)]) -> Result<(), TraceError> {
    let ([o, h, w, i], pads) = (p.w().map(|size| size as usize), p.padding().map(i64::from));
    let x = at.first(0)?;
    let weight = at.ordered(1, [0, 3, 1, 2], &[o, i, h, w])?;
    let mut inputs = vec![x, weight];
    if at.node().inputs.len() > 2 {
        let len = at.shape(2).len();
        inputs.push(at.shaped(2, &[len])?);
    }
    let (strides, dilations) = (p.strides().map(i64::from), p.dilations().map(i64::from));
    let (kernel, pads) = ([h as i64, w as i64], [pads[0], pads[1], pads[0], pads[1]]);
    let mut attributes = vec![
        ("kernel_shape", Is::Ints(&kernel)),
        ("strides", Is::Ints(&strides)),
        ("pads", Is::Ints(&pads)),
        ("dilations", Is::Ints(&dilations)),
        ("group", Is::Int(p.group_count().into())),
    ];
    attributes.extend(more.iter().cloned());
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let y = at.emit(kind, &inputs, &attributes);
    at.set_first_output(y);
    Ok(())
}

fn run(p: Conv2d, pass: Pass, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
    let (a, b, bias) = at.read_product()?;
    at.store(|y| Operation::Conv { p, pass, a, b, bias, y })
}

/// Emits the weight-gradient pass of a convolution with operands a and b.
fn weights(p: Conv2d, [a, b]: [BufferId; 2], at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
    if !at.needs_grad(1) {
        return Ok(());
    }
    let pass = Pass::Weight;
    let dy = at.gradient_times(dy, 0)?;
    at.emit_gradient(1, dy, GradientFlow::Cast, ScaleRule::FromValues, |y| Operation::Conv {
        p,
        pass,
        a,
        b,
        bias: None,
        y,
    })
}

/// Emits the pass of a convolution that computes the gradient of x.
fn data(p: Conv2d, pass: Pass, terms: Terms, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
    if !at.needs_grad(0) {
        return Ok(());
    }
    let w = at.operand(1);
    let (a, b) = (dy.value.buf, w.buf);
    let dy = at.gradient_times(dy, 1)?;
    let rule = ScaleRule::FromGemmOperands { dy, w, terms };
    at.emit_gradient(0, dy, at.flow(), rule, |y| Operation::Conv { p, pass, a, b, bias: None, y })
}
