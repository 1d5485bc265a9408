#!/usr/bin/env python3
"""Tests of the verdicts: `python3 perf/judge_test.py`."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import judge  # noqa: E402
import plan  # noqa: E402


def runs(ours, reference):
    """One run of each side for each repeat."""
    sides = (("ours", ours), ("theirs", reference))
    return [
        {"scenario": "s", "label": label, "repeat": repeat, "cpu_us_op": value}
        for label, values in sides
        for repeat, value in enumerate(values)
    ]


def target(limit, at_least=False):
    return plan.Target("row", "s", "cpu_us_op", "ours", "theirs", limit, at_least)


def verdict(ours, reference, limit, at_least=False, quick=False):
    return judge.judge(runs(ours, reference), target(limit, at_least), {}, quick)["verdict"]


class Verdicts(unittest.TestCase):
    def test_far_ratio_by_median(self):
        """Fails if a ratio far from 1 passes by its interval while its median misses."""
        self.assertEqual(verdict([2, 2, 9], [10] * 3, 0.30), "pass")
        self.assertEqual(verdict([2, 4, 4], [10] * 3, 0.30), "FALLS SHORT")

    def test_close_ratio_needs_pairs(self):
        """Fails if 19 pairs are enough for a ratio close to 1."""
        self.assertEqual(verdict([10] * 19, [10] * 19, 1.05), "NOT JUDGED")
        self.assertEqual(verdict([10] * 20, [10] * 20, 1.05), "pass")

    def test_close_ratio_by_interval(self):
        """Fails if the interval does not count, or counts for a ratio that is clearly off."""
        noisy = [10.2, 11.0] * 9 + [11.0, 11.0]
        self.assertEqual(verdict(noisy, [10] * 20, 1.05), "pass")
        self.assertEqual(verdict([11.0] * 20, [10] * 20, 1.05), "FALLS SHORT")

    def test_noise_is_no_pass(self):
        """Fails if an interval passes because it is so wide that it reaches everything."""
        self.assertEqual(verdict([5.0, 20.0] * 10, [10] * 20, 1.05), "NOT JUDGED")

    def test_at_least(self):
        """Fails if fewer commands than asked for pass."""
        self.assertEqual(verdict([9.0] * 20, [10] * 20, 0.95, at_least=True), "FALLS SHORT")
        self.assertEqual(verdict([9.6] * 20, [10] * 20, 0.95, at_least=True), "pass")

    def test_pairs_are_of_one_repeat(self):
        """Fails if a slow phase, which both sides of a repeat share, changes the ratio."""
        slow = [10, 20, 40, 10, 20]
        self.assertEqual(verdict([value * 0.29 for value in slow], slow, 0.30), "pass")

    def test_missing_is_no_pass(self):
        """Fails if a program that failed, or a quick run, is judged."""
        self.assertEqual(verdict([], [10] * 5, 0.30), "COULD NOT RUN")
        self.assertEqual(verdict([1] * 5, [10] * 5, 0.30, quick=True), "NOT JUDGED")


class Plan(unittest.TestCase):
    def test_targets_name_what_runs(self):
        """Fails if a target names a scenario or a program that the plan does not run."""
        programs = {s.name: {p.label for p in s.programs} for s in plan.SCENARIOS}
        for row in plan.TARGETS:
            self.assertIn(row.ours, programs[row.scenario], row)
            self.assertTrue(row.reference is None or row.reference in programs[row.scenario], row)
        for scenario in plan.SCENARIOS:
            self.assertIn(scenario.baseline, programs[scenario.name], scenario.name)


if __name__ == "__main__":
    unittest.main()
