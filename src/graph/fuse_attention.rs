//! Attention in one launch each way: the launches that store scores and weights, and their gradients, are replaced by
//! [`Operation::Attention`] and [`Operation::AttentionVjp`] if the device has them.
//!
//! Nodes are compiled as usual before, so names, slots and rules of sites do not depend on the device:
//!
//! ```text
//! S = q·kᵀ                  ┐
//! P = softmax(S)            ├ attention
//! y = P·v                   ┘
//! dv = Pᵀ·dy                ┐
//! dP = dy·vᵀ    site        │
//! dS = vjp(P, dP)  site     ├ attention_vjp
//! dk = dSᵀ·q    site        │
//! dq = dS·k     site        ┘
//! ```
//!
//! The fused gradient keeps the launches that it replaces. They run in its place in a step in which one of its sites
//! decides, because a decision needs values that a fused launch does not store.

use super::{BufferId, CastSpec, Compiler, Launch, Operation, Purpose, ScaleRule, StoreSpec, Value};
use gradscale_core::{
    backend::{AttentionArgs, DType, Slot},
    ops::{Attention, AttentionShape, Gemm, GemmShape, ShapeError, Softmax, SoftmaxColumns, Unary},
    stats::Detail,
};
use std::{collections::HashMap, mem};

/// Indices of the launches that write and that read a buffer.
#[derive(Clone, Debug, Default)]
struct Uses {
    writes: Vec<usize>,
    reads: Vec<usize>,
}

/// Uses of all buffers by launches.
struct BufferUses(HashMap<BufferId, Uses>);

/// Product of matrices, as a launch computes it.
#[derive(Clone, Copy)]
struct Product {
    p: Gemm,
    a: BufferId,
    b: BufferId,
    y: StoreSpec,
}

/// Descriptors of the products of an attention.
struct Products {
    scores: Gemm,
    mix: Gemm,
    dv: Gemm,
    dp: Gemm,
    dk: Gemm,
    dq: Gemm,
}

/// Launches of an attention's forward pass, by their indices.
struct Forward {
    p: Attention,
    x: AttentionArgs<BufferId>,
    scores: usize,
    softmax: usize,
    /// Cast of f32 weights to halves, if the softmax stores f32.
    cast: Option<usize>,
    mix: usize,
    y: StoreSpec,
    /// Weights as the products read them, and as the gradient of the softmax reads them.
    weights: [BufferId; 2],
}

/// Launches of an attention's gradients, by their indices, and their operands.
struct Backward {
    dy: BufferId,
    launches: [usize; 5],
    dp: StoreSpec,
    ds: StoreSpec,
    dq: StoreSpec,
    dk: StoreSpec,
    dv: StoreSpec,
}

impl BufferUses {
    fn new(launches: &[Launch]) -> Self {
        let mut all: HashMap<BufferId, Uses> = HashMap::new();
        for (at, launch) in launches.iter().enumerate() {
            let written = launch.written_buffers();
            for buf in launch.buffers().into_iter().filter(|buf| !written.contains(buf)) {
                all.entry(buf).or_default().reads.push(at);
            }
            for buf in written {
                all.entry(buf).or_default().writes.push(at);
            }
        }
        Self(all)
    }

    /// Returns the launches that read a buffer.
    fn reads(&self, buf: BufferId) -> &[usize] {
        self.0.get(&buf).map_or(&[], |uses| &uses.reads)
    }

    /// Returns the launch that writes a buffer, if it is the only one.
    fn only_write(&self, buf: BufferId) -> Option<usize> {
        match self.0.get(&buf)?.writes[..] {
            [at] => Some(at),
            _ => None,
        }
    }
}

impl Products {
    fn new(
        batch: u32, AttentionShape { queries: t, keys: s, depth: d, width: e, .. }: AttentionShape,
    ) -> Result<Self, ShapeError> {
        let gemm = |[m, n, k]: [u32; 3], [a, b, y]: [u32; 3]| Gemm::new(m, n, k)?.batched(batch, [a, b, y]);
        Ok(Self {
            scores: gemm([t, s, d], [t * d, s * d, t * s])?.transpose_b()?,
            mix: gemm([t, e, s], [t * s, s * e, t * e])?,
            dv: gemm([s, e, t], [t * s, t * e, s * e])?.transpose_a()?,
            dp: gemm([t, s, e], [t * e, s * e, t * s])?.transpose_b()?,
            dk: gemm([s, d, t], [t * s, t * d, s * d])?.transpose_a()?,
            dq: gemm([t, d, s], [t * s, s * d, t * d])?,
        })
    }
}

/// Returns the product that a launch without bias computes.
const fn product(launch: &Launch) -> Option<Product> {
    let Operation::Gemm { p, a, b, bias: None, y } = launch.operation else { return None };
    Some(Product { p, a, b, y })
}

/// Returns the sizes of an attention from its two products and its softmax, if these fit together.
fn attention_of(scores: &Gemm, mix: &Gemm, softmax: &Softmax) -> Option<Attention> {
    let (GemmShape { m: queries, n: keys, k: depth }, batch) = (scores.shape(), scores.batch());
    let [matrices, rows, columns] = softmax.shape();
    let [sequences, heads] = match softmax.read() {
        SoftmaxColumns::All | SoftmaxColumns::Causal => [batch, 1],
        SoftmaxColumns::Within => [matrices, rows / queries.max(1)],
        SoftmaxColumns::Masked => return None,
    };
    let shape = AttentionShape { sequences, heads, queries, keys, depth, width: mix.shape().n };
    let products = Products::new(batch, shape).ok()?;
    let is_causal_by_matrix = softmax.read() != SoftmaxColumns::Causal || [matrices, rows] == [batch, queries];
    let fits = !softmax.is_logarithm()
        && columns == keys
        && matrices * rows == batch * queries
        && sequences * heads == batch
        && is_causal_by_matrix
        && *scores == products.scores
        && *mix == products.mix;
    if fits { Attention::new(shape, softmax.read()).ok() } else { None }
}

/// Returns the cast whose values are those of a store.
const fn cast_of(StoreSpec { from, to, detail, .. }: StoreSpec) -> CastSpec {
    CastSpec { from, to, detail }
}

impl Compiler<'_, '_> {
    /// Replaces the launches of attentions by fused ones. `outputs` are read after the program has run. It runs before
    /// stores are rounded to other formats, because such programs store all values.
    pub(super) fn fuse_attention(&mut self, outputs: &[BufferId]) {
        let sites = &self.shared.sites;
        let has_formats = sites.block_scaling().is_some() || sites.multiplies_eight_bits();
        // The replaced launches would run in every step, after scores and weights that they compute again.
        let decides = matches!(self.purpose, Purpose::Train { .. }) && sites.decides_inside_every_step();
        if self.scales_forward || self.shared.retain_buffers || has_formats || decides {
            return;
        }
        let uses = BufferUses::new(&self.launches);
        // New launches by the index at which they are inserted; the launches that they replace.
        let (mut fused, mut replaced) = (HashMap::new(), vec![false; self.launches.len()]);
        // Slots of scores and weights, which are not observed.
        let mut unobserved = Vec::new();
        for at in 0..self.launches.len() {
            let Some(forward) = self.forward_of(at, &uses).filter(|forward| (self.shared.fuses_attention)(&forward.p))
            else {
                continue;
            };
            let Some(backward) = self.backward_of(&forward, &uses) else { continue };
            let inside = self.inside(&forward, backward.as_ref());
            if inside.iter().any(|value| outputs.contains(&value.buf)) {
                continue;
            }
            let log_sums = self.new_buffer(DType::F32, forward.p.rows() as usize).buf;
            let Forward { p, x, y, .. } = forward;
            fused.insert(forward.mix, Launch::from(Operation::Attention { p, x, log_sums, y }));
            let of_forward = [Some(forward.scores), Some(forward.softmax), forward.cast, Some(forward.mix)];
            of_forward.into_iter().flatten().for_each(|launch| replaced[launch] = true);
            for launch in [Some(forward.scores), Some(forward.softmax), forward.cast].into_iter().flatten() {
                self.launches[launch].with_stores(|y| {
                    unobserved.push(y.to);
                    y
                });
            }
            if let Some(backward) = backward {
                let unfused = self.unfused(&forward, &backward, &inside);
                let Backward { dy, dp, ds, dq, dk, dv, launches } = backward;
                let (y, [dp, ds]) = (forward.y.y.buf, [dp, ds].map(cast_of));
                let operation = Operation::AttentionVjp { p, x, y, log_sums, dy, dp, ds, dq, dk, dv };
                fused.insert(launches[0], Launch { rule: ScaleRule::None, operation, unfused });
                launches.into_iter().for_each(|launch| replaced[launch] = true);
            }
        }
        self.replace(fused, &replaced);
        self.forget_slots(&unobserved);
    }

    /// Returns true if a buffer of the program has halves. Parameters are not buffers of the program.
    fn has_halves(&self, buf: BufferId) -> bool {
        matches!(buf, BufferId::Arena(i) if self.buffers[i].0 == DType::F16)
    }

    /// Returns the attention whose softmax is the launch `at`, if its scores and weights have no other use than in its own
    /// launches.
    fn forward_of(&self, at: usize, uses: &BufferUses) -> Option<Forward> {
        let Operation::Softmax { p, x, selection, y: weights } = self.launches[at].operation else { return None };
        let written = uses.only_write(x).filter(|_| uses.reads(x) == [at])?;
        let scores = product(&self.launches[written]).filter(|scores| scores.y.y.dtype == DType::F16)?;
        // Weights in f32 are cast to halves for the product.
        let first = *uses.reads(weights.y.buf).first()?;
        let (cast, of_product) = match self.launches[first].operation {
            Operation::Unary { op: Unary::Id, y, .. } if y.y.dtype == DType::F16 => (Some(first), y.y.buf),
            _ => (None, weights.y.buf),
        };
        let mix = *uses.reads(of_product).first()?;
        let mixed = product(&self.launches[mix]).filter(|mixed| mixed.a == of_product)?;
        let attention = attention_of(&scores.p, &mixed.p, &p)?;
        let stores = [scores.y, weights, mixed.y];
        let is_plain = [of_product, scores.a, scores.b, mixed.b].into_iter().all(|buf| self.has_halves(buf))
            && stores.into_iter().all(|y| !y.add && !y.has_format());
        is_plain.then_some(Forward {
            p: attention,
            x: AttentionArgs { q: scores.a, k: scores.b, v: mixed.b, lengths: selection },
            scores: written,
            softmax: at,
            cast,
            mix,
            y: mixed.y,
            weights: [of_product, weights.y.buf],
        })
    }

    /// Returns the gradients of an attention; `Some(None)` if nothing but its own launches reads the weights, and `None` if
    /// it cannot be fused.
    #[expect(clippy::option_option, reason = "an attention without gradients is fused, too")]
    fn backward_of(&self, forward: &Forward, uses: &BufferUses) -> Option<Option<Backward>> {
        let [of_product, of_softmax] = forward.weights;
        // Reads of the weights: by the cast or the product, then by the gradients.
        let others = |buf: BufferId| {
            let own = [forward.cast, Some(forward.mix)];
            uses.reads(buf).iter().copied().filter(move |&at| !own.contains(&Some(at)))
        };
        let mut later: Vec<usize> = others(of_product).chain(others(of_softmax)).collect();
        later.sort_unstable();
        later.dedup();
        match later[..] {
            [] => Some(None),
            [dv, ds] => self.gradients_of(forward, dv, ds, uses).map(Some),
            _ => None,
        }
    }

    /// Returns the gradients of an attention from the launches that compute dv and dS.
    fn gradients_of(&self, forward: &Forward, dv: usize, ds: usize, uses: &BufferUses) -> Option<Backward> {
        let (p, x, [of_product, of_softmax]) = (forward.p, forward.x, forward.weights);
        let products = Products::new(p.batch(), p.shape()).ok()?;
        let of = |at: usize, p: &Gemm, a: BufferId, b: BufferId| {
            product(&self.launches[at]).filter(|product| product.p == *p && product.a == a && product.b == b)
        };
        let Operation::SoftmaxVjp { p: _, y, dy: of_weights, dx } = self.launches[ds].operation else { return None };
        let dp = uses.only_write(of_weights).filter(|_| y == of_softmax && uses.reads(of_weights) == [ds])?;
        let of_values = product(&self.launches[dv])?;
        let dy = of_values.b;
        let of_values = of(dv, &products.dv, of_product, dy)?;
        let of_weights = of(dp, &products.dp, dy, x.v)?;
        let [dk, dq] = *uses.reads(dx.y.buf) else { return None };
        let (dk, dq) = if of(dk, &products.dk, dx.y.buf, x.q).is_some() { (dk, dq) } else { (dq, dk) };
        let of_keys = of(dk, &products.dk, dx.y.buf, x.q)?;
        let of_queries = of(dq, &products.dq, dx.y.buf, x.k)?;
        let mut launches = [dv, dp, ds, dk, dq];
        launches.sort_unstable();
        let sites = [of_weights.y, dx, of_queries.y, of_keys.y, of_values.y];
        let is_plain = |y: StoreSpec| y.y.dtype == DType::F16 && !y.add && !y.has_format();
        let is_chain = dx.from == of_weights.y.to
            && [of_queries.y, of_keys.y].into_iter().all(|y| y.from == dx.to)
            && of_values.y.from == of_weights.y.from;
        let fits = sites.into_iter().all(is_plain)
            && is_chain
            && uses.only_write(dx.y.buf) == Some(ds)
            && forward.mix < launches[0];
        fits.then_some(Backward {
            dy,
            launches,
            dp: of_weights.y,
            ds: dx,
            dq: of_queries.y,
            dk: of_keys.y,
            dv: of_values.y,
        })
    }

    /// Returns the values that fused launches do not store: scores and weights, and their gradients.
    fn inside(&self, forward: &Forward, backward: Option<&Backward>) -> Vec<Value> {
        let stored = [Some(forward.scores), Some(forward.softmax), forward.cast].into_iter().flatten();
        let mut values: Vec<Value> = backward.into_iter().flat_map(|backward| [backward.dp.y, backward.ds.y]).collect();
        for at in stored {
            self.launches[at].with_stores(|y| {
                values.push(y.y);
                y
            });
        }
        values
    }

    /// Returns the launches that a fused gradient replaces, in their order, after those that compute scores and weights
    /// again. The values inside have buffers of their own.
    fn unfused(&self, forward: &Forward, backward: &Backward, inside: &[Value]) -> Vec<Launch> {
        let again = [Some(forward.scores), Some(forward.softmax), forward.cast].into_iter().flatten();
        // The forward pass does not observe them either.
        let again = again.map(|at| {
            let operation = self.launches[at].with_stores(|y| StoreSpec { detail: Detail::None, ..y });
            Launch::from(operation)
        });
        let mut launches: Vec<Launch> = again.chain(backward.launches.map(|at| self.launches[at].clone())).collect();
        let place = |buf: BufferId| inside.iter().position(|value| value.buf == buf);
        launches.iter_mut().for_each(|launch| launch.rename(|buf| place(buf).map_or(buf, BufferId::Unfused)));
        launches
    }

    /// Inserts fused launches in the place of those that they replace. Positions between launches move with them.
    fn replace(&mut self, mut fused: HashMap<usize, Launch>, replaced: &[bool]) {
        let (launches, origins) = (mem::take(&mut self.launches), mem::take(&mut self.origins));
        let mut starts = Vec::with_capacity(launches.len() + 1);
        for (at, (launch, origin)) in launches.into_iter().zip(origins).enumerate() {
            starts.push(self.launches.len());
            let launch = fused.remove(&at).or_else(|| (!replaced[at]).then_some(launch));
            self.launches.extend(launch);
            self.origins.resize(self.launches.len(), origin);
        }
        starts.push(self.launches.len());
        self.stats_syncs.iter_mut().for_each(|sync| sync.before = starts[sync.before]);
    }

    /// Removes slots from the order of stores to which no launch stores any more.
    fn forget_slots(&mut self, slots: &[Slot]) {
        let mut stored = Vec::new();
        for launch in &self.launches {
            launch.with_stores(|y| {
                stored.push(y.to);
                y
            });
        }
        self.order.retain(|slot| stored.contains(slot) || !slots.contains(slot));
    }
}
