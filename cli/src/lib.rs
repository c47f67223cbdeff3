//! The parts of the `gradscale` program.
