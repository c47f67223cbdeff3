//! Operators, one loop each.

use super::{Memory, Reference, Table};
use crate::{
    Fault,
    nhwc::{index, len, places, wins},
};
use gradscale_core::{
    backend::*, block_format::BlockFormat, cast::Round, ops::*, scale::Factor, scaled::Scaled, stats::Detail,
    store_format::StoreFormat,
};

fn weight(x: CrossEntropyArgs<&Memory>, class: u32) -> f32 {
    x.weights.map_or(1.0, |weights| weights.get(class as usize))
}

impl Reference {
    pub(super) fn unary(&self, op: Unary, len: u32, x: &Memory, y: Store<'_, Self>) -> DeviceResult<Self> {
        let seed = y.table.seed;
        self.put(y, (0..len).map(|index| op.eval(x.get(index as usize), At { seed, index })))
    }

    pub(super) fn round_blocks(
        &self, format: BlockFormat, shape: [u32; 2], x: &Memory, out: Store<'_, Self>,
    ) -> DeviceResult<Self> {
        let [rows, columns] = shape.map(|size| size as usize);
        let Store { y, table, from, to, detail, add } = out;
        let exponent = |slot: Slot| table.exponents[usize::from(slot.0)];
        let factor = Factor::between(exponent(from), exponent(to));
        let add = add && !self.on(Fault::AddDropped);
        let value = |i| if add { y.get(i) + factor.apply(x.get(i)) } else { factor.apply(x.get(i)) };
        let values: Vec<f32> = (0..rows * columns).map(value).collect();
        let columns = if self.on(Fault::BlocksAcrossRows) { values.len() } else { columns };
        let blocks = values.chunks(columns.max(1)).flat_map(|row| row.chunks(format.size() as usize));
        let exponents: Vec<i32> =
            blocks.flat_map(|block| core::iter::repeat_n(format.exponent(block), block.len())).collect();
        let scaled: Vec<f32> = exponents.iter().zip(&values).map(|(&k, &u)| format.scaled(k, u)).collect();
        let store = Store { y: &mut *y, table, from: to, to, detail, add: false };
        self.put_in(format.format(), store, scaled)?;
        for (i, &k) in exponents.iter().enumerate() {
            y.set(i, f64::from(Factor::between(0, k).apply(y.get(i))));
        }
        Ok(())
    }

    pub(super) fn pack(&self, format: StoreFormat, len: u32, x: &Memory, y: &mut Memory) -> DeviceResult<Self> {
        for i in 0..len as usize {
            let code = format.format().encode(x.get(i), Round::NearestEven).bits;
            y.set(i, f64::from(if self.on(Fault::PackedSignDropped) { code & 0x7F } else { code }));
        }
        Ok(())
    }

    pub(super) fn unpack(&self, format: StoreFormat, len: u32, x: &Memory, y: &mut Memory) -> DeviceResult<Self> {
        for i in 0..len as usize {
            y.set(i, f64::from(format.format().decode(x.get(i) as u32)));
        }
        Ok(())
    }

    pub(super) fn binary(&self, p: &Binary, a: &Memory, b: &Memory, y: Store<'_, Self>) -> DeviceResult<Self> {
        let (seed, [rows, cols]) = (y.table.seed, p.shape());
        let eval = |i: u32| p.op().eval(a.get(i as usize), b.get(p.b_index(i) as usize), At { seed, index: i });
        self.put(y, (0..rows * cols).map(eval))
    }

    pub(super) fn sum(&self, len: u32, terms: &[Scaled<&Memory, Slot>], y: Store<'_, Self>) -> DeviceResult<Self> {
        let exponent = |slot: Slot| y.table.exponents[usize::from(slot.0)];
        let to = exponent(y.to);
        let term = |t: &Scaled<&Memory, Slot>, i| Factor::between(exponent(t.alpha), to).apply(t.data.get(i));
        let sums: Vec<f32> = (0..len as usize).map(|i| terms.iter().fold(0.0, |sum, t| sum + term(t, i))).collect();
        self.put(Store { from: y.to, ..y }, sums)
    }

    pub(super) fn reduce(&self, p: &Reduce, x: &Memory, y: Store<'_, Self>) -> DeviceResult<Self> {
        let [outer, len, inner] = p.shape().map(|size| size as usize);
        let value = |i: usize, l: usize| x.get((i / inner * len + l) * inner + i % inner);
        let best = |i| (1..len).fold(0, |best, l| if wins(value(i, l), value(i, best)) { l } else { best });
        let eval = |i: usize| match p.op() {
            ReduceOp::Sum => (0..len).map(|l| value(i, l)).sum(),
            ReduceOp::Mean => (0..len).map(|l| value(i, l)).sum::<f32>() / len as f32,
            ReduceOp::SumSquares => (0..len).map(|l| value(i, l) * value(i, l)).sum(),
            ReduceOp::Max => value(i, best(i)),
            ReduceOp::ArgMax => best(i) as f32,
        };
        self.put(y, (0..outer * inner).map(eval))
    }

    pub(super) fn copy(&self, p: &Strided, x: &Memory, y: Store<'_, Self>) -> DeviceResult<Self> {
        let moves = (0..p.count()).map(|i| p.indices(i).map(|i| i as usize));
        if x.0 == DType::U32 && y.y.0 == DType::U32 {
            moves.for_each(|[from, to]| y.y.1[to] = x.1[from]); // f32 has no room for all words
            return Ok(());
        }
        self.store(y, moves.map(|[from, to]| (to, x.get(from))))
    }

    pub(super) fn gemm(
        &self, p: &Gemm, a: &Memory, b: &Memory, bias: Option<&Memory>, y: Store<'_, Self>,
    ) -> DeviceResult<Self> {
        let GemmShape { m, n, k } = p.shape();
        let [[m, n, k], lead, strides] =
            [[m, n, k], p.lead(), p.strides()].map(|sizes| sizes.map(|size| size as usize));
        let [ta, tb] = [p.transposed()[0], p.transposed()[1] && !self.on(Fault::TransposedB)];
        let at = |i: usize, z, row, col| z * strides[i] + row * lead[i] + col;
        let columns = if self.on(Fault::LastTileOffByOne) && n % 16 == 1 { n - 1 } else { n };
        let cells =
            (0..p.batch() as usize).flat_map(|z| (0..m).flat_map(move |i| (0..columns).map(move |j| (z, i, j))));
        let product = |z, i, j, l| {
            let from_a = if ta { at(0, z, l, i) } else { at(0, z, i, l) };
            a.get(from_a) * b.get(if tb { at(1, z, j, l) } else { at(1, z, l, j) })
        };
        let bias = |j| bias.map_or(0.0, |bias| bias.get(j));
        self.store(y, cells.map(|(z, i, j)| (at(2, z, i, j), self.dot((0..k).map(|l| product(z, i, j, l))) + bias(j))))
    }

    pub(super) fn conv(
        &self, p: &Conv2d, pass: Pass, a: &Memory, b: &Memory, bias: Option<&Memory>, y: Store<'_, Self>,
    ) -> DeviceResult<Self> {
        let ([_, kh, kw, depth], outs) = (p.w(), p.w()[0] / p.group_count());
        let result = [p.y(), p.x(), p.w()][pass as usize];
        let channels = result[3] as usize;
        let mut sums = vec![0f32; len(result)];
        for [image, r, s, o] in places(p.y()) {
            let yi = index(p.y(), [image, r, s, o]);
            for [_, i, j, _] in places([1, kh, kw, 1]) {
                let (Some(u), Some(v)) = (p.place(0, r, i), p.place(1, s, j)) else { continue };
                let x_start = index(p.x(), [image, u, v, o / outs * depth]);
                let w_start = index(p.w(), [o, i, j, 0]);
                for (xi, wi) in (x_start..).zip(w_start..).take(depth as usize) {
                    let (to, v) = match pass {
                        Pass::Forward => (yi, a.get(xi) * b.get(wi)),
                        Pass::Data => (xi, a.get(yi) * b.get(wi)),
                        Pass::Weight => (wi, a.get(xi) * b.get(yi)),
                    };
                    sums[to] += v;
                }
            }
        }
        let bias = |i: usize| bias.map_or(0.0, |bias| bias.get(i % channels));
        self.put(y, sums.iter().enumerate().map(|(i, sum)| sum + bias(i)))
    }

    pub(super) fn pool(
        &self, p: &Pool, x: &Memory, mut at: Option<&mut Memory>, y: Store<'_, Self>,
    ) -> DeviceResult<Self> {
        let [kh, kw] = p.window();
        let area = (kh * kw) as f32;
        let window = |[n, r, s, c]: [u32; 4]| {
            let inside = move |o| Some((o, index(p.x(), [n, p.place(0, r, o / kw)?, p.place(1, s, o % kw)?, c])));
            (0..kh * kw).filter_map(inside).map(|(o, i)| (o, x.get(i)))
        };
        let better = |v: f32, best: f32| wins(v, best) || self.on(Fault::LastOfTies) && v == best;
        let results = places(p.y()).enumerate().map(|(i, place)| {
            if p.op() == PoolOp::Average {
                return window(place).map(|(_, v)| v).sum::<f32>() / area;
            }
            let best = window(place).reduce(|best, next| if better(next.1, best.1) { next } else { best });
            let (offset, value) = best.expect("a window always meets its image");
            at.iter_mut().for_each(|at| at.1[i] = f64::from(offset));
            value
        });
        self.put(y, results)
    }

    pub(super) fn unpool(
        &self, p: &Pool, way: GatherScatter, x: &Memory, at: Option<&Memory>, y: Store<'_, Self>,
    ) -> DeviceResult<Self> {
        let [kh, kw] = p.window();
        let share = if p.op() == PoolOp::Max { 1.0 } else { (kh * kw) as f32 };
        let mut sums = vec![0f32; len(if way == GatherScatter::Scatter { p.x() } else { p.y() })];
        for (i, [n, r, s, c]) in places(p.y()).enumerate() {
            let chosen = at.filter(|_| p.op() == PoolOp::Max).map(|at| at.1[i] as u32);
            for o in (0..kh * kw).filter(|&o| chosen.is_none_or(|chosen| chosen == o)) {
                let (Some(u), Some(v)) = (p.place(0, r, o / kw), p.place(1, s, o % kw)) else { continue };
                let place = index(p.x(), [n, u, v, c]);
                let (to, from) = if way == GatherScatter::Scatter { (place, i) } else { (i, place) };
                sums[to] += x.get(from) / share;
            }
        }
        self.put(y, sums)
    }

    pub(super) fn rows(
        &self, p: &Rows, way: GatherScatter, x: &Memory, indices: &Memory, y: Store<'_, Self>,
    ) -> DeviceResult<Self> {
        let (width, table) = (p.width() as usize, p.table() as usize);
        let mut sums = vec![0f32; if way == GatherScatter::Gather { p.count() as usize } else { table } * width];
        for i in 0..p.count() as usize {
            let row = indices.1[i] as usize;
            for c in (0..width).filter(|_| row < table) {
                let (to, from) = if way == GatherScatter::Gather { (i, row) } else { (row, i) };
                sums[to * width + c] += x.get(from * width + c);
            }
        }
        self.put(y, sums)
    }

    pub(super) fn roi_align(
        &self, p: &RoiAlign, way: GatherScatter, x: &Memory, boxes: &Memory, y: Store<'_, Self>,
    ) -> DeviceResult<Self> {
        let gather = way == GatherScatter::Gather;
        let ([_, height, width, channels], [count, rows, columns, _]) = (p.x(), p.y());
        let mut sums = vec![0f32; if gather { p.y() } else { p.x() }.iter().product::<u32>() as usize];
        let moved = if self.on(Fault::BoxesNotAligned) { 0.5 / p.scale() } else { 0.0 };
        let points = |bins: u32| (0..bins).flat_map(|bin| (0..p.samples()).map(move |sample| (bin, sample)));
        for k in 0..count {
            let [image, left, top, right, bottom] = [0, 1, 2, 3, 4].map(|i| boxes.get(5 * k as usize + i));
            let Some(image) = p.image(image) else { continue };
            let corners = |axis: usize, bins: u32, ends: [f32; 2]| -> Vec<(u32, u32, f32)> {
                let ends = ends.map(|end| end + moved);
                let found = points(bins).filter_map(|(bin, sample)| Some((bin, p.point(axis, ends, bin, sample)?)));
                found.flat_map(|(bin, two)| two.map(|(place, share)| (bin, place, share))).collect()
            };
            let (down, along) = (corners(0, rows, [top, bottom]), corners(1, columns, [left, right]));
            for (&(r, u, a), &(s, v, b)) in down.iter().flat_map(|d| along.iter().map(move |s| (d, s))) {
                for c in 0..channels {
                    let bin = ((k * rows + r) * columns + s) * channels + c;
                    let pixel = ((image * height + u) * width + v) * channels + c;
                    let [to, from] = if gather { [bin, pixel] } else { [pixel, bin] }.map(|i| i as usize);
                    sums[to] += a * b * x.get(from);
                }
            }
        }
        sums.iter_mut().for_each(|sum| *sum /= (p.samples() * p.samples()) as f32);
        self.put(y, sums)
    }

    pub(super) fn roi_pool(
        &self, p: &RoiPool, x: &Memory, boxes: &Memory, at: &mut Memory, y: Store<'_, Self>,
    ) -> DeviceResult<Self> {
        let ([_, height, width, channels], [count, rows, columns, _]) = (p.x(), p.y());
        let mut values = Vec::new();
        for [k, r, s, c] in places([count, rows, columns, channels]) {
            let mut best: Option<(u32, f32)> = None;
            if let Some((image, ends)) = self.region(p, boxes, k) {
                let (down, along) = (p.places(0, ends[0], r), p.places(1, ends[1], s));
                for (u, v) in down.flat_map(|u| along.clone().map(move |v| (u, v))) {
                    let next = (u * width + v, x.get((((image * height + u) * width + v) * channels + c) as usize));
                    best = if best.is_none_or(|best| wins(next.1, best.1)) { Some(next) } else { best };
                }
            }
            let (place, value) = best.unwrap_or((RoiPool::NO_POSITION, 0.0));
            at.1[values.len()] = f64::from(place);
            values.push(value);
        }
        self.put(y, values)
    }

    pub(super) fn roi_unpool(
        &self, p: &RoiPool, x: &Memory, boxes: &Memory, at: &Memory, y: Store<'_, Self>,
    ) -> DeviceResult<Self> {
        let ([_, height, width, channels], [count, rows, columns, _]) = (p.x(), p.y());
        let mut sums = vec![0f32; len(p.x())];
        for (i, [k, _, _, c]) in places([count, rows, columns, channels]).enumerate() {
            let place = at.1[i] as u32;
            let Some((image, _)) = self.region(p, boxes, k).filter(|_| place != RoiPool::NO_POSITION) else { continue };
            sums[((image * height * width + place) * channels + c) as usize] += x.get(i);
        }
        self.put(y, sums)
    }

    /// The image of a box, and its ends by rows and by columns.
    fn region(&self, p: &RoiPool, boxes: &Memory, k: u32) -> Option<(u32, [[f32; 2]; 2])> {
        let numbers = [0, 1, 2, 3, 4].map(|i| boxes.get(5 * k as usize + i));
        let last = if self.on(Fault::BoxesEndBefore) { 1.0 / p.scale() } else { 0.0 };
        let [_, left, top, right, bottom] = numbers;
        Some((p.image(&numbers)?, [[top, bottom - last], [left, right - last]]))
    }

    pub(super) fn norm(
        &self, p: &Norm, x: &Memory, affine: Option<[&Memory; 2]>, saved: &mut Memory, y: Store<'_, Self>,
    ) -> DeviceResult<Self> {
        let (len, groups, n) = (p.x().iter().product::<u32>(), p.groups() as usize, p.size() as f32);
        let freedom = if self.on(Fault::UnbiasedVariance) { n - 1.0 } else { n };
        for group in (0..groups).filter(|_| !p.is_given()) {
            let members = || (0..len).filter(|&i| p.group_of(i) as usize == group).map(|i| x.get(i as usize));
            let mean = if p.is_centered() { members().sum::<f32>() / n } else { 0.0 };
            saved.1[group] = f64::from(mean);
            saved.1[groups + group] = f64::from(members().map(|v| (v - mean) * (v - mean)).sum::<f32>() / freedom);
        }
        let normal = |i: u32| {
            let (group, channel) = (p.group_of(i) as usize, (i % p.x()[3]) as usize);
            let v = (x.get(i as usize) - saved.get(group)) / (saved.get(groups + group) + p.eps()).sqrt();
            affine.map_or(v, |[scale, shift]| v * scale.get(channel) + shift.get(channel))
        };
        self.put(y, (0..len).map(normal))
    }

    pub(super) fn norm_vjp(
        &self, p: &Norm, x: NormSaved<&Memory>, dy: &Memory, dx: Store<'_, Self>, affine: Option<[Store<'_, Self>; 2]>,
    ) -> DeviceResult<Self> {
        let (len, groups, n) = (p.x().iter().product::<u32>() as usize, p.groups() as usize, p.size() as f32);
        let group = |i: usize| p.group_of(i as u32) as usize;
        let channels = p.x()[3] as usize;
        let inverse = |i: usize| 1.0 / (x.saved.get(groups + group(i)) + p.eps()).sqrt();
        let normal = |i: usize| (x.x.get(i) - x.saved.get(group(i))) * inverse(i);
        let upstream = |i: usize| dy.get(i) * x.weight.map_or(1.0, |scale| scale.get(i % channels));
        let mut means = vec![[0f32; 2]; groups];
        for i in (0..len).filter(|_| !p.is_given()) {
            let [plain, weighted] = means[group(i)];
            means[group(i)] = [plain + upstream(i), weighted + upstream(i) * normal(i)];
        }
        let gradient = |i| {
            let [plain, weighted] = means[group(i)].map(|sum| sum / n);
            (upstream(i) - if p.is_centered() { plain } else { 0.0 } - normal(i) * weighted) * inverse(i)
        };
        self.put(dx, (0..len).map(gradient))?;
        let column = |c: usize| (0..len).skip(c).step_by(channels);
        let Some([scale, shift]) = affine else { return Ok(()) };
        self.put(scale, (0..channels).map(|c| column(c).map(|i| dy.get(i) * normal(i)).sum()))?;
        self.put(shift, (0..channels).map(|c| column(c).map(|i| dy.get(i)).sum()))
    }

    pub(super) fn softmax(
        &self, p: &Softmax, x: &Memory, selection: Option<&Memory>, y: Store<'_, Self>,
    ) -> DeviceResult<Self> {
        let [_, rows, columns] = p.shape().map(|size| size as usize);
        let selected = |i: usize| selection.map_or(0.0, |selection| selection.number(i));
        let weights = (0..p.rows() as usize).flat_map(|r| {
            let length = if p.read() == SoftmaxColumns::Within { selected(r / rows) as u32 } else { 0 };
            let more = usize::from(self.on(Fault::HiddenColumnRead));
            let end = columns.min(p.columns_of_row(r as u32, length) as usize + more);
            let is_read = |c: usize| c < end && (p.read() != SoftmaxColumns::Masked || selected(r * columns + c) > 0.0);
            let scores = || (0..columns).filter(|&c| is_read(c)).map(|c| x.get(r * columns + c));
            let most = scores().fold(f32::NEG_INFINITY, |best, v| if wins(v, best) { v } else { best });
            let sum = scores().map(|v| (v - most).exp()).sum::<f32>();
            let weight = |c: usize| {
                let below = x.get(r * columns + c) - most;
                if p.is_logarithm() { below - sum.ln() } else { below.exp() / sum }
            };
            (0..columns).map(|c| if is_read(c) { weight(c) } else { 0.0 }).collect::<Vec<_>>()
        });
        self.put(y, weights)
    }

    pub(super) fn softmax_vjp(&self, p: &Softmax, y: &Memory, dy: &Memory, dx: Store<'_, Self>) -> DeviceResult<Self> {
        let columns = p.shape()[2] as usize;
        let gradients = (0..p.rows() as usize).flat_map(|r| {
            let at = r * columns..(r + 1) * columns;
            let is_live = |i: usize| p.is_logarithm() || y.get(i) != 0.0;
            let term = |i: usize| if p.is_logarithm() { dy.get(i) } else { y.get(i) * dy.get(i) };
            let sum = at.clone().filter(|&i| is_live(i)).map(term).sum::<f32>();
            let sum = if self.on(Fault::RowSumDropped) { 0.0 } else { sum };
            let gradient = |i: usize| match (is_live(i), p.is_logarithm()) {
                (false, _) => 0.0,
                (true, false) => y.get(i) * (dy.get(i) - sum),
                (true, true) => dy.get(i) - y.get(i).exp() * sum,
            };
            at.map(gradient).collect::<Vec<_>>()
        });
        self.put(dx, gradients)
    }

    pub(super) fn cross_entropy(
        &self, p: &CrossEntropy, x: CrossEntropyArgs<&Memory>, out: &mut Memory,
    ) -> DeviceResult<Self> {
        let [rows, classes] = p.shape().map(|size| size as usize);
        let [mut loss, mut weights, mut counted] = [0f32; 3];
        for r in 0..rows {
            let logits = || (0..classes).map(|c| x.logits.get(r * classes + c));
            let most = logits().fold(f32::NEG_INFINITY, |best, v| if wins(v, best) { v } else { best });
            let lse = most + logits().map(|v| (v - most).exp()).sum::<f32>().ln();
            out.1[2 + r] = f64::from(lse);
            let (weight, error) = match p.row(x.labels.1[r] as u32) {
                CrossEntropyRow::Ignored if !self.on(Fault::IgnoredCounted) => continue,
                CrossEntropyRow::Class(c) => (weight(x, c), lse - x.logits.get(r * classes + c as usize)),
                CrossEntropyRow::Invalid | CrossEntropyRow::Ignored => (1.0, f32::NAN),
            };
            (loss, weights, counted) = (loss + weight * error, weights + weight, counted + 1.0);
        }
        out.1[1] = f64::from(p.divisor().value(counted, weights));
        out.1[0] = if counted == 0.0 { 0.0 } else { f64::from(loss / out.get(1)) };
        Ok(())
    }

    pub(super) fn cross_entropy_vjp(
        &self, p: &CrossEntropy, x: CrossEntropyArgs<&Memory>, out: &Memory, g: &Memory, dx: Store<'_, Self>,
    ) -> DeviceResult<Self> {
        let [rows, classes] = p.shape().map(|size| size as usize);
        let gradient = |i: usize| {
            let (r, c) = (i / classes, i % classes);
            let softmax = (x.logits.get(i) - out.get(2 + r)).exp();
            match p.row(x.labels.1[r] as u32) {
                CrossEntropyRow::Ignored => 0.0,
                CrossEntropyRow::Invalid => f32::NAN,
                CrossEntropyRow::Class(label) => {
                    g.get(0) * weight(x, label) / out.get(1) * (softmax - if label as usize == c { 1.0 } else { 0.0 })
                }
            }
        };
        self.put(dx, (0..rows * classes).map(gradient))
    }

    pub(super) fn global_norm(&self, grads: &[&Memory], norm: &mut Memory) -> DeviceResult<Self> {
        // `sum` is not used here, because its value for no terms is −0.
        let squares = grads.iter().flat_map(|g| &g.1).fold(0.0, |sum, v| sum + v * v);
        norm.1[0] = f64::from(squares.sqrt() as f32);
        Ok(())
    }

    pub(super) fn optimize(
        &self, p: &Optimizer, table: &Table, guard: &UpdateGuard, norm: Option<&Memory>,
        params: &mut [Param<'_, Memory>],
    ) -> DeviceResult<Self> {
        let rows = table.rows.borrow();
        let mut guard = guard.clone();
        if self.on(Fault::ActivationsUnguarded) {
            guard.activations = 0..0;
        }
        if guard.blocks_update(&rows) && !self.on(Fault::GuardIgnored) {
            return Ok(());
        }
        let norm = norm.map(|norm| norm.get(0)).filter(|_| !self.on(Fault::ClipDropped));
        let step = p.step(|hyperparameter| table.hyperparameters[usize::from(hyperparameter.0)], norm);
        for param in params {
            for i in 0..param.len as usize {
                let state = [0, 1].map(|s| param.state[s].as_ref().map_or(0.0, |state| state.get(i)));
                let (w, state) = step.update(param.master.get(i), param.grad.get(i), state);
                param.master.1[i] = f64::from(w);
                for (s, v) in state.into_iter().enumerate() {
                    param.state[s].iter_mut().for_each(|state| state.1[i] = f64::from(v));
                }
                param.half.iter_mut().for_each(|half| half.1[i] = f64::from(self.round(w, Detail::Counts)));
            }
        }
        Ok(())
    }
}
