//! GPT-2-style language model of self-attention (Radford et al. 2019).

use crate::{
    Init, Input, Parameter, Scope, Tensor, TorchModule, Var,
    nn::{DecodeStep, LayerNorm, Linear, Module, Rotary, SelfAttention},
};

/// Standard deviation of GPT-2's initial weights, and the width for which it was chosen. Narrower networks have larger
/// weights, so that products have the same magnitude.
const STD: f64 = 0.02;
const WIDTH: usize = 768;
/// Mask value for positions that do not exist yet. Its e^x is 0 compared with any other, and it fits in a half.
const HIDDEN: f32 = -3e4;

/// Sizes of a [`Decoder`] language model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecoderSize {
    /// Maximum number of positions of a sequence.
    pub context: usize,
    /// Width of a token's embedding and of the transformer layers.
    pub width: usize,
    /// Number of attention heads of each layer, which divide the width.
    pub heads: usize,
    /// Number of transformer layers.
    pub layers: usize,
    /// Dropout probability of token embeddings and of each layer's residual.
    pub dropout: f32,
}

impl DecoderSize {
    /// Sizes of the smallest GPT-2.
    pub const PAPER: Self = Self { context: 1024, width: 768, heads: 12, layers: 12, dropout: 0.1 };
}

/// Language model from tokens to logits of the next token. It has token embeddings with learned or rotary positions,
/// layers, and a last normalisation. A layer has causal self-attention and two linear layers with GELU, each after a
/// normalisation and with a residual connection. The embedding table also computes the logits, so the gradients of both
/// uses are added.
///
/// Layers have the names of PyTorch's `TransformerEncoder` with
/// `TransformerEncoderLayer(norm_first=True, activation="gelu")`.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, models::{Decoder, DecoderSize}, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let size = DecoderSize { context: 6, width: 8, heads: 2, layers: 2, dropout: 0.1 };
/// let net = Decoder::new(&mut parameters.at("net"), 50, size);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let y = trainer.evaluate([Input::u32([2, 3], &[1, 7, 49, 0, 0, 2])], |[tokens]| net.logits(tokens))?;
/// assert_eq!(y.shape.sizes(), [2, 1, 3, 50]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Decoder {
    name: String,
    tokens: Parameter,
    places: Places,
    layers: Vec<DecoderLayer>,
    norm: LayerNorm,
    size: DecoderSize,
}

/// Encoding of token positions in a decoder: learned or rotary.
#[derive(Clone, Debug)]
enum Places {
    /// Learned positions: a vector for each is added to the token's embedding.
    Learned(Parameter),
    /// Rotary positions: queries and keys are rotated by angles of the position.
    Rotary(Rotary),
}

#[derive(Clone, Debug)]
struct DecoderLayer {
    norms: [LayerNorm; 2],
    attention: SelfAttention,
    linear: [Linear; 2],
}

impl DecoderLayer {
    fn new(scope: &mut Scope<'_>, DecoderSize { width, heads, layers, .. }: DecoderSize) -> Self {
        // With this scale the sum of all layers has about the magnitude of an embedding.
        let [inside, last] = [1, 2 * layers].map(|parts| normal(width, parts));
        let norms = ["norm1", "norm2"].map(|name| LayerNorm::new(&mut scope.at(name), width));
        let attention = SelfAttention::with_init(&mut scope.at("self_attn"), width, heads, [inside, last]).causal();
        let first = Linear::with_init(&mut scope.at("linear1"), width, 4 * width, inside);
        let second = Linear::with_init(&mut scope.at("linear2"), 4 * width, width, last);
        Self { norms, attention, linear: [first, second] }
    }

    /// Computes the second half of the transformer layer from the result of the first, and adds both.
    fn add<'t>(&self, x: Var<'t>, attended: Var<'t>, dropped: impl Fn(Var<'t>) -> Var<'t>) -> Var<'t> {
        let x = x + dropped(attended);
        let inside = self.linear[0].forward(self.norms[1].forward(x)).gelu();
        x + dropped(self.linear[1].forward(inside))
    }
}

/// Returns the initialisation of a linear layer whose result is one of `parts` terms of a sum.
fn normal(width: usize, parts: usize) -> Init {
    #[expect(clippy::cast_possible_truncation, reason = "rounded")]
    let std = (STD * (WIDTH as f64 / (width.max(1) * parts.max(1)) as f64).sqrt()) as f32;
    Init::Normal { mean: 0.0, std }
}

/// Creates the parameter with the embeddings of tokens or positions.
fn table(scope: &mut Scope<'_>, name: &str, rows: usize, width: usize) -> Parameter {
    scope.at(name).weight("weight", [rows, width], normal(width, 1))
}

impl Decoder {
    /// Creates the language model with learned positions for `tokens` tokens. Weights are normal with standard
    /// deviation 0.02·√(768 / width), those of residual terms divided by √(2·layers).
    pub fn new(scope: &mut Scope<'_>, tokens: usize, size: DecoderSize) -> Self {
        Self::build(scope, tokens, size, |scope| Places::Learned(table(scope, "places", size.context, size.width)))
    }

    /// Creates the language model with rotary instead of learned positions: see [`Rotary`].
    pub fn rotary(scope: &mut Scope<'_>, tokens: usize, size: DecoderSize) -> Self {
        Self::build(scope, tokens, size, |scope| {
            Places::Rotary(Rotary::new(&mut scope.at("rotary"), size.context, size.width / size.heads.max(1)))
        })
    }

    fn build(
        scope: &mut Scope<'_>, tokens: usize, size: DecoderSize, places: impl FnOnce(&mut Scope<'_>) -> Places,
    ) -> Self {
        let DecoderSize { width, layers, .. } = size;
        Self {
            name: scope.path().to_owned(),
            tokens: table(scope, "tokens", tokens, width),
            places: places(scope),
            layers: (0..layers).map(|i| DecoderLayer::new(&mut scope.at(&format!("layers.{i}")), size)).collect(),
            norm: LayerNorm::new(&mut scope.at("norm"), width),
            size,
        }
    }

    /// Computes logits `[n, 1, t, tokens]` of the token after each of tokens, integers `[n, t]`, from all tokens up to
    /// it.
    ///
    /// # Errors
    /// Shapes that do not fit, or more positions than the context has.
    pub fn logits<'t>(&self, tokens: Var<'t>) -> Var<'t> {
        let (x, [context, width]) = (self.vectors(tokens), [self.size.context, self.size.width]);
        let t = x.shape().sizes()[2];
        let (x, turn) = match &self.places {
            Places::Learned(table) => {
                (x + x.tape().parameter(table).reshape([1, 1, context, width]).slice(2, 0, t), None)
            }
            Places::Rotary(rotary) => (x, Some(rotary.first(x, t))),
        };
        let mut x = self.dropped(x);
        for layer in &self.layers {
            let attended = layer.attention.placed(layer.norms[0].forward(x), turn.as_ref());
            x = layer.add(x, attended, |x| self.dropped(x));
        }
        self.of_last(x)
    }

    /// Computes the logits for one more token of each of n sequences, integers `[n]`, at the position of `cached`. The
    /// keys and values of earlier tokens are read from the cache.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn next<'t>(&self, tokens: Var<'t>, cached: &Cached<'t>) -> Var<'t> {
        let (n, places) = (tokens.shape().len(), cached.place);
        let x = self.vectors(tokens.reshape([n, 1]));
        let (mut x, turn) = match &self.places {
            Places::Learned(table) => {
                (x + x.tape().parameter(table).embedding(&format!("{}.place", self.name), places), None)
            }
            Places::Rotary(rotary) => (x, Some(rotary.at(places))),
        };
        let step = DecodeStep { place: places.one_hot(self.size.context), mask: cached.mask, turn };
        let mut new = Vec::new();
        for (i, layer) in self.layers.iter().enumerate() {
            let past = [2 * i, 2 * i + 1].map(|part| cached.past.slice(0, part * n, n));
            let (attended, both) = layer.attention.next(layer.norms[0].forward(x), past, &step);
            new.extend(both);
            x = layer.add(x, attended, |x| x);
        }
        if let [first, others @ ..] = &new[..] {
            let _ = first.concat(others, 0).output(Cache::NEW);
        }
        self.of_last(x)
    }

    /// Returns the PyTorch module of a layer, which is named without the network's name. The PyTorch model must use the
    /// module names above: `tokens`, `places`, `layers.0`, …, `norm`.
    #[must_use]
    pub fn torch(layer: &str) -> TorchModule {
        let of_attention = |end: &str| layer.strip_suffix(end).filter(|name| name.ends_with("self_attn"));
        match (of_attention(".in"), of_attention(".out")) {
            (Some(attention), _) => TorchModule::named(attention).in_projection(),
            (None, Some(attention)) => TorchModule::named(format!("{attention}.out_proj")),
            (None, None) => TorchModule::named(layer),
        }
    }

    /// Creates an empty key-value cache for n sequences.
    #[must_use]
    pub fn cache(&self, n: usize) -> Cache {
        let DecoderSize { context, width, heads, layers, .. } = self.size;
        Cache::new([2 * layers * n, heads, context, width / heads.max(1)])
    }

    fn vectors<'t>(&self, tokens: Var<'t>) -> Var<'t> {
        tokens.tape().parameter(&self.tokens).embedding(&format!("{}.tokens", self.name), tokens)
    }

    fn dropped<'t>(&self, x: Var<'t>) -> Var<'t> {
        if self.size.dropout > 0.0 { x.dropout(self.size.dropout) } else { x }
    }

    fn of_last<'t>(&self, x: Var<'t>) -> Var<'t> {
        let table = x.tape().parameter(&self.tokens);
        self.norm.forward(x).linear(&format!("{}.logits", self.name), table, None)
    }
}

/// Key-value cache as values of a forward pass: see [`Cache`].
#[derive(Clone, Copy, Debug)]
pub struct Cached<'t> {
    /// Cached keys and values of earlier positions.
    pub past: Var<'t>,
    /// Attention mask that hides positions after the current one.
    pub mask: Var<'t>,
    /// Index of the current position, an integer.
    pub place: Var<'t>,
}

/// Key-value cache on the host: one more token costs one position, and not all of them again. The whole context is
/// allocated at the start, so that every token runs the same program.
///
/// ```
/// use gradscale::{
///     Input, Cpu, Method, Parameters, Trainer, models::{Cache, Cached, Decoder, DecoderSize}, optim::Sgd,
/// };
/// let mut parameters = Parameters::seeded(1);
/// let size = DecoderSize { context: 6, width: 8, heads: 2, layers: 2, dropout: 0.1 };
/// let net = Decoder::new(&mut parameters.at("net"), 50, size);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let mut cache = net.cache(1);
/// for token in [[4], [8], [15]] {
///     let [past, mask, place] = cache.inputs();
///     let batch = [Input::u32([1], &token), past, mask, place];
///     let logits = trainer.evaluate(batch, |[tokens, past, mask, place]| {
///         net.next(tokens, &Cached { past, mask, place })
///     })?;
///     assert_eq!(logits.data.len(), 50);
///     cache.push(&trainer.output(Cache::NEW)?);
/// }
/// assert_eq!(cache.places_left(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cache {
    /// Shape of the cached tensor: keys and values of all layers and sequences, heads, positions, channels of a head.
    shape: [usize; 4],
    past: Vec<f32>,
    mask: Vec<f32>,
    place: [u32; 1],
}

impl Cache {
    /// Name of the output of [`Decoder::next`] with keys and values of the new position.
    pub const NEW: &str = "cache.new";

    fn new(shape: [usize; 4]) -> Self {
        let mut mask = vec![HIDDEN; shape[2]];
        mask.iter_mut().take(1).for_each(|first| *first = 0.0);
        Self { shape, past: vec![0.0; shape.iter().product()], mask, place: [0] }
    }

    /// Returns the cache's three inputs of a forward pass, in the order of the fields of [`Cached`].
    #[must_use]
    pub fn inputs(&self) -> [Input<'_>; 3] {
        let mask = Input::f32([1, 1, 1, self.mask.len()], &self.mask);
        [Input::f32(self.shape, &self.past), mask, Input::u32([1], &self.place)]
    }

    /// Returns the number of positions that the cache has left.
    #[must_use]
    pub fn places_left(&self) -> usize {
        self.mask.iter().filter(|hidden| **hidden != 0.0).count() + usize::from(self.has_room())
    }

    fn has_room(&self) -> bool {
        (self.place[0] as usize) < self.shape[2]
    }

    /// Appends the keys and values of a new position ([`Cache::NEW`]). Without a free position nothing changes.
    pub fn push(&mut self, new: &Tensor) {
        let ([_, _, context, width], place) = (self.shape, self.place[0] as usize);
        if !self.has_room() {
            return;
        }
        for (head, values) in
            self.past.chunks_exact_mut((context * width).max(1)).zip(new.data.chunks_exact(width.max(1)))
        {
            head[place * width..][..width].copy_from_slice(values);
        }
        self.place[0] += 1;
        self.mask.iter_mut().skip(place + 1).take(1).for_each(|next| *next = 0.0);
    }
}
