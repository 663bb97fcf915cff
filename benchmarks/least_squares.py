"""Damped least squares on logarithms with robust weights and priors: small, deterministic, without third-party packages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

ROUNDS = 14
STEP = 0.02
"""Change of a logarithm from which slopes are taken."""
ROBUST = 0.15
"""Errors above this count by their size, not its square, so that a few odd rows do not rule."""
DAMPING = 0.05
LARGEST_MOVE = 0.4
SMALLEST_GAIN = 1e-4


@dataclass(frozen=True, slots=True)
class Parameter:
    """A positive constant: where it starts and is drawn to, how strongly, and its bounds."""

    name: str
    start: float
    spread: float
    """How far, as a factor's logarithm, it may lie from ``start`` without much penalty."""
    low: float
    high: float


NOISE = 0.2
"""Spread of a row around a right prediction, as a logarithm."""

Residuals = Callable[[Sequence[float], Sequence[int]], list[float]]
"""Values of the parameters and indices of rows -> logarithm of predicted over measured, row by row."""


def fit(parameters: Sequence[Parameter], residuals: Residuals, weights: Sequence[float]) -> list[float]:
    """Values that bring the residuals near zero without leaving the priors for little.

    Args:
        parameters: What may move.
        residuals: The model.
        weights: How much each row counts.
    """
    logs = [math.log(parameter.start) for parameter in parameters]
    starts = list(logs)
    pulls = [(NOISE / parameter.spread) ** 2 for parameter in parameters]
    rows = range(len(weights))
    base = residuals(_values(logs), rows)
    # A constant of one GPU family moves few rows: the others need no second look.
    moves: list[Sequence[int]] = [rows for _ in parameters]
    cost = _cost(base, weights, logs, starts, pulls)
    damping = DAMPING
    for turn in range(ROUNDS):
        robust = [weight / max(ROBUST, abs(error)) * ROBUST for weight, error in zip(weights, base, strict=True)]
        slopes = [_slopes(residuals, logs, index, base, moves[index]) for index in range(len(logs))]
        drift = [log - start for log, start in zip(logs, starts, strict=True)]
        if turn == 0:
            moves = [[row for row, slope in enumerate(column) if slope] for column in slopes]
        moved = _move(parameters, logs, _system(slopes, robust, base, drift, pulls), damping)
        errors = residuals(_values(moved), rows)
        lower = _cost(errors, weights, moved, starts, pulls)
        if lower < cost:
            done = cost - lower < SMALLEST_GAIN * cost
            logs, base, cost, damping = moved, errors, lower, damping / 3
            if done:
                break
        else:
            damping *= 6
    return _values(logs)


def _values(logs: Sequence[float]) -> list[float]:
    return [math.exp(value) for value in logs]


def _slopes(
    residuals: Residuals, logs: Sequence[float], index: int, base: Sequence[float], rows: Sequence[int]
) -> list[float]:
    moved = list(logs)
    moved[index] += STEP
    slopes = [0.0] * len(base)
    for row, after in zip(rows, residuals(_values(moved), rows), strict=True):
        slopes[row] = (after - base[row]) / STEP
    return slopes


def _cost(
    errors: Sequence[float],
    weights: Sequence[float],
    logs: Sequence[float],
    starts: Sequence[float],
    pulls: Sequence[float],
) -> float:
    rows = sum(
        weight * (error * error if abs(error) < ROBUST else 2 * ROBUST * abs(error) - ROBUST * ROBUST)
        for weight, error in zip(weights, errors, strict=True)
    )
    prior = sum(pull * (value - start) ** 2 for pull, value, start in zip(pulls, logs, starts, strict=True))
    return rows + prior


System = tuple[list[list[float]], list[float]]


def _system(
    slopes: Sequence[Sequence[float]],
    weights: Sequence[float],
    base: Sequence[float],
    drift: Sequence[float],
    pulls: Sequence[float],
) -> System:
    """Normal equations of one round."""
    size = len(slopes)
    weighted = [[weight * value for weight, value in zip(weights, row, strict=True)] for row in slopes]
    matrix = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i, size):
            matrix[i][j] = matrix[j][i] = sum(a * b for a, b in zip(weighted[i], slopes[j], strict=True))
        matrix[i][i] += pulls[i]
    right = [-sum(a * b for a, b in zip(weighted[i], base, strict=True)) - pulls[i] * drift[i] for i in range(size)]
    return matrix, right


def _move(parameters: Sequence[Parameter], logs: Sequence[float], system: System, damping: float) -> list[float]:
    matrix, right = system
    damped = [
        [value * (1 + damping) if i == j else value for j, value in enumerate(row)] for i, row in enumerate(matrix)
    ]
    change = solve(damped, right)
    return [
        min(
            math.log(parameter.high),
            max(math.log(parameter.low), value + max(-LARGEST_MOVE, min(LARGEST_MOVE, delta))),
        )
        for parameter, value, delta in zip(parameters, logs, change, strict=True)
    ]


def solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solution of a linear system by elimination with pivots."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda index: abs(rows[index][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        head = rows[column][column]
        if abs(head) < 1e-12:
            rows[column][column] = head = 1e-12
        for index in range(column + 1, size):
            factor = rows[index][column] / head
            if factor:
                rows[index] = [a - factor * b for a, b in zip(rows[index], rows[column], strict=True)]
    result = [0.0] * size
    for index in reversed(range(size)):
        known = sum(rows[index][j] * result[j] for j in range(index + 1, size))
        result[index] = (rows[index][size] - known) / rows[index][index]
    return result
