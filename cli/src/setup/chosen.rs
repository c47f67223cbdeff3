//! Options that choose the network and its size.

use super::{NetworkSize, Sizes, width};
use crate::{
    Failure,
    help::heading,
    tasks::{Net, Network, Task},
};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// Default number of channels of a small network.
const WIDTH: usize = 16;

/// A network with its kind of data.
#[derive(Clone, Debug, Default, Args, Serialize, Deserialize)]
pub struct Chosen {
    /// Kind of network and data [default: segnet]
    #[arg(long, value_enum, help_heading = heading::NETWORK)]
    #[serde(serialize_with = "resolved")]
    pub task: Option<Task>,
    /// Network; it also selects the task
    ///
    /// [default: segnet-basic for segnet, resnet-8 for classify, biglstm for language]
    #[arg(id = "network", long = "network", alias = "net", value_enum, value_name = "NETWORK", help_heading = heading::NETWORK)]
    #[serde(default)]
    pub net: Option<Net>,
    /// Size of network and images [default: small]
    ///
    /// Size of the network: small (for small images, with --width channels) or paper (the paper's network, which needs
    /// a GPU). Size of PNG and JPEG images: rows and columns to resize to, masks by nearest pixels. Both: paper,240x320
    #[arg(long, value_name = "small|paper|HxW", help_heading = heading::NETWORK)]
    #[serde(default)]
    pub size: Option<Sizes>,
    /// Channels of the first layers [default: 16]
    ///
    /// SegNetBasic has 64 in each layer. If layers differ, those behind the first are in proportion, and the papers'
    /// networks have 64. A perceptron and towers have 8 times as many units in a layer. Deep Speech 2 has 4 times as
    /// many units and half as many channels, at most 32. Seq2seq has 8 times as many units; language networks have 32
    /// and 8 times as many, see --network. DCGAN: channels of the layers next to the images. With --size paper the
    /// default is the paper's.
    #[arg(long, value_name = "N", value_parser = width, help_heading = heading::NETWORK)]
    pub width: Option<usize>,
}

/// Serializes the task with its default filled in, so that results and checkpoints record it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn resolved<S: serde::Serializer>(task: &Option<Task>, serializer: S) -> Result<S::Ok, S::Error> {
    task.unwrap_or_default().serialize(serializer)
}

impl Chosen {
    /// Returns the task that the options choose, or the default one.
    #[must_use]
    pub fn task(&self) -> Task {
        self.task.or(self.net.map(Net::task)).unwrap_or_default()
    }

    /// Returns the kind of network that the options choose, without checks.
    #[must_use]
    pub fn net(&self) -> Net {
        self.net.unwrap_or_else(|| self.task().kind().net())
    }

    /// Returns the network that the options choose, checked against its task.
    ///
    /// # Errors
    /// One for another task, or of no paper; another width than the paper's.
    pub fn network(&self) -> Result<Network, Failure> {
        let (task, net) = (self.task(), self.net());
        if net.task() != task {
            let words =
                |task: Task| task.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
            let cause = format!("is for --task {}, not for {}", words(net.task()), words(task));
            return Err(Failure::at(format!("--network {net}"), cause));
        }
        match self.size.and_then(|size| size.network) {
            None | Some(NetworkSize::Small) => Ok(Network::small(net, self.width.unwrap_or(WIDTH))),
            Some(NetworkSize::Paper) => {
                let paper = Network::paper(net)?;
                match self.width.filter(|width| *width != paper.width) {
                    Some(width) => {
                        let cause = format!("the paper's network has {}; omit --width or --size paper", paper.width);
                        Err(Failure::at(format!("--width {width}"), cause))
                    }
                    None => Ok(paper),
                }
            }
        }
    }

    /// Returns the choice with defaults filled in for everything but sizes.
    ///
    /// # Errors
    /// Those of [`Chosen::network`].
    pub fn resolved(&self) -> Result<Self, Failure> {
        let Network { net, width, .. } = self.network()?;
        Ok(Self { task: Some(self.task()), net: Some(net), width: Some(width), size: self.size })
    }
}
