"""Django's test runner, which also writes down how each test ended: a line of JSON for each, and one at the end."""

import json
import os
import unittest

from django.test.runner import DiscoverRunner


def write_down(line):
    with open(os.environ["VARVE_APP_RESULTS"], "a", encoding="utf-8") as results:
        results.write(json.dumps(line) + "\n")


class Result(unittest.TextTestResult):
    def _note(self, outcome, test, why=""):
        write_down({"test": test.id(), "outcome": outcome, "why": str(why)})

    def addSuccess(self, test):
        super().addSuccess(test)
        self._note("passed", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._note("failed", test, err[1])

    def addError(self, test, err):
        super().addError(test, err)
        self._note("failed", test, err[1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._note("failed", test, err[1])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._note("skipped", test, reason)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self._note("failed as expected", test, err[1])

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._note("passed unexpectedly", test)


class Runner(DiscoverRunner):
    def get_resultclass(self):
        return Result

    def run_suite(self, suite, **kwargs):
        result = super().run_suite(suite, **kwargs)
        # A process that could not tell how its test ended takes all others with it.
        write_down({"end": True})
        return result
