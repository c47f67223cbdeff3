//! State in checkpoints.

use crate::{
    Error, Scaler,
    scaler::{EMPTY, State},
};
use gradscale::{
    Scaling,
    gradscale_core::{backend::Slot, loss_scale::LossScale},
    sites::SavedSite,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Saved {
    method: String,
    /// Saved state of the loss scale, if the method has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss_scale: Option<Vec<i64>>,
    sites: Vec<SavedSite>,
}

impl Scaler {
    /// Returns the state of all sites as JSON, from which training continues bit for bit. Call it between steps.
    ///
    /// # Errors
    /// [`Error::State`] if it cannot be written.
    pub fn save(&self) -> Result<String, Error> {
        let state = self.state();
        let loss_scale = match state.sites.scaling() {
            Scaling::Loss(schedule) => Some(schedule.to_words().to_vec()),
            Scaling::Gradient(_) | Scaling::Blocks(_) => None,
        };
        let saved = Saved { method: self.method().to_owned(), loss_scale, sites: state.sites.save() };
        serde_json::to_string(&saved).map_err(|error| Error::State(error.to_string()))
    }

    /// Restores the state of [`Scaler::save`]. Call it after the model was created, so that all of its sites exist.
    ///
    /// # Errors
    /// [`Error::State`]: a text that is not a saved state, another method, other sites. Nothing has changed then.
    pub fn restore(&self, text: &str) -> Result<(), Error> {
        let saved: Saved = serde_json::from_str(text).map_err(|error| Error::State(error.to_string()))?;
        if saved.method != self.method() {
            let cause = format!("made with the method {}, but this is {}", saved.method, self.method());
            return Err(Error::State(cause));
        }
        let schedule = saved.loss_scale.map(|words| LossScale::from_words(&words)).transpose();
        let schedule = schedule.map_err(|error| Error::State(error.to_string()))?;
        let mut state = self.state();
        let mut sites = state.sites.clone();
        let before = sites.len();
        sites.restore(schedule, &saved.sites).map_err(Error::State)?;
        // Saved sites that the model lacks were added; a state with fewer sites is rejected below.
        if sites.len() != before {
            let other = u16::try_from(before).map_or("", |slot| sites.name(Slot(slot)));
            return Err(Error::State(format!("site {other} is not in this model")));
        }
        if saved.sites.len() != before - 2 {
            let cause = format!("has {} sites, but this model has {}", saved.sites.len(), before - 2);
            return Err(Error::State(cause));
        }
        let State { sites: own, rows, order, failed } = &mut *state;
        (*own, *failed) = (sites, 0);
        rows.fill(EMPTY);
        order.clear();
        Ok(())
    }
}
