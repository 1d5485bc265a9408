//! Inside glommio.
