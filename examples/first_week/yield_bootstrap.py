"""Discount factors bootstrapped from par swap rates, and the bucketed risk of a swap."""

import numpy as np

import pullback as pb


def bootstrap(par_rates):
    """Annual discount factors such that each par swap is worth nothing."""
    n = len(par_rates)
    df = np.empty(n)
    annuity = 0.0
    for i in range(n):
        df[i] = (1.0 - par_rates[i] * annuity) / (1.0 + par_rates[i])
        annuity += df[i]
    return df


def swap_value(par_rates, fixed_rate, maturity, notional=1e6):
    """Payer swap: floating leg less fixed leg."""
    df = bootstrap(par_rates)[:maturity]
    return notional * ((1 - df[-1]) - fixed_rate * df.sum())


def main():
    years = np.arange(1, 11)
    par = 0.02 + 0.012 * (1 - np.exp(-years / 4))
    df = pb.jit(bootstrap)(par)
    print("zero rates  ", np.round(100 * -np.log(df) / years, 3))
    value, risk = pb.value_and_grad(swap_value)(par, 0.03, 8)
    print(f"8y payer at 3%: {value:,.0f}")
    for year, bucket in zip(years, 1e-4 * risk):
        print(f"  {year:2d}y  {bucket:9.2f} per basis point")
    assert abs(pb.jit(swap_value)(par, par[7], 8)) < 1e-6


if __name__ == "__main__":
    main()
