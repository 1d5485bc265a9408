//! The doors: how an application reaches the engine.
pub mod door;
