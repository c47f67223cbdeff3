//! What a step of one network leaves alone of the other.
