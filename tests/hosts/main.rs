//! Embedded cores: driven by hand, and inside tokio, monoio and glommio.

mod by_hand;
mod in_glommio;
mod in_monoio;
mod in_tokio;
mod load;
mod park;
