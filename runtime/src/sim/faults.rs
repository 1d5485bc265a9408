//! What a simulated network does wrong, and how often.

use std::time::Duration;

use fastrand::Rng;

/// Shape and faults of a simulated network. `Default` has no faults; each chance is a probability
/// from 0 to 1, asked where its comment says.
#[derive(Clone, Debug, PartialEq)]
pub struct SimConfig {
    /// Everything random follows from it. Default 0.
    pub seed: u64,
    /// Shortest time of bytes on the wire, one way. Default 20 us.
    pub delay_min: Duration,
    /// Mean of the exponentially distributed time on top. Default 0.
    pub delay_extra: Duration,
    /// Chance that a delay is 50 times as long. Per delivery.
    pub delay_tail: f64,
    /// Virtual time that each `enter` takes. Default 1 us; zero would let a spinning core stand
    /// still in time.
    pub enter_cost: Duration,
    /// Bytes that a socket takes before its peer has read them. Default 2 MiB.
    pub send_buffer: usize,
    /// Whether incremental groups can be made. Default `true`.
    pub incremental: bool,
    /// Chance that a connect is refused. Per connect.
    pub refuse: f64,
    /// Chance that a connect is never answered (it fails with `ETIMEDOUT` after 127 s).
    pub blackhole: f64,
    /// Chance that a send takes only a part. Per send of 2 bytes or more.
    pub short_send: f64,
    /// Chance that a send answers `EAGAIN`, and the socket takes bytes again a delay later.
    pub send_again: f64,
    /// Chance that the connection is reset. Per send and per delivery.
    pub reset: f64,
    /// Chance that the peer ends its direction while it still reads. Per delivery.
    pub half_close: f64,
    /// Chance that the connection's answers vanish from some point on. Per connect.
    pub mute: f64,
    /// Chance that a receive takes fewer bytes than are there and fit. Per receive.
    pub split: f64,
    /// Chance that a receive into a group finds it empty though it is not. Per receive.
    pub no_buffers: f64,
    /// Chance that a multishot ends with a receive for no reason.
    pub multishot_end: f64,
    /// Chance that a cancelled operation completes late, long after its cancel. Half of these
    /// cancels answer `EALREADY`, and the operation may still take bytes.
    pub late_cancel: f64,
    /// Chance that completions of different operations come in another order. Per `enter`.
    pub reorder: f64,
    /// Chance that a wait ends for nothing. Per `enter`.
    pub spurious: f64,
    /// Chance that the clock jumps forward, by up to [`SimConfig::clock_jump_max`]. Per `enter`. It
    /// is the monotonic one, which never goes back; nothing on a core reads the wall clock.
    pub clock_jump: f64,
    /// Longest jump of the clock. Default 3 s.
    pub clock_jump_max: Duration,
}

impl Default for SimConfig {
    fn default() -> SimConfig {
        SimConfig {
            seed: 0,
            delay_min: Duration::from_micros(20),
            delay_extra: Duration::ZERO,
            delay_tail: 0.0,
            enter_cost: Duration::from_micros(1),
            send_buffer: 2 << 20,
            incremental: true,
            refuse: 0.0,
            blackhole: 0.0,
            short_send: 0.0,
            send_again: 0.0,
            reset: 0.0,
            half_close: 0.0,
            mute: 0.0,
            split: 0.0,
            no_buffers: 0.0,
            multishot_end: 0.0,
            late_cancel: 0.0,
            reorder: 0.0,
            spurious: 0.0,
            clock_jump: 0.0,
            clock_jump_max: Duration::from_secs(3),
        }
    }
}

impl SimConfig {
    /// Every fault possible; which ones occur, and how often, follows from `seed`, so that some
    /// seeds try a few faults alone and others all together.
    pub fn chaos(seed: u64) -> SimConfig {
        let mut rng = Rng::with_seed(seed ^ 0x6865_6467_6572_6f77);
        // Half of the faults are off in any one seed; the rest spread over two orders of magnitude.
        let mut chance = |max: f64| if rng.bool() { 0.0 } else { max * 0.01_f64.powf(rng.f64()) };
        let mut config = SimConfig {
            seed,
            delay_tail: chance(0.05),
            refuse: chance(0.3),
            blackhole: chance(0.1),
            short_send: chance(0.5),
            send_again: chance(0.3),
            reset: chance(0.02),
            half_close: chance(0.01),
            mute: chance(0.1),
            split: chance(0.8),
            no_buffers: chance(0.2),
            multishot_end: chance(0.2),
            late_cancel: chance(0.8),
            reorder: chance(1.0),
            spurious: chance(0.3),
            clock_jump: chance(0.005),
            ..SimConfig::default()
        };
        config.delay_extra = Duration::from_micros(rng.u64(0..500));
        config.send_buffer = 1 << rng.u32(12..22);
        config.incremental = rng.bool();
        config
    }
}
