//! Data of all regimes: images, and recordings where a regime needs them.

use super::images::Images;
use crate::data::{Speech, Spoken};
use gradscale::core::ops::Ctc;

/// What networks are trained on.
#[derive(Debug)]
pub struct Data {
    pub images: Images,
    /// None if no regime asks for them.
    pub recordings: Option<Speech>,
}

impl Data {
    /// Names of the data sets, for a page.
    pub fn name(&self) -> String {
        let images = format!("images: {}", self.images.name);
        match &self.recordings {
            Some(speech) => format!(
                "{images}; recordings: {}, {} of {} shorter than their transcript",
                speech.name,
                speech.train.iter().filter(|one| is_short(one)).count(),
                speech.train.len()
            ),
            None => images,
        }
    }
}

/// Steps that so many frames become behind two convolutions of stride 2.
pub const fn steps_of(frames: usize) -> usize {
    frames.div_ceil(2).div_ceil(2)
}

/// Whether a recording is shorter than its transcript needs.
pub fn is_short(recording: &Spoken) -> bool {
    let letters: Vec<u32> = recording.text.chars().map(u32::from).collect();
    steps_of(recording.frames) < Ctc::least_frames(&letters)
}
