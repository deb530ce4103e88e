//! What a model costs.
//!
//! Prices are handed in; which hold for which model is the embedding program's to know. Money is counted in whole
//! billionths of a US dollar, so that it adds up the same whenever a log is read.

use mainstay_session::message::Usage;

/// How many units of money, as logs and [`crate::TurnReport`] count it, make a US dollar.
pub const UNITS_PER_DOLLAR: u64 = 1_000_000_000;

/// What a model's tokens cost, in US dollars for a million of them.
///
/// ```
/// use mainstay_agent::Prices;
/// use mainstay_agent::session::message::Usage;
///
/// let prices = Prices { cached: Some(0.3), ..Prices::new(3.0, 15.0) };
/// let usage = Usage { input_tokens: 1_000_000, cached_tokens: 900_000, output_tokens: 1_000, ..Usage::default() };
/// // 100,000 fresh tokens at 3 dollars, 900,000 cached ones at 0.30, 1,000 of output at 15.
/// assert_eq!(prices.cost(usage), 585_000_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// Tokens of a request.
    pub input: f64,
    /// Those that came from the provider's cache; [`Prices::input`] where there is no price of their own.
    pub cached: Option<f64>,
    /// Those that were written to the provider's cache; [`Prices::input`] where there is no price of their own.
    pub cache_write: Option<f64>,
    /// Tokens of an answer.
    pub output: f64,
}

impl Prices {
    /// One price for requests, one for answers.
    pub fn new(input: f64, output: f64) -> Self {
        Prices { input, cached: None, cache_write: None, output }
    }

    /// What a request and its answer cost, in billionths of a US dollar. Less than that is rounded for each kind of token.
    pub fn cost(&self, usage: Usage) -> u64 {
        let Prices { input, cached, cache_write, output } = *self;
        let Usage { input_tokens, cached_tokens, cache_written_tokens, output_tokens } = usage;
        let fresh = input_tokens.saturating_sub(cached_tokens).saturating_sub(cache_written_tokens);
        [
            (fresh, input),
            (cached_tokens, cached.unwrap_or(input)),
            (cache_written_tokens, cache_write.unwrap_or(input)),
            (output_tokens, output),
        ]
        .into_iter()
        .map(|(tokens, price)| cost(tokens, price))
        .fold(0, u64::saturating_add)
    }
}

/// An amount of money, given in billionths of a US dollar.
pub fn dollars(amount: u64) -> String {
    // Rounded up, so that what cost something never reads as nothing.
    let parts = amount.div_ceil(100_000);
    format!("${}.{:04}", parts / 10_000, parts % 10_000)
}

/// What tokens cost at a price for a million.
fn cost(tokens: u64, price: f64) -> u64 {
    // A price is looked at in whole millionths of a dollar for a million tokens: the least that any provider names.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a price is small and not negative"
    )]
    let price = (price * 1e6).round() as u128;
    u64::try_from(u128::from(tokens).saturating_mul(price) / 1_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_token_has_its_price() {
        let usage = |input_tokens, cached_tokens, cache_written_tokens, output_tokens| Usage {
            input_tokens,
            cached_tokens,
            cache_written_tokens,
            output_tokens,
        };
        let flat = Prices::new(2.0, 10.0);
        let whole = Prices { cached: Some(0.0028), cache_write: Some(2.5), ..flat };
        for (prices, usage, cost) in [
            (flat, usage(1_000, 0, 0, 100), 3_000_000),
            (flat, usage(1_000, 400, 300, 100), 3_000_000),
            (whole, usage(1_000, 400, 300, 100), 600_000 + 1_120 + 750_000 + 1_000_000),
            (whole, usage(0, 1_000_000, 0, 0), 2_800_000),
            (whole, usage(0, 0, 0, 0), 0),
            // Counts that contradict each other make no negative cost.
            (flat, usage(10, 100, 100, 0), 400_000),
            (Prices::new(f64::MAX, 0.0), usage(u64::MAX, 0, 0, 0), u64::MAX),
        ] {
            assert_eq!(prices.cost(usage), cost, "{prices:?} {usage:?}");
        }
    }
}
