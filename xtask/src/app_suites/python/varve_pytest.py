"""A plugin of pytest that writes down how each test ended, and lets an application that says InnoDB say VARVE.

Outcomes are lines of JSON, one or more for each test, and one at the end. With VARVE_APP_ENGINE, the name of
the engine takes InnoDB's place in what is sent to the server: in ENGINE=, and in the timeout for locks.
"""

import json
import os
import re

import pytest
from MySQLdb import connections


def write_down(line):
    with open(os.environ["VARVE_APP_RESULTS"], "a", encoding="utf-8") as results:
        results.write(json.dumps(line) + "\n")


def _name(node):
    """SQLAlchemy names classes after the driver and the server's version, too."""
    return re.sub(r"_mariadb\+mysqldb[0-9_]*(?=::)", "", node)


def _outcome(report):
    if hasattr(report, "wasxfail"):
        return "failed as expected" if report.skipped else "passed unexpectedly"
    return report.outcome


def _why(report):
    if report.skipped and isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message if crash else str(report.longrepr or "")


class _Outcomes:
    def pytest_runtest_logreport(self, report):
        if report.when == "call" or not report.passed:
            write_down({"test": _name(report.nodeid), "outcome": _outcome(report), "why": _why(report)})

    def pytest_collectreport(self, report):
        if report.failed:
            write_down({"test": _name(report.nodeid), "outcome": "failed", "why": _why(report)})

    def pytest_sessionfinish(self, exitstatus):
        # All passed, some failed, there was none.
        if exitstatus in (0, 1, 5):
            write_down({"end": True})


def _name_engine(name):
    engine = re.compile(rb"(\bengine\s*=\s*)innodb\b", re.IGNORECASE)
    timeout = re.compile(rb"\binnodb_lock_wait_timeout\b", re.IGNORECASE)

    def renamed(sql):
        sql = sql.encode() if isinstance(sql, str) else bytes(sql)
        sql = engine.sub(rb"\g<1>" + name.encode(), sql)
        return timeout.sub(name.lower().encode() + b"_lock_wait_timeout", sql)

    query = connections.Connection.query
    connections.Connection.query = lambda self, sql: query(self, renamed(sql))


def pytest_configure(config):
    if name := os.environ.get("VARVE_APP_ENGINE"):
        _name_engine(name)
    # Processes that run tests report to the one that started them.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Outcomes())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Keeps the tests named in a file, if there is one."""
    file = os.environ.get("VARVE_APP_ONLY")
    if not file:
        return
    with open(file, encoding="utf-8") as names:
        only = set(json.load(names))
    others = [item for item in items if _name(item.nodeid) not in only]
    items[:] = [item for item in items if _name(item.nodeid) in only]
    config.hook.pytest_deselected(items=others)


