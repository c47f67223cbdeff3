//! Batches of tensors in memory.

use super::{Batches, DataError, Last, Sample};
use crate::{Input, Shape};
use gradscale_core::backend::Data;
use half::f16;

/// Endless shuffled batches of tensors in memory. The first size of each tensor is the number of examples:
/// `[60000, 28, 28, 1]` and `[60000]` give `[32, 28, 28, 1]` and `[32]`. Augmentation of the examples (mirroring,
/// noise) is up to the caller: [`Batches`] determines the examples of a batch, and [`Sample`] has a random number for
/// each.
///
/// A batch may be uploaded while the device still computes the one before:
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, data::Loader, nn::{Linear, Module}, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let net = Linear::new(&mut parameters.at("net"), 2, 2);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?;
/// let points: Vec<f32> = (0..200u8).map(|i| f32::from(i % 100) / 50.0 - 1.0).collect();
/// let labels: Vec<u8> = points.chunks(2).map(|p| u8::from(p[0] > 0.0)).collect();
///
/// let mut loader = Loader::new([Input::f32([100, 2], &points), Input::u8([100], &labels)], 25, 7)?;
/// let mut ahead = trainer.prefetch(loader.batch())?;
/// while loader.epoch() < 3 {
///     let gradients = trainer.backward(ahead, |[x, labels]| net.forward(x).cross_entropy(labels))?;
///     ahead = trainer.prefetch(loader.batch())?;
///     trainer.step(gradients)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "DataLoader")]
pub struct Loader<'a, const N: usize> {
    whole: [Input<'a>; N],
    batches: Batches,
    samples: Vec<Sample>,
    rows: [BatchBuffer; N],
}

/// Buffer in which the examples of a batch are concatenated.
#[derive(Clone, Debug)]
enum BatchBuffer {
    F32(Vec<f32>),
    F16(Vec<f16>),
    U8(Vec<u8>),
    U32(Vec<u32>),
}

impl<'a, const N: usize> Loader<'a, N> {
    /// Creates batches of `batch` examples from whole tensors. [`Batches`] defines the order for a seed.
    ///
    /// # Errors
    /// Tensors with different numbers of examples, or of another length than their shape; a batch of 0, or of more than
    /// all examples.
    pub fn new(whole: [Input<'a>; N], batch: usize, seed: u64) -> Result<Self, DataError> {
        let batches = Batches::new(count(&whole)?, batch, seed)?;
        let rows = whole.each_ref().map(|tensor| match tensor.data {
            Data::F32(_) => BatchBuffer::F32(Vec::new()),
            Data::F16(_) => BatchBuffer::F16(Vec::new()),
            Data::U8(_) => BatchBuffer::U8(Vec::new()),
            Data::U32(_) => BatchBuffer::U32(Vec::new()),
        });
        Ok(Self { whole, batches, samples: Vec::new(), rows })
    }

    /// Sets the treatment of the last examples of an epoch; the default is [`Last::Filled`].
    #[must_use]
    pub fn last(self, last: Last) -> Self {
        Self { batches: self.batches.last(last), ..self }
    }

    /// Moves the loader to a position, so that it continues as after that number of examples.
    #[must_use]
    pub fn at(self, position: u64) -> Self {
        Self { batches: self.batches.at(position), ..self }
    }

    /// Returns the position of the loader in its sequence of examples ([`Batches::position`]).
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.batches.position()
    }

    /// Returns the epoch, from 0, to which the first example of the loader's next batch belongs.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.batches.epoch()
    }

    /// Returns index and random word of each example of the last batch.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns the next batch: one input for each tensor.
    pub fn batch(&mut self) -> [Input<'_>; N] {
        self.samples = self.batches.next().unwrap_or_default();
        let samples = &self.samples;
        self.rows.iter_mut().zip(&self.whole).for_each(|(rows, tensor)| rows.take(tensor, samples));
        let shapes = self.whole.each_ref().map(|tensor| with_count(tensor.shape, samples.len()));
        let mut shapes = shapes.into_iter();
        self.rows.each_ref().map(|rows| Input { shape: shapes.next().unwrap_or(Shape::SCALAR), data: rows.data() })
    }
}

impl BatchBuffer {
    /// Copies the rows of some examples into one contiguous batch.
    fn take(&mut self, tensor: &Input<'_>, samples: &[Sample]) {
        fn take<T: Copy>(to: &mut Vec<T>, from: &[T], width: usize, samples: &[Sample]) {
            to.clear();
            samples.iter().for_each(|sample| to.extend_from_slice(&from[sample.index * width..][..width]));
        }
        let width = width(tensor.shape);
        match (self, tensor.data) {
            (Self::F32(to), Data::F32(from)) => take(to, from, width, samples),
            (Self::F16(to), Data::F16(from)) => take(to, from, width, samples),
            (Self::U8(to), Data::U8(from)) => take(to, from, width, samples),
            (Self::U32(to), Data::U32(from)) => take(to, from, width, samples),
            // Cannot happen, because both were created with the same type.
            (Self::F32(_) | Self::F16(_) | Self::U8(_) | Self::U32(_), _) => {}
        }
    }

    fn data(&self) -> Data<'_> {
        match self {
            Self::F32(all) => Data::F32(all),
            Self::F16(all) => Data::F16(all),
            Self::U8(all) => Data::U8(all),
            Self::U32(all) => Data::U32(all),
        }
    }
}

/// Returns all examples in their order, `batch` at a time, the last batch shorter, for evaluation. Nothing is copied.
///
/// ```
/// use gradscale::{Input, data::in_order};
/// let labels = [0, 1, 2, 3, 4];
/// let sizes: Vec<_> = in_order([Input::u8([5], &labels)], 2)?.map(|[part]| part.shape().sizes()[0]).collect();
/// assert_eq!(sizes, [2, 2, 1]);
/// # Ok::<(), gradscale::data::DataError>(())
/// ```
///
/// # Errors
/// Tensors with different numbers of examples, or of another length than their shape; a batch of 0.
pub fn in_order<const N: usize>(whole: [Input<'_>; N], batch: usize) -> Result<InOrder<'_, N>, DataError> {
    let count = count(&whole)?;
    if batch == 0 {
        return Err(DataError::Batch { batch, count });
    }
    Ok(InOrder { whole, batch, next: 0, count })
}

/// Iterator over batches of examples in their order, created by [`in_order`].
#[derive(Clone, Debug)]
pub struct InOrder<'a, const N: usize> {
    whole: [Input<'a>; N],
    batch: usize,
    next: usize,
    count: usize,
}

impl<const N: usize> InOrder<'_, N> {
    /// Returns the index of the first example of the next batch; the number of all examples after the last one.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.next
    }
}

impl<'a, const N: usize> Iterator for InOrder<'a, N> {
    type Item = [Input<'a>; N];

    fn next(&mut self) -> Option<[Input<'a>; N]> {
        let some = self.next..self.count.min(self.next.saturating_add(self.batch));
        if some.is_empty() {
            return None;
        }
        self.next = some.end;
        Some(self.whole.map(|Input { shape, data }| {
            let width = width(shape);
            let places = some.start * width..some.end * width;
            let data = match data {
                Data::F32(all) => Data::F32(&all[places]),
                Data::F16(all) => Data::F16(&all[places]),
                Data::U8(all) => Data::U8(&all[places]),
                Data::U32(all) => Data::U32(&all[places]),
            };
            Input { shape: with_count(shape, some.len()), data }
        }))
    }
}

/// Returns the number of examples of the data, which must be equal for all tensors.
fn count(whole: &[Input<'_>]) -> Result<usize, DataError> {
    let count = |tensor: &Input<'_>| tensor.shape.sizes()[0];
    let with = whole.first().map_or(0, count);
    for (i, tensor) in whole.iter().enumerate() {
        if tensor.data.len() != tensor.shape.len() {
            return Err(DataError::Length { got: tensor.data.len(), shape: tensor.shape });
        }
        if count(tensor) != with {
            return Err(DataError::Count { tensor: i, got: count(tensor), with });
        }
    }
    Ok(with)
}

/// Returns the number of elements of one example of a tensor.
fn width(shape: Shape) -> usize {
    shape.sizes()[1..].iter().product()
}

fn with_count(shape: Shape, count: usize) -> Shape {
    let [_, h, w, c] = shape.sizes();
    Shape::from([count, h, w, c])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(batch: Input<'_>) -> String {
        format!("{batch:?}")
    }

    /// Five examples of 2 × 3 whose values identify them, and their numbers in every other type.
    #[test]
    fn batches_are_whole_examples() {
        let images: Vec<f32> = (0..30u8).map(f32::from).collect();
        let halves: Vec<f16> = (0..5u8).map(|i| f16::from_f32(f32::from(i))).collect();
        let (bytes, words) = ([0u8, 1, 2, 3, 4], [0u32, 1, 2, 3, 4]);
        let whole = [
            Input::f32([5, 1, 2, 3], &images),
            Input::f16([5, 1], &halves),
            Input::u8([5], &bytes),
            Input::u32([5], &words),
        ];
        let mut loader = Loader::new(whole, 2, 9).unwrap().last(Last::Short);
        let mut seen = [0; 5];
        while loader.epoch() < 4 {
            let batch = loader.batch();
            let [x, half, byte, word] = batch;
            let n = byte.shape.sizes()[0];
            assert_eq!(x.shape.sizes(), [n, 1, 2, 3]);
            let (Data::F32(x), Data::F16(half), Data::U8(byte), Data::U32(word)) =
                (x.data, half.data, byte.data, word.data)
            else {
                panic!("types are kept");
            };
            for (i, &index) in byte.iter().enumerate() {
                assert_eq!((word[i], half[i].to_f32()), (u32::from(index), f32::from(index)));
                let first = 6 * index;
                assert!(x[6 * i..][..6].iter().copied().eq((first..first + 6).map(f32::from)));
                seen[usize::from(index)] += 1;
            }
            let bytes = byte.to_vec();
            assert!(loader.samples().iter().map(|sample| sample.index).eq(bytes.into_iter().map(usize::from)));
        }
        assert_eq!(seen, [4; 5]);
        // A loader that continues from the position returns the same batches.
        let mut resumed = Loader::new(whole, 2, 9).unwrap().last(Last::Short).at(loader.position());
        assert_eq!(text(resumed.batch()[3]), text(loader.batch()[3]));
    }

    #[test]
    fn in_order_shows_everything_once() {
        let (x, labels) = ([0.5, 1.5, 2.5, 3.5, 4.5, 5.5], [7u8, 8, 9]);
        let all: Vec<_> = in_order([Input::f32([3, 2], &x), Input::u8([3], &labels)], 2).unwrap().collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].map(text), [text(Input::f32([2, 2], &x[..4])), text(Input::u8([2], &[7, 8]))]);
        assert_eq!(all[1].map(text), [text(Input::f32([1, 2], &x[4..])), text(Input::u8([1], &[9]))]);
        assert_eq!(in_order([Input::u8([3], &labels)], usize::MAX).unwrap().count(), 1);
        assert_eq!(in_order([Input::u8([0], &[])], 4).unwrap().count(), 0);
    }

    #[test]
    fn what_does_not_belong_together() {
        let (x, labels) = ([0.5; 6], [0u8; 4]);
        let said = |whole: [Input<'_>; 2], batch| Loader::new(whole, batch, 0).unwrap_err().to_string();
        let (three, four) = (Input::f32([3, 2], &x), Input::u8([4], &labels));
        assert_eq!(said([three, four], 1), "tensor 1 has 4 examples, but the first has 3");
        assert_eq!(said([three, Input::u8([3], &labels)], 1), "4 elements do not fit the shape 3×1");
        assert_eq!(said([three; 2], 4), "a batch of 4 examples needs as many, but there are 3");
        assert!(in_order([three, four], 1).is_err() && in_order([three], 0).is_err());
        assert!(Loader::new([], 1, 0).is_err());
    }
}
