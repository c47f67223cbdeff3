//! Data sets as examples by index, and batches of them.

use crate::{Cause, Classification, DataError, Element, Example, Order, Random, transforms::Transform};
use gradscale::Input;

/// Data set whose examples can be read in any order: from memory, files or any other source. [`Classification`] is one,
/// and [`ExampleBatches`] shuffles any.
///
/// ```
/// use gradscale_data::{Cause, DataError, Dataset, Example};
///
/// /// Numbers with their parity.
/// struct Parity;
///
/// impl Dataset for Parity {
///     fn example_count(&self) -> usize { 100 }
///     fn class_count(&self) -> usize { 2 }
///     fn read_example(&self, index: usize) -> Result<Example, DataError> {
///         if index >= 100 {
///             return Err(Cause::Example { index, count: 100 }.at("parity"));
///         }
///         Ok(Example { shape: [1, 1, 1], values: vec![index as f32], label: index as u32 % 2 })
///     }
/// }
///
/// assert_eq!(Parity.read_example(7)?.label, 1);
/// assert_eq!(Parity.read_example(100).unwrap_err().to_string(), "parity: example 100 of 100, numbered from 0");
/// # Ok::<(), DataError>(())
/// ```
pub trait Dataset {
    /// Returns the number of examples.
    fn example_count(&self) -> usize;

    /// Returns the number of classes; every label is less.
    fn class_count(&self) -> usize;

    /// Reads the example with this index, from 0.
    ///
    /// # Errors
    /// An index beyond the last example ([`Cause::Example`]), and files that cannot be read.
    fn read_example(&self, index: usize) -> Result<Example, DataError>;
}

impl<D: Dataset + ?Sized> Dataset for &D {
    fn example_count(&self) -> usize {
        (**self).example_count()
    }

    fn class_count(&self) -> usize {
        (**self).class_count()
    }

    fn read_example(&self, index: usize) -> Result<Example, DataError> {
        (**self).read_example(index)
    }
}

/// Images and rows of numbers with one class each. Bytes become values from 0 to 1; numbers stay as they are.
impl Dataset for Classification {
    fn example_count(&self) -> usize {
        self.count
    }

    fn class_count(&self) -> usize {
        self.classes
    }

    fn read_example(&self, index: usize) -> Result<Example, DataError> {
        let Some(&label) = self.labels.get(index).filter(|_| index < self.count) else {
            return Err(Cause::Example { index, count: self.count }.at("data set"));
        };
        let bytes = self.image(index)?;
        let values = match self.element {
            Element::Byte => bytes.iter().map(|&byte| f32::from(byte) / 255.0).collect(),
            Element::Number => bytes.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect(),
        };
        Ok(Example { shape: [self.height, self.width, self.channels], values, label })
    }
}

/// Batch of examples of one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct ExampleBatch {
    /// Number of examples, and the shape of each.
    pub shape: [usize; 4],
    /// Values of all examples, one after another.
    pub values: Vec<f32>,
    /// Classes of the examples.
    pub labels: Vec<u32>,
}

impl ExampleBatch {
    /// Collects examples, which must have one shape.
    ///
    /// # Errors
    /// No examples, or one with another shape than the first.
    pub fn collect(examples: impl IntoIterator<Item = Result<Example, DataError>>) -> Result<Self, DataError> {
        let mut all: Option<Self> = None;
        for example in examples {
            let Example { shape: [h, w, c], values, label } = example?;
            let batch = all.get_or_insert_with(|| Self { shape: [0, h, w, c], values: Vec::new(), labels: Vec::new() });
            let expected = &batch.shape[1..];
            if expected != [h, w, c] || values.len() != h * w * c {
                let expected = format!("{} × {} × {} as the first of the batch", expected[0], expected[1], expected[2]);
                let found = if values.len() == h * w * c { vec![h, w, c] } else { vec![values.len()] };
                return Err(Cause::Shape { expected, found }.at(format!("example {} of the batch", batch.shape[0])));
            }
            batch.shape[0] += 1;
            batch.values.extend(values);
            batch.labels.push(label);
        }
        all.ok_or_else(|| Cause::Empty.at("batch"))
    }

    /// Returns values and labels as the inputs of a network and its loss.
    #[must_use]
    pub fn inputs(&self) -> [Input<'_>; 2] {
        [Input::f32(self.shape, &self.values), Input::u32([self.labels.len()], &self.labels)]
    }
}

/// Endless shuffled batches of a data set. Each example is changed by a [`Transform`] with a random stream of its own,
/// which depends on seed, epoch and example alone. So a training that is resumed from a seed and a position sees the
/// same batches.
///
/// ```
/// use gradscale::{Cpu, Method, Parameters, Trainer, models::Mlp, nn::Module, optim::Sgd};
/// use gradscale_data::{ExampleBatches, Labelled, transforms::{Normalize, Shift}};
///
/// // Labelled::load("data/mnist", &DataOptions::default())? reads files.
/// let data = Labelled::synthetic(0);
/// let changed = (Shift { rows: 2, columns: 2 }, Normalize::new(&[0.3], &[0.3])?);
/// let mut batches = ExampleBatches::new(&data.train, changed, 32, 7)?;
///
/// let mut parameters = Parameters::seeded(0);
/// let net = Mlp::new(&mut parameters.at("net"), &[28 * 28, 16, 10]);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// for _ in 0..3 {
///     let batch = batches.next_batch()?;
///     let gradients = trainer.backward(batch.inputs(), |[x, labels]| net.forward(x.flatten()).cross_entropy(labels))?;
///     trainer.step(gradients)?;
/// }
/// assert_eq!(batches.position(), 96);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ExampleBatches<D, T> {
    dataset: D,
    transform: T,
    batch: usize,
    order: Order,
}

impl<D: Dataset, T: Transform> ExampleBatches<D, T> {
    /// Creates batches of `batch` examples in an order that the seed determines.
    ///
    /// # Errors
    /// A batch of 0, or of more than all examples.
    pub fn new(dataset: D, transform: T, batch: usize, seed: u64) -> Result<Self, Cause> {
        let count = dataset.example_count();
        if batch == 0 || batch > count {
            return Err(Cause::Batch { batch, count });
        }
        Ok(Self { dataset, transform, batch, order: Order::new(count, seed) })
    }

    /// Returns the same batches from a position on, as after that number of examples.
    #[must_use]
    pub fn at(self, position: u64) -> Self {
        Self { order: self.order.at(position), ..self }
    }

    /// Returns the number of examples that were read so far.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.order.position()
    }

    /// Reads and transforms the next batch.
    ///
    /// # Errors
    /// Examples that cannot be read, or that differ in shape.
    pub fn next_batch(&mut self) -> Result<ExampleBatch, DataError> {
        let Self { dataset, transform, batch, order } = self;
        ExampleBatch::collect(order.by_ref().take(*batch).map(|sample| {
            let mut example = dataset.read_example(sample.index)?;
            transform.apply(&mut example, &mut Random::from_key(&[sample.word]));
            Ok(example)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sources, transforms::Mirror};

    /// Five images of 1 × 2 pixels, whose values identify them.
    fn images(element: Element) -> Classification {
        let bytes = match element {
            Element::Byte => (0..10u8).map(|value| 25 * value).collect(),
            Element::Number => (0..10u8).flat_map(|value| f32::from(value).to_le_bytes()).collect::<Vec<u8>>(),
        };
        Classification {
            count: 5,
            height: 1,
            width: 2,
            channels: 1,
            element,
            features: bytes.into(),
            labels: vec![0, 1, 2, 1, 0],
            classes: 3,
            sources: Sources::Unnamed,
            crop: None,
        }
    }

    #[test]
    fn examples_have_values_and_labels() {
        let data = images(Element::Byte);
        assert_eq!((data.example_count(), data.class_count()), (5, 3));
        let example = data.read_example(2).expect("in memory");
        assert_eq!(example, Example { shape: [1, 2, 1], values: vec![100.0 / 255.0, 125.0 / 255.0], label: 2 });
        assert_eq!(images(Element::Number).read_example(4).expect("in memory").values, [8.0, 9.0]);
        let beyond = data.read_example(5).expect_err("five images");
        assert_eq!(beyond.to_string(), "data set: example 5 of 5, numbered from 0");
    }

    #[test]
    fn batches_show_every_example_once_an_epoch_and_can_be_resumed() {
        let data = images(Element::Number);
        let mut batches = ExampleBatches::new(&data, Mirror, 2, 3).expect("batches");
        let (mut seen, mut mirrored) = ([0; 5], 0);
        for _ in 0..20 {
            let mut resumed = ExampleBatches::new(&data, Mirror, 2, 3).expect("batches").at(batches.position());
            let batch = batches.next_batch().expect("in memory");
            assert_eq!(resumed.next_batch().expect("in memory"), batch);
            assert_eq!((batch.shape, batch.inputs()[1].shape().len()), ([2, 1, 2, 1], 2));
            for (values, label) in batch.values.chunks(2).zip(&batch.labels) {
                let index = (0..5).find(|i| values.contains(&(2.0 * *i as f32))).expect("an image");
                assert_eq!(*label, data.labels[index]);
                seen[index] += 1;
                mirrored += usize::from(values[0] > values[1]);
            }
        }
        assert_eq!(seen, [8; 5]);
        assert!((5..35).contains(&mirrored), "{mirrored} of 40"); // 5 standard deviations
    }

    #[test]
    fn what_cannot_be_batched() {
        let data = images(Element::Byte);
        for batch in [0, 6] {
            let cause = ExampleBatches::new(&data, Mirror, batch, 0).expect_err("no batch");
            assert!(matches!(cause, Cause::Batch { count: 5, .. }), "{cause}");
        }
        let example = |shape: [usize; 3], values| Ok(Example { shape, values: vec![0.0; values], label: 0 });
        let refused = |examples: Vec<_>| ExampleBatch::collect(examples).expect_err("no batch").to_string();
        assert_eq!(refused(Vec::new()), "batch: no images");
        assert_eq!(
            refused(vec![example([1, 2, 1], 2), example([2, 1, 1], 2)]),
            "example 1 of the batch: shape 2 × 1 × 1, expected 1 × 2 × 1 as the first of the batch"
        );
        assert_eq!(
            refused(vec![example([1, 2, 1], 3)]),
            "example 0 of the batch: shape 3, expected 1 × 2 × 1 as the first of the batch"
        );
        assert!(refused(vec![data.read_example(9)]).starts_with("data set: example 9"));
    }
}
