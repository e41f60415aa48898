//! What queueing theory says about queues that the simulator also runs.
//!
//! Sources: Erlang C and the distribution of the response time of M/M/k from Kleinrock, Queueing
//! Systems I, 3.5 and 5.10. Rates and times are in any unit, the same one throughout.

/// The share of arrivals that wait in M/M/k, for `offered` = arrival rate x mean service time below
/// `servers` (Erlang C, by the recursion of Erlang B).
pub fn erlang_c(servers: u32, offered: f64) -> f64 {
    let blocked = (1..=servers).fold(1.0, |b, k| offered * b / (f64::from(k) + offered * b));
    let load = offered / f64::from(servers);
    blocked / (1.0 - load + load * blocked)
}

/// The mean response time of M/M/k.
pub fn mean_response(servers: u32, service: f64, rate: f64) -> f64 {
    let spare = f64::from(servers) / service - rate;
    service + erlang_c(servers, rate * service) / spare
}

/// The share of responses of M/M/k that take longer than `time`.
fn beyond(servers: u32, service: f64, rate: f64, time: f64) -> f64 {
    let (own, spare) = (1.0 / service, f64::from(servers) / service - rate);
    let waits = erlang_c(servers, rate * service);
    let difference = spare - own;
    // The sum of an exponential wait and an exponential service. Where both have the same rate, the
    // quotient has a limit.
    let both = if (difference / own).abs() < 1e-9 {
        libm::exp(-own * time) * (1.0 + own * time)
    } else {
        (spare * libm::exp(-own * time) - own * libm::exp(-spare * time)) / difference
    };
    (1.0 - waits) * libm::exp(-own * time) + waits * both
}

/// A quantile of the response time of M/M/k.
pub fn response_quantile(servers: u32, service: f64, rate: f64, quantile: f64) -> f64 {
    let least = -service * libm::log(1.0 - quantile);
    let mut high = least;
    while beyond(servers, service, rate, high) > 1.0 - quantile {
        high *= 2.0;
    }
    bisect(0.0, high, |time| beyond(servers, service, rate, time) <= 1.0 - quantile)
}

/// The highest arrival rate at which a quantile of M/M/k's response time is at most `limit`. None
/// where even a single job takes longer.
pub fn rate_within(servers: u32, service: f64, quantile: f64, limit: f64) -> Option<f64> {
    let most = f64::from(servers) / service;
    let exceeds = |rate: f64| response_quantile(servers, service, rate, quantile) > limit;
    (!exceeds(0.0)).then(|| bisect(0.0, most * (1.0 - 1e-9), exceeds))
}

/// Where a condition that is false at `low` becomes true, to 60 halvings.
pub fn bisect(low: f64, high: f64, becomes_true: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (low, high);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if becomes_true(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_is_m_m_1() {
        // Of the textbook: t = ln(100) S / (1 - load).
        for load in [0.1, 0.5, 0.9] {
            let expected = libm::log(100.0) / (1.0 - load);
            assert!((response_quantile(1, 1.0, load, 0.99) / expected - 1.0).abs() < 1e-9);
            assert!((mean_response(1, 1.0, load) * (1.0 - load) - 1.0).abs() < 1e-12);
            assert!((rate_within(1, 1.0, 0.99, expected).unwrap() - load).abs() < 1e-9);
        }
        assert!(rate_within(1, 1.0, 0.99, 4.0).is_none());
    }
    #[test]
    fn two_servers_are_as_in_the_textbook() {
        // Erlang C of two servers is 2 load^2 / (1 + load).
        for load in [0.2, 0.7] {
            assert!((erlang_c(2, 2.0 * load) - 2.0 * load * load / (1.0 + load)).abs() < 1e-12);
        }
    }
}
