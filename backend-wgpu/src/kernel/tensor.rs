//! How kernels see tensors: through functions of their own for each, over one binding, or over several windows of the
//! same size where a tensor is larger than the largest binding.
//!
//! Of a tensor `x`: `x_get(i)`, and `x_set(i, v)` if it is written; or `x_load`, `x_store`, `x_and`, `x_or` if its words
//! are shared by several writers. Index and value are elements of its [`Element`].

use core::fmt::Write;

/// Tensor that a kernel binds: its name in WGSL, its binding, and how its elements are read or written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor {
    pub name: &'static str,
    pub binding: u32,
    element: Element,
    access: Access,
}

/// Unit of a tensor's index in a kernel: a word as `u32` or as `f32`, or a vector of two or four words.
#[derive(Clone, Copy, Debug)]
enum Element {
    Word,
    Float,
    Two,
    Four,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Access {
    Read,
    Write,
    /// Words that several invocations write, by atomic operations.
    Share,
}

/// Destination of a store through `elementwise.wgsl`: each vector of four words has one writer.
pub(crate) const Y: Tensor = Tensor { name: "y", binding: 3, element: Element::Four, access: Access::Write };
/// Destination that is written word by word, each of which has one writer.
pub(crate) const WORD_Y: Tensor = Tensor { name: "y", binding: 3, element: Element::Word, access: Access::Write };
/// Packed values that are read word by word, as codes or halves.
pub(crate) const WORD_X: Tensor = Tensor { name: "x", binding: 5, element: Element::Word, access: Access::Read };
/// Destination of a store through `shared.wgsl`: words are shared by several writers.
pub(crate) const SHARED_Y: Tensor = Tensor { name: "y", binding: 3, element: Element::Word, access: Access::Share };
/// Offsets of the maxima of windows, four to a word.
pub(crate) const OFFSETS: Tensor = Tensor { name: "offsets", binding: 6, element: Element::Two, access: Access::Write };
/// Indices of the rows that gather and scatter kernels select from a table.
pub(crate) const INDICES: Tensor = Tensor { name: "indices", binding: 6, element: Element::Word, access: Access::Read };
/// Boxes of `RoI` kernels, five numbers each: the image, and two corners.
pub(crate) const BOXES: Tensor = Tensor { name: "boxes", binding: 6, element: Element::Word, access: Access::Read };
/// Positions of the maxima of bins, as RoI max pooling writes them.
pub(crate) const WRITTEN_POSITIONS: Tensor =
    Tensor { name: "positions", binding: 7, element: Element::Word, access: Access::Write };
/// Positions of the maxima of bins, as the gradient of RoI max pooling reads them.
pub(crate) const READ_POSITIONS: Tensor =
    Tensor { name: "positions", binding: 7, element: Element::Word, access: Access::Read };
/// Output of loss kernels: scalars of a loss and of its gradient.
pub(crate) const LOSS_OUTPUT: Tensor =
    Tensor { name: "out", binding: 3, element: Element::Float, access: Access::Write };
/// Next state of an LSTM cell.
pub(crate) const STATE: Tensor = Tensor { name: "state", binding: 8, element: Element::Float, access: Access::Write };
/// Logarithms of the sums of an attention's rows, as bits.
pub(crate) const LOG_SUMS: Tensor =
    Tensor { name: "log_sums", binding: 8, element: Element::Word, access: Access::Write };
pub(crate) const READ_LOG_SUMS: Tensor =
    Tensor { name: "log_sums", binding: 8, element: Element::Word, access: Access::Read };
/// Gradients of the sums of a cell, or of its products with the hidden state; of its products with the inputs; of its state.
pub(crate) const SUMS: Tensor = Tensor { name: "sums", binding: 3, element: Element::Float, access: Access::Write };
pub(crate) const DX: Tensor = Tensor { name: "dx", binding: 9, element: Element::Float, access: Access::Write };
pub(crate) const NEXT_STATE: Tensor =
    Tensor { name: "state", binding: 10, element: Element::Float, access: Access::Write };

/// Sums over the alignments of the CTC loss.
pub(crate) const TABLE: Tensor = Tensor { name: "table", binding: 10, element: Element::Float, access: Access::Write };

/// Distance between the bindings of a tensor's windows.
const WINDOW_BINDING_STRIDE: u32 = 16;

impl Tensor {
    /// Returns the tensor of an operand that a kernel reads through `operand.wgsl`.
    pub const fn operand(name: &'static str, binding: u32) -> Self {
        Self { name, binding, element: Element::Four, access: Access::Read }
    }

    pub fn is_written(&self) -> bool {
        self.access != Access::Read
    }

    /// Returns the binding of one window of a tensor that is larger than the largest binding.
    pub const fn window(&self, window: u32) -> u32 {
        self.binding + WINDOW_BINDING_STRIDE * window
    }

    /// Returns the WGSL functions that access the tensor over `windows` windows of 2^`WINDOW` bytes.
    pub fn text(&self, windows: u32) -> String {
        let Self { name, element, .. } = self;
        let (plain, size) = match element {
            Element::Word => ("u32", 2),
            Element::Float => ("f32", 2),
            Element::Two => ("vec2<u32>", 3),
            Element::Four => ("vec4<u32>", 4),
        };
        let (mode, kept) = match self.access {
            Access::Read => ("read", plain.to_owned()),
            Access::Write => ("read_write", plain.to_owned()),
            Access::Share => ("read_write", format!("atomic<{plain}>")),
        };
        let mut text = String::new();
        for window in 0..windows {
            let binding = self.window(window);
            let variable = format!("var<storage, {mode}> {name}_{window}: array<{kept}>");
            writeln!(text, "@group(0) @binding({binding}) {variable};").ok();
        }
        // Name, parameters besides the index, result type, and the statement in a window at `at`.
        let functions: &[[&str; 4]] = match self.access {
            Access::Read => &[["get", "", "element", "return W[at];"]],
            Access::Write => &[["get", "", "element", "return W[at];"], ["set", ", v: element", "", "W[at] = v;"]],
            Access::Share => &[
                ["load", "", "element", "return atomicLoad(&W[at]);"],
                ["store", ", v: element", "", "atomicStore(&W[at], v);"],
                ["and", ", v: element", "", "atomicAnd(&W[at], v);"],
                ["or", ", v: element", "", "atomicOr(&W[at], v);"],
            ],
        };
        for [function, takes, gives, work] in functions {
            let takes = takes.replace("element", plain);
            let gives = if gives.is_empty() { String::new() } else { format!(" -> {plain}") };
            let work = |window: u32| work.replace('W', &format!("{name}_{window}"));
            if windows == 1 {
                let work = work(0);
                writeln!(text, "fn {name}_{function}(at: u32{takes}){gives} {{\n    {work}\n}}").ok();
                continue;
            }
            writeln!(text, "fn {name}_{function}(i: u32{takes}){gives} {{").ok();
            writeln!(
                text,
                "    let at = i & ((1u << (WINDOW - {size}u)) - 1u);\n    switch i >> (WINDOW - {size}u) {{"
            )
            .ok();
            for window in 0..windows - 1 {
                writeln!(text, "        case {window}u: {{ {} }}", work(window)).ok();
            }
            writeln!(text, "        default: {{ {} }}\n    }}\n}}", work(windows - 1)).ok();
        }
        text
    }
}
