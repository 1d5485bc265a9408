//! Hedging decided by the shipping logic over modelled replicas: the promises in figures.

mod adaptive;
mod choice;
mod fan_out;
mod model;
mod properties;
mod quantile;
mod what_if;
