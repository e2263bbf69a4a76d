//! When a child that ended is started anew (`DESIGN.md` chapter 7).

use std::time::{Duration, Instant};

use crate::config::{RestartPolicy, RestartWhen};

/// Shortest time between a failure and an attempt that a call brings forward.
const FORWARD_MIN: Duration = Duration::from_secs(1);

/// The history of failures that decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Restart {
    /// Failures in a row.
    failures: u32,
    last_failure: Option<Instant>,
    /// Only a person can mend what failed last.
    hopeless: bool,
    ready_since: Option<Instant>,
    /// State of the jitter.
    seed: u64,
}

/// What to do after an end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Start again at that time, or earlier if a call asks for it.
    Retry(Instant),
    /// Start again when it is needed: it ended well.
    OnDemand,
    /// No more by itself. A call gets one attempt if `half_open`.
    GiveUp {
        /// Whether a call may try once.
        half_open: bool,
    },
}

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Exit code 0 with nothing pending.
    Well,
    /// Any other end, a start that failed included.
    Badly,
    /// A restart can't mend it: the command is not there.
    Hopeless,
}

impl Restart {
    /// No failures yet; `seed` feeds the jitter.
    pub fn new(seed: u64) -> Self {
        Self { failures: 0, last_failure: None, hopeless: false, ready_since: None, seed }
    }

    /// The child is ready.
    pub fn ready(&mut self, now: Instant) {
        self.ready_since = Some(now);
    }

    /// A person asks for a fresh start.
    pub fn forgive(&mut self) {
        self.failures = 0;
        self.last_failure = None;
        self.hopeless = false;
    }

    /// Whether another attempt is in vain until a person has mended what failed last.
    pub fn is_hopeless(&self) -> bool {
        self.hopeless
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The child ended: decides.
    pub fn ended(&mut self, now: Instant, policy: &RestartPolicy, ending: Ending) -> Decision {
        let stable = self.ready_since.take().is_some_and(|since| now.saturating_duration_since(since) >= policy.stable);
        if stable {
            self.failures = 0;
        }
        self.hopeless = ending == Ending::Hopeless;
        match (ending, policy.policy) {
            (Ending::Hopeless, _) => {
                self.last_failure = Some(now);
                return Decision::GiveUp { half_open: true };
            }
            (_, RestartWhen::Never) => return Decision::GiveUp { half_open: false },
            (Ending::Well, RestartWhen::Always | RestartWhen::OnFailure) => return Decision::OnDemand,
            (Ending::Badly, RestartWhen::Always | RestartWhen::OnFailure) => {}
        }
        self.failures += 1;
        self.last_failure = Some(now);
        if self.failures >= policy.attempts {
            return Decision::GiveUp { half_open: true };
        }
        Decision::Retry(now + self.pause(policy))
    }

    /// When an attempt that a call asks for may begin.
    pub fn forward(&self, now: Instant) -> Instant {
        self.last_failure.map_or(now, |last| now.max(last + FORWARD_MIN))
    }

    /// Exponential, half of it fixed and half random.
    fn pause(&mut self, policy: &RestartPolicy) -> Duration {
        let doublings = (self.failures - 1).min(20);
        let full = policy.min.saturating_mul(1 << doublings).min(policy.max);
        // SplitMix64: a jitter needs no better numbers.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let thousandth = u32::try_from((z >> 32) % 1000).unwrap_or_default();
        full / 2 + full / 2 * thousandth / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(when: RestartWhen) -> RestartPolicy {
        RestartPolicy {
            policy: when,
            min: Duration::from_millis(250),
            max: Duration::from_secs(30),
            attempts: 8,
            stable: Duration::from_mins(1),
        }
    }

    #[test]
    fn pauses_grow_with_jitter_to_a_bound_and_then_it_gives_up() {
        for seed in 0..50 {
            let mut restart = Restart::new(seed);
            let now = Instant::now();
            let mut full = Duration::from_millis(250);
            for _ in 0..7 {
                let Decision::Retry(at) = restart.ended(now, &policy(RestartWhen::Always), Ending::Badly) else {
                    panic!("gave up early")
                };
                assert!(at - now >= full / 2 && at - now <= full, "{:?} of {full:?}", at - now);
                full = (full * 2).min(Duration::from_secs(30));
            }
            let last = restart.ended(now, &policy(RestartWhen::Always), Ending::Badly);
            assert_eq!(last, Decision::GiveUp { half_open: true });
        }
    }

    #[test]
    fn stable_time_resets_the_count_and_policies_differ() {
        let now = Instant::now();
        let mut restart = Restart::new(1);
        for round in 0..20 {
            restart.ready(now);
            let later = now + Duration::from_secs(61);
            let decision = restart.ended(later, &policy(RestartWhen::Always), Ending::Badly);
            assert!(matches!(decision, Decision::Retry(_)), "round {round}");
            assert_eq!(restart.failures(), 1);
        }
        assert_eq!(restart.ended(now, &policy(RestartWhen::OnFailure), Ending::Well), Decision::OnDemand);
        let never = restart.ended(now, &policy(RestartWhen::Never), Ending::Badly);
        assert_eq!(never, Decision::GiveUp { half_open: false });
        assert_eq!(restart.forward(now), now.max(now + Duration::from_secs(61) + FORWARD_MIN));
    }
}
