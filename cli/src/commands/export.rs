//! `gradscale export`: writes a trained network as an ONNX model.

use super::{
    predict::{Ready, of_checkpoint},
    train::checkpoints::FoundCheckpoint,
};
use crate::{Failure, data::Size, device::Device, output, tasks::Export as Asked};
use clap::Args;
use std::path::PathBuf;

/// `gradscale export`.
#[derive(Clone, Debug, Args)]
pub struct Export {
    /// A checkpoint of `gradscale train`.
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: PathBuf,
    /// Output file. The ONNX model evaluates the network in f32; images are [n, rows, columns, channels]. Its inputs
    /// are those of the network: image bytes, table rows normalised as in the training, spectra or tokens. Several
    /// inputs have this order: for SSD and Faster R-CNN the image; for boxes of the second stage its first outputs, the
    /// anchors, are named `proposed`; for speech the spectra, their frame counts and the output lengths (half the
    /// frames, rounded up); for translation the source, its lengths and the target so far; for language the tokens, and
    /// for biglstm also its state (h, c). All sizes are fixed. The metadata entry `classes`, in JSON, describes classes
    /// and preprocessing: names, means of columns, tokens. The file may exist only if gradscale wrote it.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Store weights in FP16, which halves the file. The model casts them to f32 before it uses them.
    #[arg(long)]
    half: bool,
    /// Batch size of the exported model: images, sequences or rows
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    batch: u16,
    /// For networks that label pixels: rows and columns of the images [default: --size of the training]
    #[arg(long, value_name = "HxW")]
    size: Option<Size>,
    /// For networks that read sequences: length in tokens or frames; for a decoder at most its window
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=16384))]
    length: u16,
}

/// Returns true if a file begins as an ONNX model of this program: the producer is the second field of the model.
fn is_model(start: &[u8]) -> bool {
    const PRODUCER: &[u8] = b"gradscale";
    // The first field, the version of the format, and the head of the second have four bytes.
    start.windows(PRODUCER.len()).take(8).any(|bytes| bytes == PRODUCER)
}

/// Writes the network of a checkpoint as an ONNX model.
///
/// # Errors
/// A file that is no checkpoint, an operator that ONNX does not have, a size that is missing or too small.
pub fn run(arguments: &Export) -> Result<(), Failure> {
    let Export { checkpoint, out, half, batch, length, .. } = arguments;
    output::check_replaceable(out, is_model)?;
    let found = FoundCheckpoint::read(checkpoint)?;
    let Ready { mut applied, classes, .. } = of_checkpoint(&found, (Device::Cpu, 1))?;
    let pixels = arguments.size.or(found.plan()?.setup.reading().size);
    let image = match (classes.input, classes.columns.len()) {
        (Some(input), _) => Some(input.size),
        (None, 0) => pixels.map(|Size([rows, columns])| [rows, columns, 3]),
        (None, columns) => Some([1, columns, 1]),
    };
    if arguments.size.is_some_and(|Size(size)| classes.input.is_some_and(|input| input.size[..2] != size)) {
        return Err(Failure::at(
            "--size",
            "the network takes only images of the size that it was trained on; leave \
            --size out",
        ));
    }
    let asked = Asked { batch: usize::from(*batch), length: usize::from(*length), image, half: *half };
    let mut model = applied.onnx(&asked)?;
    let described = serde_json::to_string(&classes).map_err(|error| Failure::file(checkpoint, error))?;
    gradscale::onnx_metadata(&mut model, "classes", &described);
    output::write(out, &model)?;
    output::print(&format!("{}: {:.1} MB\n", out.display(), model.len() as f64 / 1e6))
}
