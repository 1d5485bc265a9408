//! What needs no server and no clock.

mod rules;
