"""The fitter: it finds what made the rows, stays at its priors without rows, and odd rows do not rule."""

from __future__ import annotations

import math
import random

import pytest

from benchmarks.least_squares import Parameter, fit, solve


def parameters(spread=1.0):
    return [Parameter("a", 1.0, spread, 0.01, 100.0), Parameter("b", 1.0, spread, 0.01, 100.0)]


def rows_of(a, b, count=40, seed=7):
    source = random.Random(seed)
    points = [(source.uniform(0.1, 5), source.uniform(0.1, 5)) for _ in range(count)]
    return points, [a * x + b * y for x, y in points]


def residuals_of(points, measured):
    def residuals(values, rows):
        return [math.log((values[0] * points[i][0] + values[1] * points[i][1]) / measured[i]) for i in rows]

    return residuals


def test_it_finds_what_made_the_rows():
    points, measured = rows_of(3.0, 0.5)
    found = fit(parameters(10.0), residuals_of(points, measured), [1.0] * len(points))
    assert found == pytest.approx([3.0, 0.5], rel=0.01)


def test_a_few_odd_rows_do_not_rule():
    points, measured = rows_of(3.0, 0.5)
    measured[:4] = [value * 20 for value in measured[:4]]
    found = fit(parameters(10.0), residuals_of(points, measured), [1.0] * len(points))
    assert found == pytest.approx([3.0, 0.5], rel=0.25)


def test_constants_that_no_row_speaks_of_stay():
    points, measured = rows_of(3.0, 0.0)
    points = [(x, 0.0) for x, _ in points]
    found = fit(parameters(), residuals_of(points, measured), [1.0] * len(points))
    assert found[0] == pytest.approx(3.0, rel=0.05)
    assert found[1] == 1.0


def test_bounds_hold_and_the_same_rows_give_the_same_fit():
    points, measured = rows_of(3.0, 0.5)
    bounded = [Parameter("a", 1.0, 10.0, 0.5, 2.0), Parameter("b", 1.0, 10.0, 0.01, 100.0)]
    first, second = (fit(bounded, residuals_of(points, measured), [1.0] * len(points)) for _ in range(2))
    assert first == second
    assert first[0] <= 2.0 + 1e-9


def test_solve_pivots():
    assert solve([[0.0, 2.0], [3.0, 1.0]], [4.0, 5.0]) == pytest.approx([1.0, 2.0])
